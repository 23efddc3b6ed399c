"""Who moves the camera in place of the model: the classes of `roomscout.runs.movers` and the moves of another run.

A mover decides by what its question has seen so far alone. So its moves depend on neither batch nor resume.
"""

import logging
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, product
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from roomscout.agent.policies import Decision
from roomscout.agent.state import QuestionState
from roomscout.base.errors import SettingError, as_words
from roomscout.data.boxes import Needed, needed_for
from roomscout.data.questions import Question
from roomscout.envs.actions import HEIGHT_LIMIT_M, MOVE_LIMIT_M, ROTATION_LIMIT_DEG, CameraAction
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.object_boxes import geometry_of
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.paths import Paths
from roomscout.rendering.scene import Scene, SceneError
from roomscout.rendering.views import SurfaceCoverage
from roomscout.rendering.visibility import MARGIN_M, Boxes, enough_pixels, object_pixels, window_of
from roomscout.runs.movers import GIVEN_PATH, MOVERS
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId
from roomscout.runs.sights import SeenObjects

log = logging.getLogger(__name__)

SEARCH_PX = 160  # the longer side of the depth images by which poses are compared
LEAST_GAIN = 0.05  # a move is worth it from this part of an object on
NEW_SURFACE = 0.02  # a move that shows no object better is worth it from this share of the scan's surface on
GRID = np.array(list(product((-0.9, 0.0, 0.9), repeat=3)))
CUT = 0.5  # what an object counts that is seen well, but cut by the edge of the view


