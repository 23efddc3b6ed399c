"""Floor plans of a run's scans, and where the camera was on them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image, PngImagePlugin

from roomscout import UpAxis
from roomscout.analysis.scans import recorded_scene
from roomscout.base.files import replacing
from roomscout.base.pictures import opened
from roomscout.base.text import json_in
from roomscout.data.boxes import KnownBoxes, ObjectBox
from roomscout.rendering.scene import SceneError
from roomscout.rendering.top_down import CUT_M, CUT_SHARE, MOST_CUT, PLAN_MARGIN_M, plan_view
from roomscout.runs.records import ScanRecord, Turn

LONGEST_PX = 560
"""The longer side of a floor plan."""
_PLACE_KEY = "roomscout.place"
_AROUND_PATH_M = 1.0


@dataclass(frozen=True)
class PlanArea:
    """Where a floor plan lies: its size in pixels, the centre of its lower left pixel in world metres, its scale."""

    width: int
    height: int
    origin: tuple[float, float]
    metres_per_pixel: float

    def pixel(self, x_m: float, y_m: float) -> tuple[float, float]:
        """(x, y) of a place in an SVG that has the plan as its image, from the outer upper left corner."""
        x = (x_m - self.origin[0]) / self.metres_per_pixel + 0.5
        return x, self.height - 0.5 - (y_m - self.origin[1]) / self.metres_per_pixel

    @classmethod
    def around(cls, points: Sequence[tuple[float, float]]) -> "PlanArea":
        """An empty plan with some room around the given points, (x, y) in metres, of which there must be one."""
        xs, ys = zip(*points, strict=True)
        left = min(xs) - _AROUND_PATH_M
        lower = min(ys) - _AROUND_PATH_M
        width_m = max(xs) + _AROUND_PATH_M - left
        height_m = max(ys) + _AROUND_PATH_M - lower
        metres_per_pixel = max(width_m, height_m) / LONGEST_PX
        width = max(1, round(width_m / metres_per_pixel))
        height = max(1, round(height_m / metres_per_pixel))
        return cls(width, height, (left, lower), metres_per_pixel)


class FloorPlans:
    """The floor plans of scans as PNG files in a folder, each drawn once; those of an earlier report are kept."""

    def __init__(self, folder: Path, up_axis: UpAxis = "auto", scale: float = 1.0):
        """`up_axis` and `scale` are those of the run. The folder is created when it is needed."""
        self._folder = folder
        self._up_axis = up_axis
        self._scale = scale
        self._drawn: dict[Path, PlanArea] = {}
        self._failed: dict[str, str] = {}
        self._boxes = KnownBoxes()

    def draw(self, scan: ScanRecord) -> tuple[Path, PlanArea]:
        """The file of a scan's plan, and where it lies; raises SceneError for a missing, changed or unusable scan."""
        path = self._folder / f"{self._key(scan)}.png"
        if path in self._drawn:
            return path, self._drawn[path]
        if scan.sha256 in self._failed:
            raise SceneError(self._failed[scan.sha256])
        try:
            self._drawn[path] = _saved_area(path) or self._draw(scan, path)
        except SceneError as error:
            self._failed[scan.sha256] = str(error)
            raise
        return path, self._drawn[path]

    def _draw(self, scan: ScanRecord, path: Path) -> PlanArea:
        plan = plan_view(recorded_scene(scan, self._up_axis, self._scale), LONGEST_PX)
        height, width = plan.image.shape[:2]
        place = PlanArea(width, height, plan.origin, plan.metres_per_pixel)
        about = PngImagePlugin.PngInfo()
        about.add_text(_PLACE_KEY, json.dumps(asdict(place)))
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as draft:
            Image.fromarray(plan.image).save(draft, format="PNG", pnginfo=about)
        return place

    def _key(self, scan: ScanRecord) -> str:
        """A name that changes with the scan and with how it is drawn."""
        frame = scan.frame.over(self._up_axis, self._scale)
        how = (scan.sha256, *frame, LONGEST_PX, CUT_M, CUT_SHARE, PLAN_MARGIN_M, MOST_CUT)
        return hashlib.sha256(repr(how).encode()).hexdigest()[:16]

    def boxes(self, scan: ScanRecord, scene: str) -> tuple[ObjectBox, ...]:
        """The known boxes of a scan's objects; raises BoxError if their file is damaged."""
        return self._boxes.of(Path(scan.file), scene)


def _saved_area(path: Path) -> PlanArea | None:
    """Where a plan lies that was drawn before; None if it is missing or damaged, and must be drawn again."""
    try:
        values = json_in(opened(path.read_bytes()).info[_PLACE_KEY])
        return PlanArea(values["width"], values["height"], tuple(values["origin"]), values["metres_per_pixel"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def map_of(
    turns: Sequence[Turn], place: PlanArea | None, boxes: Sequence[ObjectBox], hfov_deg: float
) -> dict[str, Any] | None:
    """The top-down map of an answer's turns in pixels of `place`, as JSON values; None without turns. "poses" has each
    turn's place and heading (degrees counter-clockwise from the right), "stops" the moves that were blocked or clipped:
    where from, where the camera stopped, and where it should have gone. "cone" is the length of a view's cone. Without
    a `place`, the path has a plan of its own."""
    if not turns:
        return None
    points = [(turn.pose.x_m, turn.pose.y_m) for turn in turns]
    if turns[-1].move is not None:
        points.append((turns[-1].move.pose.x_m, turns[-1].move.pose.y_m))
    place = place or PlanArea.around([*points, *(corner for box in boxes for corner in box.footprint)])
    return {
        "width": place.width,
        "height": place.height,
        "metre": round(1 / place.metres_per_pixel, 1),
        "hfov": round(hfov_deg, 1),
        "path": [_pixel(place, *point) for point in points],
        "poses": [
            [turn.turn, *_pixel(place, turn.pose.x_m, turn.pose.y_m), round(turn.pose.heading_deg, 1)] for turn in turns
        ],
        "stops": [_stop(turn, place) for turn in turns if turn.stopped],
        "boxes": [[box.category, [_pixel(place, *corner) for corner in box.footprint]] for box in boxes],
    }


def _stop(turn: Turn, place: PlanArea) -> list[Any]:
    """A move that did not reach its goal: its turn, whether a surface blocked it, where it stopped, and its goal."""
    move = turn.move
    assert move is not None
    goal = turn.action.goal(turn.pose)
    end = _pixel(place, move.pose.x_m, move.pose.y_m)
    return [turn.turn, move.blocked, *end, *_pixel(place, goal.x_m, goal.y_m)]


def _pixel(place: PlanArea, x_m: float, y_m: float) -> list[float]:
    return [round(value, 1) for value in place.pixel(x_m, y_m)]
