"""Points of the view as models name them, and what the scan has there."""

import math
from collections.abc import Mapping

import numpy as np

from roomscout.agent.actions.space import Key, Place, shown
from roomscout.envs.environment import Observation
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.modalities.modality import Sight
from roomscout.runs.records import SeenPoint

Pixel = tuple[float, float]
"""x from the left edge of the view, y from its top edge."""

_TWO = r'"[" blank [0-9]{1,4} "," blank [0-9]{1,4} blank "]"'
POINT = Key(
    example=[120, 90],
    still=None,
    grammar=f'("null" | {_TWO})',
    schema={"anyOf": [{"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2}, {"type": "null"}]},
)
"""The key of a point, or of none."""


class SeenPlace:
    """The Place of an observation and its sight; `points` notes what of its view was asked for."""

    def __init__(self, observation: Observation, sight: Sight) -> None:
        self.pose: CameraPose = observation.pose
        self.start: CameraPose = observation.start
        self.camera: Intrinsics = observation.camera
        self._sight = sight
        self._points: dict[Pixel, SeenPoint] = {}

    @property
    def points(self) -> tuple[SeenPoint, ...]:
        """The pixels whose surface was asked for, once each."""
        return tuple(self._points.values())

    def surface_at(self, x: float, y: float) -> np.ndarray | None:
        """The point of the scan at a pixel, (3,) world metres; None in a hole."""
        surface = self._sight.surface_at(x, y)
        found = None if surface is None else (float(surface[0]), float(surface[1]), float(surface[2]))
        self._points[x, y] = SeenPoint((x, y), found)
        return surface


def pixel_of(name: str, value: object, place: Place) -> Pixel:
    """The pixel that a model named in `value`; raises ValueError, in words for the model, unless it is in the view."""
    listed = _listed(value)
    numbers = [_number(each) for each in listed or ()]
    if listed is not None and len(listed) == 4 and None not in numbers:
        raise ValueError(f"{name} has four numbers: write [x, y], the middle of what you mean")
    if len(numbers) != 2 or None in numbers:
        raise ValueError(f"{name} must be [x, y] in pixels, not {written(value)}")
    x, y = (float(each) for each in numbers if each is not None)
    size = f"x is from 0 to {place.camera.width} and y from 0 to {place.camera.height}, in pixels"
    if 0 <= x <= 1 and 0 <= y <= 1 and not (x.is_integer() and y.is_integer()):
        raise ValueError(f"{name} {written([x, y])} is a share of the view: {size}")
    if not (0 <= x <= place.camera.width and 0 <= y <= place.camera.height):  # also for NaN
        raise ValueError(f"{name} {written([x, y])} is outside the view: {size}")
    return x, y


def surface_of(pixel: Pixel, place: Place) -> np.ndarray:
    """The point of the scan at a pixel, (3,) world metres; raises ValueError, in words for the model, in a hole."""
    surface = place.surface_at(*pixel)
    if surface is None:
        raise ValueError(f"there is no surface at {written(pixel)}, which is a hole in the scan")
    return surface


def direction_of(pixel: Pixel, place: Place) -> tuple[float, float]:
    """How far to the left of the camera's heading a pixel is, and its angle above the horizon, degrees."""
    ray = place.pose.camera_to_world[:3, :3] @ place.camera.ray(*pixel)
    left = math.degrees(math.atan2(ray @ place.pose.left, ray @ place.pose.forward))
    return left, math.degrees(math.atan2(ray[2], math.hypot(ray[0], ray[1])))


def written(value: object) -> str:
    """A value as `shown`, but short lists of numbers and words in full."""
    if isinstance(value, list | tuple) and 0 < len(value) <= 4 and not any(isinstance(each, list) for each in value):
        return f"[{', '.join(f'{each:g}' if isinstance(each, float) else shown(each) for each in value)}]"
    return shown(value)


def _listed(value: object) -> list[object] | None:
    """What may be the numbers of a point: of a list, of a text such as "120, 80", or of an object with x and y."""
    if isinstance(value, Mapping) and set(value) == {"x", "y"}:
        return [value["x"], value["y"]]
    if isinstance(value, str):
        return list(value.strip().strip("[]()").replace(",", " ").split())
    return value if isinstance(value, list) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