class Mover:
    """Moves the camera of many questions, from any thread. What moves it further than the run allows only turns it."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def moves(self, question: Question, sample: int, most: int) -> int:
        """How many moves an episode has, at most `most`."""
        return most

    def begin(self, state: QuestionState) -> None:
        """Prepare for a question at its first view, such as by finding its `path`; raises SceneError to fail it."""

    def next_move(self, state: QuestionState) -> Decision:
        """The next move of a question that has one left, by default that of its `path`."""
        return state.path[state.turn]


class Still(Mover):
    """Moves nobody: the first view is the only one."""

    def moves(self, question: Question, sample: int, most: int) -> int:
        """0."""
        return 0


class Spin(Mover):
    """Turns left in place by equal angles: the views of a question, the first included, divide 360 degrees evenly."""

    def next_move(self, state: QuestionState) -> Decision:
        """A turn by 360 degrees divided by the number of views, to a tenth of a degree."""
        return Decision(CameraAction(rotation_angle_degrees=round(360.0 / (state.steps + 1), 1)))


class RandomMoves(Mover):
    """Moves drawn uniformly from those that the scan does not stop, by the seed, the episode and the turn. Draws whole
    degrees and centimetres from all that an action allows, until nothing blocks or clips the move."""

    MOST_DRAWS = 200  # after this many stopped moves, the camera turns in place

    def next_move(self, state: QuestionState) -> Decision:
        """A random move."""
        draw = random.Random(f"{self._seed} moves {state.conversation.id} {state.turn}")
        most_deg = round(ROTATION_LIMIT_DEG)
        most_cm = round(100 * MOVE_LIMIT_M)
        ranges = (most_deg, most_cm, most_cm, round(100 * HEIGHT_LIMIT_M))
        draws = self.MOST_DRAWS if state.rules.translation else 0
        for _ in range(draws):
            turn, forward, left, up = (draw.randint(-most, most) for most in ranges)
            action = CameraAction(float(turn), forward / 100, left / 100, up / 100)
            outcome = state.environment.outcome(action)
            if not outcome.blocked and not outcome.clipped:
                return Decision(action)
        return Decision(CameraAction(float(draw.randint(-most_deg, most_deg))))


class GreedyCoverage(Mover):
    """Moves to the pose, within one move, that shows the most surface not seen from the poses so far. Candidates are
    all of HEADINGS at the camera's place and where moves of DISTANCES_M in the DIRECTIONS end, at its height; surfaces
    may stop a move earlier. Counts by `SurfaceCoverage`. The shortest move, then the smallest turn wins ties. Questions
    with the same poses so far share the search."""

    HEADINGS_DEG = tuple(sorted((float(degrees) for degrees in range(-150, 181, 30)), key=abs))
    DIRECTIONS_DEG = HEADINGS_DEG
    DISTANCES_M = (MOVE_LIMIT_M / 2, MOVE_LIMIT_M)

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._searched = WeakKeyDictionary[Scene, dict[tuple[CameraPose, ...], tuple[CameraAction, float]]]()

    def next_move(self, state: QuestionState) -> Decision:
        """The move to the best candidate."""
        poses = [observation.pose for observation in state.observations]
        return Decision(self._to_new_surface(state, poses)[0])

    def _to_new_surface(self, state: QuestionState, poses: Sequence[CameraPose]) -> tuple[CameraAction, float]:
        """The move that shows the most new surface, and which share of all that is; each path is searched once."""
        env = state.environment
        searched = self._searched.setdefault(env.scene, {})
        path = tuple(poses)
        if path in searched:
            return searched[path]
        coverage = SurfaceCoverage(env.scene)
        best = CameraAction()
        most = -1
        for pose in poses:
            coverage.add(pose, env.observation.camera)
        for offset, place in self._places(state, poses[-1]):
            unseen = coverage.unobstructed(place.position) & ~coverage.seen
            for turn in self.HEADINGS_DEG:
                new = int(np.count_nonzero(unseen & coverage.in_frame(place.turned(turn), env.observation.camera)))
                if new > most:
                    best = turn_then_move(poses[-1], turn, offset)
                    most = new
        searched[path] = best, most / len(coverage.points)
        return searched[path]

    def _places(self, state: QuestionState, start: CameraPose) -> Iterator[tuple[np.ndarray, CameraPose]]:
        """The (3,) offset of each move, and the pose at which it ends, with the heading of `start`; nearest first."""
        yield np.zeros(3), start
        for distance in self.DISTANCES_M if state.rules.translation else ():
            for direction in self.DIRECTIONS_DEG:
                heading = start.turned(direction)
                outcome = state.environment.outcome(CameraAction(direction, forward_meters=distance), start)
                yield distance * heading.forward, start.at(outcome.pose.position)


def turn_then_move(pose: CameraPose, turn_deg: float, offset: np.ndarray) -> CameraAction:
    """The action that turns by `turn_deg`, then moves by a (3,) horizontal `offset` in world metres."""
    turned = pose.turned(turn_deg)
    forward = float(np.clip(offset @ turned.forward, -MOVE_LIMIT_M, MOVE_LIMIT_M))
    left = float(np.clip(offset @ turned.left, -MOVE_LIMIT_M, MOVE_LIMIT_M))
    return CameraAction(turn_deg, round(forward, 3), round(left, 3))


def way_to_truth(env: ExplorationEnv, question: Question) -> list[CameraAction]:
    """The moves to the pose that is a question's truth: to its height, then the shortest free path, or SceneError."""
    pose = env.observation.pose
    goal = CameraPose.of_text(question.ground_truth or "")
    rise_m = goal.z_m - pose.z_m
    levels = math.ceil(abs(rise_m) / HEIGHT_LIMIT_M - 1e-6)  # up or down first, then level
    path = [CameraAction(z_delta_meters=round(rise_m / max(levels, 1), 3))] * levels
    pose = replace(pose, z_m=goal.z_m)
    places = Paths(env.scene, pose.position, MOVE_LIMIT_M - 0.01).to(goal.position)
    if places is None:
        raise SceneError(f"{env.scene.name}: no free path leads from the start of question {question.id} to its pose")
    for place in places:
        action = turn_then_move(pose, pose.turn_to(goal), place - pose.position)
        path.append(replace(action, pitch_angle_degrees=goal.pitch_deg - pose.pitch_deg))
        pose = goal.at(place)
    return path


