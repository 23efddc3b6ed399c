"""Who moves the camera in place of the model (`--moves`): the classes of `roomscout.runs.movers.MOVERS`.

A mover decides by what its question has seen so far alone. So its moves depend on neither batch nor resume.
"""

import random
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from roomscout.agent.state import QuestionState
from roomscout.data.questions import Question
from roomscout.envs.actions import LIMITS, MOVE_LIMIT_M, ROTATION_LIMIT_DEG, CameraAction
from roomscout.envs.environment import ExplorationEnv
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.motion import MoveOutcome
from roomscout.rendering.scene import Scene
from roomscout.rendering.views import SurfaceCoverage


class Move(NamedTuple):
    """What the camera does in a turn; `outcome` is where that takes it, None if the scene decides."""

    action: CameraAction
    outcome: MoveOutcome | None = None


class Mover(ABC):
    """Moves the camera of many questions, from any thread. What moves it further than the run allows only turns it."""

    def __init__(self, seed: int, camera: Intrinsics, translation: bool) -> None:
        """`camera` draws the views of the run; without `translation` the camera may only turn."""
        self._seed, self._camera, self._translation = seed, camera, translation

    def moves(self, question: Question, sample: int, most: int) -> int:
        """How many moves an episode has, at most `most`."""
        return most

    def begin(self, state: QuestionState) -> None:
        """Prepare for a question at its first view; raises SceneError if it cannot be moved about this scan."""
        return None

    @abstractmethod
    def next_move(self, state: QuestionState) -> Move:
        """The next move of a question that has one left."""

    def forget(self, state: QuestionState) -> None:
        """Release what is kept for a question."""
        return None


class Still(Mover):
    """Moves nobody: the first view is the only one."""

    def moves(self, question: Question, sample: int, most: int) -> int:
        """0."""
        return 0

    def next_move(self, state: QuestionState) -> Move:
        """Stays, since it is never asked."""
        return Move(CameraAction())


class Spin(Mover):
    """Turns left in place by equal angles: the views of a question, the first included, divide 360 degrees evenly."""

    def next_move(self, state: QuestionState) -> Move:
        """A turn by 360 degrees divided by the number of views, to a tenth of a degree."""
        return Move(CameraAction(rotation_angle_degrees=round(360.0 / (state.steps + 1), 1)))


class RandomMoves(Mover):
    """Moves drawn uniformly from those that the scan does not stop, by the seed, the episode and the turn.

    Draws whole degrees and centimetres from all that an action allows, until nothing blocks or clips the move.
    """

    MOST_DRAWS = 200
    """After this many stopped moves, the camera turns in place."""

    def next_move(self, state: QuestionState) -> Move:
        """A random move."""
        draw, env = random.Random(f"{self._seed} moves {state.conversation.id} {state.turn}"), environment(state)
        for _ in range(self.MOST_DRAWS if self._translation else 0):
            turn, forward, left, up = (self._uniform(draw, name, limit) for name, limit in LIMITS.items())
            action = CameraAction(turn, forward, left, up)
            outcome = env.outcome(action)
            if not outcome.blocked and not outcome.clipped:
                return Move(action)
        return Move(CameraAction(float(draw.randint(-int(ROTATION_LIMIT_DEG), int(ROTATION_LIMIT_DEG)))))

    @staticmethod
    def _uniform(draw: random.Random, name: str, limit: float) -> float:
        parts = 1 if name == "rotation_angle_degrees" else 100
        return draw.randint(-round(limit * parts), round(limit * parts)) / parts


class GreedyCoverage(Mover):
    """Moves to the pose, within one move, that shows the most surface not seen from the poses so far.

    Candidates are all of HEADINGS at the camera's place and where moves of DISTANCES_M in the DIRECTIONS end, at its
    height; surfaces may stop a move earlier. Counts by `SurfaceCoverage`. The shortest move, then the smallest turn
    wins ties. Questions with the same poses so far share the search.
    """

    HEADINGS_DEG = tuple(sorted((float(degrees) for degrees in range(-150, 181, 30)), key=abs))
    DIRECTIONS_DEG = HEADINGS_DEG
    DISTANCES_M = (MOVE_LIMIT_M / 2, MOVE_LIMIT_M)

    def __init__(self, seed: int, camera: Intrinsics, translation: bool) -> None:
        super().__init__(seed, camera, translation)
        self._known = WeakKeyDictionary[Scene, dict[tuple[CameraPose, ...], tuple[CameraAction, float]]]()

    def next_move(self, state: QuestionState) -> Move:
        """The move to the best candidate."""
        poses = [observation.pose for observation in state.observations]
        return Move(self._to_new_surface(environment(state), poses)[0])

    def _to_new_surface(self, env: ExplorationEnv, poses: Sequence[CameraPose]) -> tuple[CameraAction, float]:
        """The move that shows the most new surface, and which share of all that is; each path is searched once."""
        known, path = self._known.setdefault(env.scene, {}), tuple(poses)
        if path not in known:
            known[path] = self._best(env, path)
        return known[path]

    def _best(self, env: ExplorationEnv, poses: Sequence[CameraPose]) -> tuple[CameraAction, float]:
        coverage, here = SurfaceCoverage(env.scene), poses[-1]
        for pose in poses:
            coverage.add(pose, self._camera)
        best, most = CameraAction(), -1
        for offset, place in self._places(env, here):
            unseen = coverage.unobstructed(place.position) & ~coverage.seen
            for turn in self.HEADINGS_DEG:
                shown = int(np.count_nonzero(unseen & coverage.in_frame(place.turned(turn), self._camera)))
                if shown > most:
                    best, most = turn_then_move(here, turn, offset), shown
        return best, most / len(coverage.points)

    def _places(self, env: ExplorationEnv, here: CameraPose) -> Iterator[tuple[np.ndarray, CameraPose]]:
        """The (3,) offset of each move, and the pose at which it ends, with the heading of `here`; nearest first."""
        yield np.zeros(3), here
        for distance in self.DISTANCES_M if self._translation else ():
            for direction in self.DIRECTIONS_DEG:
                heading = here.turned(direction)
                outcome = env.outcome(CameraAction(direction, forward_meters=distance), here)
                yield distance * heading.forward, here.at(outcome.pose.position)


def turn_then_move(here: CameraPose, turn_deg: float, offset: np.ndarray) -> CameraAction:
    """The action that turns by `turn_deg`, then moves by a (3,) horizontal `offset` in world metres."""
    turned = here.turned(turn_deg)
    forward, left = (
        float(np.clip(offset @ axis, -MOVE_LIMIT_M, MOVE_LIMIT_M)) for axis in (turned.forward, turned.left)
    )
    return CameraAction(turn_deg, round(forward, 3), round(left, 3))


def environment(state: QuestionState) -> ExplorationEnv:
    """The environment of a question in progress."""
    assert state.env is not None, "an active question has an environment"
    return state.env
