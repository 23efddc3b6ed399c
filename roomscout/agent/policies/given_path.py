"""The mover of `--given path`: it knows the boxes of the objects that a question needs, and shows them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from roomscout.agent.policies.movers import GreedyCoverage, Move, environment, turn_then_move
from roomscout.agent.state import QuestionState
from roomscout.data.boxes import Needed, needed_for
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.object_boxes import geometry_of
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.scene import Scene
from roomscout.rendering.visibility import MARGIN_M, Boxes, object_pixels, window_of
from roomscout.runs.sights import SeenObjects, enough_pixels

log = logging.getLogger(__name__)

SEARCH_PX = 160
"""The longer side of the depth images by which poses are compared."""
LEAST_GAIN = 0.05
"""A move is worth it from this part of an object on."""
NEW_SURFACE = 0.02
"""A move that shows no object better is worth it from this share of the scan's surface on."""
GRID = np.array(list(product((-0.9, 0.0, 0.9), repeat=3)))
CUT = 0.5
"""What an object counts that is seen well, but cut by the edge of the view."""


class ShowNeeded(GreedyCoverage):
    """Shows every object that the question needs as large as `failures` counts as seen well, and whole if it can.

    Each move goes to the pose, of those that GreedyCoverage tries, that shows most of what is missing by the depth of
    the scan: it moves only for what no turn in place shows, and no farther than it must; of equally good turns, those
    by quarters win. If none shows any of it, or the question names no object with a known box, it shows new surface
    instead. The path ends when all is shown, or no move helps.
    """

    HEADINGS_DEG = tuple(sorted(GreedyCoverage.HEADINGS_DEG, key=lambda degrees: (degrees % 90 > 0, abs(degrees))))

    def __init__(self, seed: int, camera: Intrinsics, translation: bool) -> None:
        super().__init__(seed, camera, translation)
        self._paths: dict[tuple[str, int], list[Move]] = {}

    def begin(self, state: QuestionState) -> None:
        """Find the path, which shortens the episode; raises SceneError if the scan's boxes are not known."""
        env, question, path = environment(state), state.question, list[Move]()
        boxes = env.library.boxes_of(question)
        needed = needed_for(question.question, question.options, boxes)
        places = [[place for place, box in enumerate(boxes) if box in each.boxes] for each in needed]
        shown = NeededObjects(env.scene, geometry_of(boxes), needed, places, self._camera, np.zeros(len(boxes)))
        poses = [env.observation.pose]
        shown.best[:] = shown.values(poses[0])
        while len(path) < state.steps and (action := self._next(env, shown, poses)) is not None:
            outcome = env.outcome(action, poses[-1])
            path.append(Move(action, outcome))
            poses.append(outcome.pose)
            np.maximum(shown.best, shown.values(outcome.pose), out=shown.best)
        self._paths[question.id, state.sample] = path
        if missing := shown.not_well(poses):
            log.info("[%s] the path does not show well: %s", state.label, missing)
        state.shorten(len(path), missing)

    def next_move(self, state: QuestionState) -> Move:
        """The next move of the path."""
        return self._paths[state.question.id, state.sample][state.turn]

    def forget(self, state: QuestionState) -> None:
        """Release the question's path."""
        self._paths.pop((state.question.id, state.sample), None)

    def _next(self, env: ExplorationEnv, shown: "NeededObjects", poses: Sequence[CameraPose]) -> CameraAction | None:
        """The move that shows most of what is missing, or else new surface; None if none is needed or helps."""
        best, most, nearest_m = CameraAction(), LEAST_GAIN, np.inf
        least = [values[-1] for values in shown.needed_of(shown.best)]
        for offset, place in self._places(env, poses[-1]) if min(least, default=1) < 1 else ():
            if (away_m := float(np.linalg.norm(offset))) > nearest_m + 0.01:
                break
            for turn in self.HEADINGS_DEG if shown.in_sight(place.position) else ():
                if (gain := shown.gain(place.turned(turn))) > most + 1e-9:
                    best, most, nearest_m = turn_then_move(poses[-1], turn, offset), gain, away_m
        if most > LEAST_GAIN:
            return best
        if least and min(least) >= CUT:
            return None
        action, share = self._to_new_surface(env, poses)
        return action if share >= NEW_SURFACE else None


@dataclass(frozen=True, eq=False)
class NeededObjects:
    """How well the views so far show the objects that a question needs.

    An object counts 1 if a view shows it whole and at the pixels that are enough to see it well, CUT of that if the
    edge of the view cuts it, and less for fewer pixels. `best` (K,) has the most that each of the scan's `boxes` has
    counted, and `places` has, for each of `needed`, the places of its objects there.
    """

    scene: Scene
    boxes: Boxes
    needed: Sequence[Needed]
    places: Sequence[Sequence[int]]
    camera: Intrinsics
    best: np.ndarray

    def needed_of(self, values: np.ndarray) -> list[list[float]]:
        """For each category, the values (K,) of as many objects as are needed, largest first."""
        return [
            sorted(values[places].tolist(), reverse=True)[: each.enough]
            for each, places in zip(self.needed, self.places, strict=True)
        ]

    def gain(self, pose: CameraPose) -> float:
        """How much more the objects count with a view from a pose."""
        with_view = np.maximum(self.best, self.values(pose))
        return sum(
            sum(after) - sum(before) for after, before in zip(*map(self.needed_of, (with_view, self.best)), strict=True)
        )

    def in_sight(self, position: np.ndarray) -> bool:
        """Whether something that could count more may be seen from a (3,) position, by rays to 27 points in its box."""
        for place in (place for places in self.places for place in places if self.best[place] < 1):
            halves = self.boxes.halves[place]
            points = self.boxes.centers[place] + (GRID * halves) @ self.boxes.axes[place]
            distances = np.maximum(np.linalg.norm(points - position, axis=1), 1e-9)
            hits = self.scene.cast(np.tile(position, (len(GRID), 1)), (points - position) / distances[:, None])
            if (hits >= distances - np.linalg.norm(halves) - MARGIN_M).any():
                return True
        return False

    def values(self, pose: CameraPose) -> np.ndarray:
        """(K,) how much each needed object counts in a view; 0 for all if it shows none that could count more."""
        values, camera = np.zeros(len(self.boxes)), self.camera
        for place in (place for places in self.places for place in places):
            if window := window_of(self.boxes.corners(place), pose, camera):
                (top, bottom), (left, right) = ((side.start, side.stop) for side in window)
                whole = top > 0 and left > 0 and bottom < camera.height and right < camera.width
                values[place] = 1 if whole else CUT
        if (values > self.best).any():
            pixels = object_pixels(self.scene, pose, camera, self.boxes, SEARCH_PX)
            return values * np.minimum(pixels / enough_pixels(camera.width, camera.height), 1)
        return np.zeros(len(self.boxes))

    def not_well(self, poses: Sequence[CameraPose]) -> str:
        """What views from these poses do not show well, in words, by their full number of pixels."""
        pixels = [object_pixels(self.scene, pose, self.camera, self.boxes) for pose in poses if self.needed]
        enough, found = enough_pixels(self.camera.width, self.camera.height), list[SeenObjects]()
        for each, places in zip(self.needed, self.places, strict=True):
            counts = tuple(tuple(int(of_view[place]) for of_view in pixels) for place in places)
            found.append(SeenObjects(each.category, each.enough, counts))
        return ", ".join(each.in_words for each in found if each.most_pixels < enough)