class ShowNeeded(GreedyCoverage):
    """Shows every object that the question needs as large as `failures` counts as seen well, and whole if it can. Each
    move goes to the pose, of those that GreedyCoverage tries, that shows most of what is missing by the depth of the
    scan: it moves only for what no turn in place shows, and no farther than it must; of equally good turns, those by
    quarters win. If none shows any of it, or the question names no object with a known box, it shows new surface
    instead. The path ends when all is shown, or no move helps. To a question whose truth is a pose, it goes there."""

    HEADINGS_DEG = tuple(sorted(GreedyCoverage.HEADINGS_DEG, key=lambda degrees: (degrees % 90 > 0, abs(degrees))))

    def begin(self, state: QuestionState) -> None:
        """Find the path, which shortens the episode; raises SceneError if the scan's boxes are not known."""
        env = state.environment
        question = state.question
        if question.kind.judges_camera:
            way = way_to_truth(env, question)
            state.shorten([Decision(action) for action in way[: state.steps]], "")
            return
        boxes = env.library.boxes_of(question)
        needed = needed_for(question.question, question.options, boxes)
        places = [[place for place, box in enumerate(boxes) if box in category.boxes] for category in needed]
        objects = NeededObjects(env, geometry_of(boxes), needed, places, np.zeros(len(boxes)))
        path = list[Decision]()
        poses = [env.observation.pose]
        objects.best[:] = objects.values(poses[0])
        while len(path) < state.steps:
            move = self._next(state, objects, poses)
            if move is None:
                break
            outcome = env.outcome(move, poses[-1])
            path.append(Decision(move, outcome=outcome))
            poses.append(outcome.pose)
            np.maximum(objects.best, objects.values(outcome.pose), out=objects.best)
        missing = objects.not_well(poses)
        if missing:
            log.info("[%s] the path does not show well: %s", state.label, missing)
        state.shorten(path, missing)

    next_move = Mover.next_move

    def _next(self, state: QuestionState, objects: "NeededObjects", poses: Sequence[CameraPose]) -> CameraAction | None:
        """The move that shows most of what is missing, or else new surface; None if none is needed or helps."""
        best = CameraAction()
        most = LEAST_GAIN
        nearest_m = np.inf
        least = [values[-1] for values in objects.needed_of(objects.best)]
        for offset, place in self._places(state, poses[-1]) if min(least, default=1) < 1 else ():
            away_m = float(np.linalg.norm(offset))
            if away_m > nearest_m + 0.01:
                break
            for turn in self.HEADINGS_DEG if objects.in_sight(place.position) else ():
                gain = objects.gain(place.turned(turn))
                if gain > most + 1e-9:
                    best = turn_then_move(poses[-1], turn, offset)
                    most = gain
                    nearest_m = away_m
        if most > LEAST_GAIN:
            return best
        if least and min(least) >= CUT:
            return None
        action, share = self._to_new_surface(state, poses)
        return action if share >= NEW_SURFACE else None


@dataclass(frozen=True, eq=False)
class NeededObjects:
    """How well the views so far show the objects that a question needs. An object counts 1 if a view shows it whole, at
    enough pixels to see it well, CUT of that if the edge of the view cuts it, and less at fewer pixels."""

    env: ExplorationEnv  # whose scan may hide them, and whose camera draws the views
    boxes: Boxes  # all K of the scan
    needed: Sequence[Needed]  # the categories of the question
    places: Sequence[Sequence[int]]  # of each category, the places of its objects in `boxes`
    best: np.ndarray  # (K,) the most that each box has counted so far

    def needed_of(self, values: np.ndarray) -> list[list[float]]:
        """For each category, the values (K,) of as many objects as are needed, largest first."""
        return [
            sorted(values[places].tolist(), reverse=True)[: category.enough]
            for category, places in zip(self.needed, self.places, strict=True)
        ]

    def gain(self, pose: CameraPose) -> float:
        """How much more the objects count with a view from a pose."""
        before = self.needed_of(self.best)
        after = self.needed_of(np.maximum(self.best, self.values(pose)))
        return sum(sum(more) - sum(less) for more, less in zip(after, before, strict=True))

    def in_sight(self, position: np.ndarray) -> bool:
        """Whether something that could count more may be seen from a (3,) position, by rays to 27 points in its box."""
        for place in (place for place in chain(*self.places) if self.best[place] < 1):
            halves = self.boxes.halves[place]
            points = self.boxes.centers[place] + (GRID * halves) @ self.boxes.axes[place]
            distances = np.maximum(np.linalg.norm(points - position, axis=1), 1e-9)
            hits = self.env.scene.cast(np.tile(position, (len(GRID), 1)), (points - position) / distances[:, None])
            if (hits >= distances - np.linalg.norm(halves) - MARGIN_M).any():
                return True
        return False

    def values(self, pose: CameraPose) -> np.ndarray:
        """(K,) how much each needed object counts in a view; 0 for all if it shows none that could count more."""
        values = np.zeros(len(self.boxes))
        camera = self.env.observation.camera
        for place in chain(*self.places):
            window = window_of(self.boxes.corners(place), pose, camera)
            if window:
                rows, columns = window
                whole = rows.start > 0 and columns.start > 0
                whole = whole and rows.stop < camera.height and columns.stop < camera.width
                values[place] = 1 if whole else CUT
        if (values > self.best).any():
            pixels = object_pixels(self.env.scene, pose, camera, self.boxes, SEARCH_PX)
            return values * np.minimum(pixels / enough_pixels(camera.width, camera.height), 1)
        return np.zeros(len(self.boxes))

    def not_well(self, poses: Sequence[CameraPose]) -> str:
        """What views from these poses do not show well, in words, by their full number of pixels."""
        camera = self.env.observation.camera
        pixels = [object_pixels(self.env.scene, pose, camera, self.boxes) for pose in poses if self.needed]
        enough = enough_pixels(camera.width, camera.height)
        missing = list[str]()
        for category, places in zip(self.needed, self.places, strict=True):
            counts = tuple(tuple(int(of_view[place]) for of_view in pixels) for place in places)
            seen = SeenObjects(category.category, category.enough, counts)
            if seen.most_pixels < enough:
                missing.append(seen.in_words)
        return ", ".join(missing)


