"""Points of the view as models name them, and what the scan has there."""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from roomscout.agent.actions.space import Key, Place, shown
from roomscout.envs.environment import Observation
from roomscout.rendering.modalities.marks import MARKS, marks_of
from roomscout.rendering.modalities.modality import Sight
from roomscout.runs.records import SeenPoint

Pixel = tuple[float, float]  # x from the left edge of the view, y from its top edge
ONE = '("[" blank [0-9]{1,4} "," blank [0-9]{1,4} blank "]" | [1-9] [0-9]?)'
"""A point as GBNF: two coordinates, or the number of a mark."""
ONE_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, {"type": "integer"}]
}
POINT = Key([120, 90], None, f'("null" | {ONE})', {"anyOf": [*ONE_SCHEMA["anyOf"], {"type": "null"}]})
MARKED = "Where a point is asked for, you may write the number of a mark instead, such as 3."


class SeenPlace:
    """The Place of an observation and its sight; `seen` notes which pixels were looked up."""

    def __init__(self, observation: Observation, sight: Sight) -> None:
        self.pose = observation.pose
        self.start = observation.start
        self.camera = observation.camera
        self.seen: dict[Pixel, SeenPoint] = {}
        self._sight = sight
        self._marked = any(shot.name == MARKS.name for shot in observation.images)

    def surface_at(self, x: float, y: float) -> np.ndarray | None:
        """The point of the scan at a pixel, (3,) world metres; None in a hole."""
        surface = self._sight.surface_at(x, y)
        recorded = None if surface is None else (float(surface[0]), float(surface[1]), float(surface[2]))
        self.seen.setdefault((x, y), SeenPoint((x, y), recorded))
        return surface

    def pixel_of_mark(self, number: int) -> Pixel | None:
        """The pixel of a mark; None if the images of this turn have no such mark."""
        if pixel := marks_of(self._sight).get(number) if self._marked else None:
            self.surface_at(*pixel)
            self.seen[pixel] = replace(self.seen[pixel], mark=number)
        return pixel


def pixel_of(name: str, value: object, place: Place) -> Pixel:
    """The pixel that a model named, also by a mark; raises ValueError, in words for it, unless that is in the view."""
    numbers = _numbers(value)
    camera = place.camera
    if len(numbers) == 1:
        pixel = place.pixel_of_mark(int(numbers[0])) if numbers[0].is_integer() else None
        if pixel is None:
            raise ValueError(f"{name}: the view has no {written(value)}; a point is [x, y] in pixels")
        return pixel
    if len(numbers) == 4:
        raise ValueError(f"{name} has four numbers: write [x, y], the middle of what you mean")
    if len(numbers) != 2:
        raise ValueError(f"{name} must be [x, y] in pixels, not {written(value)}")
    x, y = numbers
    share = 0 <= x <= 1 and 0 <= y <= 1 and not (x.is_integer() and y.is_integer())
    if share or not (0 <= x <= camera.width and 0 <= y <= camera.height):  # also for NaN
        size = f"x is from 0 to {camera.width} and y from 0 to {camera.height}, in pixels"
        raise ValueError(f"{name} {written(value)} is {'a share of' if share else 'outside'} the view: {size}")
    return x, y


def hole_at(pixel: Pixel) -> str:
    """That there is nothing to go to or to measure, in words for the model."""
    return f"there is no surface at {written([*pixel])}, which is a hole in the scan"


def direction_of(pixel: Pixel, place: Place) -> tuple[float, float]:
    """How far to the left of the camera's heading a pixel is, and its angle above the horizon, degrees."""
    ray = place.pose.camera_to_world[:3, :3] @ place.camera.ray(*pixel)
    left = math.degrees(math.atan2(ray @ place.pose.left, ray @ place.pose.forward))
    return left, math.degrees(math.atan2(ray[2], math.hypot(ray[0], ray[1])))


def written(value: object) -> str:
    """A point as a model reads it, or anything else as `shown`."""
    numbers = _numbers(value)
    if len(numbers) == 1:
        return f"mark {numbers[0]:g}"
    return f"[{', '.join(f'{number:g}' for number in numbers)}]" if 1 < len(numbers) <= 4 else shown(value)


def _numbers(value: Any) -> list[float]:
    """A number, those of a list, of an object with x and y or of a text such as "120, 80"; none of anything else."""
    if isinstance(value, dict) and set(value) == {"x", "y"}:
        value = [value["x"], value["y"]]
    if isinstance(value, str):
        value = value.strip().strip("[]()").replace(",", " ").split()
    listed = value if isinstance(value, list) else [value]
    try:
        if all(type(number) in (int, float, str) for number in listed):
            return [float(number) for number in listed]
        return []
    except (ValueError, OverflowError):
        return []
