"""Oriented boxes and floor polygons: corners, overlap, distance and area."""

import math
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np

_UNIT_SQUARE = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])


@dataclass(frozen=True)
class OrientedBox:
    """An upright box: `center` and `size` (width, depth, height) in metres, rotated by `yaw_deg` about +z. At yaw 0,
    the width is along +x and the depth along +y. Positive yaw is counter-clockwise seen from above."""

    center: tuple[float, float, float]
    size: tuple[float, float, float]
    yaw_deg: float = 0.0

    @cached_property
    def footprint(self) -> np.ndarray:
        """(4, 2) corners in the floor plan, counter-clockwise, metres."""
        return self.plan_point(_UNIT_SQUARE * self.size[:2])

    @cached_property
    def bottom(self) -> float:
        """Height of the lower face, metres."""
        return self.center[2] - self.size[2] / 2

    @cached_property
    def top(self) -> float:
        """Height of the upper face, metres."""
        return self.center[2] + self.size[2] / 2

    @property
    def plan_center(self) -> np.ndarray:
        """(2,) centre in the floor plan, metres."""
        return np.array(self.center[:2])

    @property
    def directions(self) -> np.ndarray:
        """(3, 3) unit vectors along the width, the depth, to the side from which furniture is used, and the height."""
        return self._rotation.T

    @cached_property
    def _rotation(self) -> np.ndarray:
        """(3, 3) from local to world directions."""
        yaw = math.radians(self.yaw_deg)
        return np.array([[math.cos(yaw), -math.sin(yaw), 0], [math.sin(yaw), math.cos(yaw), 0], [0, 0, 1]])

    def plan_point(self, local: np.ndarray) -> np.ndarray:
        """Local (..., 2) points, relative to the centre, in world coordinates of the floor plan."""
        return np.asarray(local) @ self._rotation[:2, :2].T + self.center[:2]

    def local(self, points: np.ndarray) -> np.ndarray:
        """World points (..., 3) in local coordinates, relative to the centre."""
        return (np.asarray(points) - self.center) @ self._rotation


def rectangles_overlap(one: np.ndarray, many: np.ndarray) -> np.ndarray:
    """(N,) bool: whether rectangle `one` (4, 2) overlaps each of `many` (N, 4, 2); touching is not overlap."""
    # A separating axis test on the edges of both.
    axes_one = np.broadcast_to(one[1:3] - one[0:2], (len(many), 2, 2))
    axes = np.concatenate([axes_one, many[:, 1:3] - many[:, 0:2]], axis=1)
    projected_one = np.einsum("nak,pk->nap", axes, one)
    projected_many = np.einsum("nak,npk->nap", axes, many)
    separated = projected_one.max(2) <= projected_many.min(2) + 1e-9
    separated |= projected_many.max(2) <= projected_one.min(2) + 1e-9
    return ~separated.any(axis=1)


def _points_to_segments(points: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> float:
    """Smallest distance between `points` (P, 2) and the segments from `starts` (S, 2) to `ends` (S, 2)."""
    along = ends - starts
    offset = points[:, None] - starts
    t = np.clip((offset * along).sum(-1) / (along * along).sum(-1), 0, 1)
    return float(np.linalg.norm(offset - t[..., None] * along, axis=-1).min())


def box_distance(a: OrientedBox, b: OrientedBox) -> float:
    """Metres between the closest points of two solid boxes; 0 if they overlap."""
    vertical = max(a.bottom - b.top, b.bottom - a.top, 0.0)
    one = a.footprint
    two = b.footprint
    if rectangles_overlap(one, two[None])[0]:
        return vertical
    horizontal = min(
        _points_to_segments(one, two, np.roll(two, -1, 0)), _points_to_segments(two, one, np.roll(one, -1, 0))
    )
    return math.hypot(horizontal, vertical)  # the gaps are perpendicular


def polygon_area(polygon: np.ndarray) -> float:
    """Area in square metres of a simple polygon (P, 2), by the shoelace formula; positive if counter-clockwise."""
    x, y = polygon.T
    return float((x * np.roll(y, -1) - np.roll(x, -1) * y).sum() / 2)


def points_in_polygon(points: np.ndarray, polygon: np.ndarray) -> np.ndarray:
    """(N,) bool: which of `points` (N, 2) are inside the simple polygon (P, 2), by the even-odd rule."""
    x0, y0 = polygon.T
    x1, y1 = np.roll(polygon, -1, axis=0).T
    x = points[:, :1]
    y = points[:, 1:]
    crosses = (y < y0) != (y < y1)  # false for a horizontal edge, so its divisor does not matter
    x_of_edge = x0 + (y - y0) / np.where(y1 == y0, 1.0, y1 - y0) * (x1 - x0)
    return (crosses & (x < x_of_edge)).sum(axis=1) % 2 == 1


def wrap_deg(angle: np.ndarray) -> np.ndarray:
    """Angles in degrees wrapped to (-180, 180]."""
    return 180.0 - (180.0 - angle) % 360.0


def crossings(origin: np.ndarray, along: np.ndarray, half: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where lines from `origin` (0) to `origin + along` (1), (..., D) each, enter and leave the boxes of half sizes
    `half` (..., D) around 0, (...) each. A line that misses a box enters its last slab after it leaves its first."""
    along = np.where(np.abs(along) < 1e-9, 1e-9, along)
    a = (-half - origin) / along
    b = (half - origin) / along
    near = np.minimum(a, b)
    far = np.maximum(a, b)
    axes = range(along.shape[-1])  # slices of two or three are faster than .max()
    return reduce(np.maximum, [near[..., axis] for axis in axes]), reduce(np.minimum, [far[..., axis] for axis in axes])


def segments_cross(start: np.ndarray, end: np.ndarray, box: OrientedBox) -> np.ndarray:
    """(...) bool: whether each segment from `start` to `end` (..., 3) crosses the box."""
    origin = box.local(start)
    enter, leave = crossings(origin, box.local(end) - origin, np.array(box.size) / 2)
    return (enter < leave) & (leave > 0) & (enter < 1)