class RecordedMoves(Mover):
    """Takes each question along the poses that it had in the run of a folder, as recorded there. Sample k of
    a question repeats sample k, or the last one that the run has."""

    def __init__(
        self, folder: Path, views: Mapping[str, Any], questions: Sequence[Question], samples: int, steps: int
    ) -> None:
        """The moves for `questions`, as many times as `samples`, at most `steps` of each; `views` are the settings that
        decide views. Raises RunError if it is damaged, SettingError for no run, other views or unfinished questions."""
        if not (folder / "run.json").is_file():
            raise SettingError(f"{folder} is not a run folder: it has no run.json", setting="moves_of")
        reader = RunReader(folder)
        facts = reader.facts
        recorded = reader.questions
        others = [name for name, value in views.items() if value != facts.setting(name)]
        if others:
            theirs = ", ".join(f"{name} {as_words(facts.setting(name))}" for name in others)
            raise SettingError(f"{folder} has drawn its views with other settings: {theirs}", setting="moves_of")
        self._folder = folder
        self._samples = facts.samples
        self._numbers = {question.id: number for number, question in enumerate(recorded, start=1)}
        self._rows = {row.episode: row for row in reader.rows}
        identities = {(question.id, question.scene, question.question) for question in recorded}
        for question in questions:
            if (question.id, question.scene, question.question) not in identities:
                raise SettingError(f"{folder} has not asked question {question.id}: ask its own", setting="moves_of")
            rows = [self._rows.get(self._episode(question, sample)) for sample in range(1, samples + 1)]
            if not all(row and not row.failed for row in rows):
                why = f"{folder} has not answered question {question.id}: resume that run and retry what failed in it"
                raise SettingError(f"{why}, or leave the question out", setting="moves_of")
        most = max((self._made(question, 1) for question in questions), default=0)
        if most > steps:
            log.info("the run repeats only the first %d of up to %d moves of %s", steps, most, folder)

    def _episode(self, question: Question, sample: int) -> EpisodeId:
        return EpisodeId(self._numbers[question.id], min(sample, self._samples))

    def _made(self, question: Question, sample: int) -> int:
        return self._rows[self._episode(question, sample)].turns - 1

    def moves(self, question: Question, sample: int, most: int) -> int:
        """The number of moves that the episode made, at most `most`."""
        return min(most, self._made(question, sample))

    def begin(self, state: QuestionState) -> None:
        """Read the question's turns; raises SceneError if it was asked in another scan or began at another pose."""
        turns = RunReader(self._folder).turns(self._episode(state.question, state.sample))
        scan = turns[0].scan
        file = state.environment.library.scan_file(state.question)
        other_scan = scan is not None and file is not None and scan.sha256 != file.sha256
        if other_scan or turns[0].pose != state.observations[0].pose:
            seen = f"{self._folder} has seen {state.question.scene_name} in another scan"
            this = file.file if file else "this one"
            theirs = scan.file if scan else "of that run"
            raise SceneError(f"{seen} than {this}: use the scan {theirs}", setting="moves_of")
        state.path = [Decision(turn.action.unanswered, outcome=turn.move) for turn in turns]


def named_mover(name: str, seed: int) -> Mover | None:
    """The mover that `roomscout.runs.movers.who_moves` names; None for the model, and for the moves of another run."""
    entry = GIVEN_PATH if name == "given path" else MOVERS.get(name)
    if entry is None:
        return None
    kind: type[Mover] = resolve_name(entry.target)
    return kind(seed)
