"""Floor plans of a run's scans, and where the camera was on them."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, PngImagePlugin

from roomscout import UpAxis
from roomscout.base.files import replacing
from roomscout.base.pictures import opened
from roomscout.base.text import json_in
from roomscout.data.boxes import KnownBoxes, ObjectBox
from roomscout.envs.library import recorded_scene
from roomscout.rendering.scene import SceneError
from roomscout.rendering.storeys import under
from roomscout.rendering.top_down import CUT_M, CUT_SHARE, MOST_CUT, PLAN_MARGIN_M, PlanArea, plan_view
from roomscout.runs.records import RunFacts, ScanRecord, Turn

LONGEST_PX = 560  # the longer side of a floor plan
_PLACE_KEY = "roomscout.place"
_AROUND_PATH_M = 1.0


@dataclass(frozen=True)
class SavedPlan:
    """The plan of a storey as a PNG file."""

    path: Path
    place: PlanArea  # where it lies
    floor_z_m: float  # the height of the storey's floor


class FloorPlans:
    """The plans of scans' storeys as PNG files in a folder, each drawn once; those of an earlier report are kept."""

    def __init__(self, folder: Path, facts: RunFacts):
        """`facts` are those of the run. The folder is created when it is needed."""
        self.boxes = KnownBoxes()
        self._folder = folder
        self._frame: tuple[UpAxis, float] = (facts.setting("up_axis"), facts.setting("scale"))
        self._plans: dict[str, list[SavedPlan] | SceneError] = {}

    def draw(self, scan: ScanRecord, z_m: float) -> tuple[Path, PlanArea]:
        """The file of the plan of a scan's storey under a height, and where it lies; raises SceneError for a missing,
        changed or unusable scan."""
        key = self._key(scan)
        if key not in self._plans:
            try:
                self._plans[key] = self._saved(key) or self._draw(scan, key)
            except SceneError as error:
                self._plans[key] = error
        plans = self._plans[key]
        if isinstance(plans, SceneError):
            raise SceneError(str(plans))
        plan = under(plans, z_m)
        return plan.path, plan.place

    def _path(self, key: str, number: int) -> Path:
        return self._folder / (f"{key}_{number}.png" if number else f"{key}.png")

    def _draw(self, scan: ScanRecord, key: str) -> list["SavedPlan"]:
        """Draw each storey, the lowest first."""
        scene = recorded_scene(scan, *self._frame)
        self._folder.mkdir(parents=True, exist_ok=True)
        plans = []
        for number, storey in enumerate(scene.storeys):
            image, place = plan_view(scene, LONGEST_PX, storey)
            about = PngImagePlugin.PngInfo()
            floor = {"floor_z_m": storey.floor_z_m, "storeys": len(scene.storeys)}
            about.add_text(_PLACE_KEY, json.dumps(asdict(place) | floor))
            path = self._path(key, number)
            with replacing(path) as draft:
                Image.fromarray(image).save(draft, format="PNG", pnginfo=about)
            plans.append(SavedPlan(path, place, storey.floor_z_m))
        return plans

    def _saved(self, key: str) -> list["SavedPlan"]:
        """The plans of an earlier report; none if one is missing or damaged, and all must be drawn again."""
        plans: list[SavedPlan] = []
        storeys = 1
        while len(plans) < storeys:
            path = self._path(key, len(plans))
            try:
                values = json_in(opened(path.read_bytes()).info[_PLACE_KEY])
                origin = tuple(values["origin"])
                place = PlanArea(values["width"], values["height"], origin, values["metres_per_pixel"])
                plans.append(SavedPlan(path, place, values["floor_z_m"]))
                storeys = values["storeys"]
            except (OSError, ValueError, KeyError, TypeError):
                return []
        return plans

    def _key(self, scan: ScanRecord) -> str:
        """A name that changes with the scan and with how it is drawn."""
        frame = scan.frame.over(*self._frame)
        how = (scan.sha256, *frame, LONGEST_PX, CUT_M, CUT_SHARE, PLAN_MARGIN_M, MOST_CUT)
        return hashlib.sha256(repr(how).encode()).hexdigest()[:16]


def map_of(
    turns: Sequence[Turn],
    place: PlanArea | None,
    boxes: Sequence[ObjectBox],
    hfov_deg: float,
    answers: Sequence[tuple[str, Sequence[float]]] = (),
) -> dict[str, Any]:
    """The top-down map of an answer's turns in pixels of `place`, as JSON values. "poses" has each turn's place and
    heading (degrees counter-clockwise from the right), "stops" the moves that were blocked or clipped: where from,
    where the camera stopped, and where it should have gone. "answers" has the places of the right and of the given
    answer, with a heading (else null). Without a `place`, the path has a plan of its own."""
    points = [(turn.pose.x_m, turn.pose.y_m) for turn in turns]
    if turns[-1].move is not None:
        points.append((turns[-1].move.pose.x_m, turns[-1].move.pose.y_m))
    ends = [(at[0], at[1]) for _, at in answers]
    place = place or _around([*points, *ends, *(corner for box in boxes for corner in box.footprint)])
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
        "answers": [
            [name, *_pixel(place, at[0], at[1]), round(at[3], 1) if len(at) > 3 else None] for name, at in answers
        ],
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
    """(x, y) of a place in an SVG that has the plan as its image, from the outer upper left corner."""
    return [round(value + 0.5, 1) for value in place.pixel(x_m, y_m)]


def _around(points: Sequence[tuple[float, float]]) -> PlanArea:
    """An empty plan with some room around the given points, (x, y) in metres, of which there must be one."""
    lower = np.min(points, axis=0) - _AROUND_PATH_M
    size_m = np.max(points, axis=0) + _AROUND_PATH_M - lower
    metres_per_pixel = float(max(size_m)) / LONGEST_PX
    width, height = (max(1, round(float(side) / metres_per_pixel)) for side in size_m)
    return PlanArea(width, height, (float(lower[0]), float(lower[1])), metres_per_pixel)
