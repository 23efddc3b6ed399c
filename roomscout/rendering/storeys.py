"""The storeys of a scan, and the space that its building takes up: where its floors are, and above which of them a
camera is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np

from roomscout.rendering.geometry import BOUNDS_PERCENTILES

if TYPE_CHECKING:
    from roomscout.rendering.scene import Scene

ROUNDED_M = 1e-4  # of heights in single precision
AIR_M = 1.95  # 2 m less noise, above a floor on which a person can stand; storeys are at least as far apart
FLOOR_TOLERANCE_M = 0.25  # for a height to count as floor; includes steps, rugs and thresholds, but not beds or tables
SLAB_M = 0.06  # a floor's upper side is this far above its lower side at least; noise of scans is less
LEAST_M2, LEAST_SHARE = 2.0, 0.05  # the least floor of a storey, and as a share of the largest floor
ABOVE_M = 1.5  # walls or furniture rise this far above a storey that has no ceiling; above a roof is nothing
COLUMNS = 64  # side of the grid of vertical lines on which floors are searched for
FLOOR_RAYS = 32  # side of the grid of downward rays that search for the lowest floor
LOWER_SHARE = 0.25  # a floor of this share of what stands on it is the floor: beds and tables may cover most of it
LEVEL_M, LEVEL_SHARE = 0.6, 0.5  # of all heights so near to that of a floor, this share is its own: slopes are none
LAWN_M = 20.0  # the shortest side of a scan that has a lawn
CELL_M = 5.0  # side of the cells in which the ground is found
# Of a scan with a lawn, a building covers less than BUILT_SHARE, and what rises BUILT_M covers DENSE_SHARE of that.
BUILT_M, BUILT_SHARE, DENSE_SHARE, BUILT_MARGIN_M = 1.0, 0.25, 0.4, 0.5


class HasFloor(Protocol):
    """What has a floor."""

    @property
    def floor_z_m(self) -> float:
        """The height of the floor, metres."""


Floor = TypeVar("Floor", bound=HasFloor)


@dataclass(frozen=True)
class Bounds:
    """A box, metres in the scan's coordinates: `lower` and `upper` are (3,) float64."""

    lower: np.ndarray
    upper: np.ndarray

    @classmethod
    def around(cls, points: np.ndarray) -> "Bounds":
        """From the 2nd to the 98th percentile of points (K, 3) along each axis."""
        lower, upper = np.percentile(points.astype(np.float64), BOUNDS_PERCENTILES, axis=0)
        return cls(lower, upper)

    @property
    def middle(self) -> np.ndarray:
        """(3,) float64, metres."""
        return (self.lower + self.upper) / 2

    @property
    def extent(self) -> np.ndarray:
        """(3,) float64, metres."""
        return self.upper - self.lower


@dataclass(frozen=True)
class Storey:
    """A floor, and the space above it up to the next one."""

    floor_z_m: float  # the height of the floor's upper side
    floor_m2: float  # how much of it has air above
    bounds: Bounds  # its walls and ceiling; from the lower side of the floor for the only storey
    points: np.ndarray  # (K, 3) of `Scene.space`, metres


def under(floors: Sequence[Floor], z_m: float) -> Floor:
    """Of floors, the lowest first, the highest that is below a height or at it, or the lowest."""
    below = [floor for floor in floors if floor.floor_z_m <= z_m + ROUNDED_M]
    return below[-1] if below else floors[0]


def without_ground(points: np.ndarray) -> np.ndarray:
    """Points (K, 3) of a scan's surface without those of a lawn around a building: of what is larger than a room, only
    a small part is built, and that part densely."""
    whole = Bounds.around(points)
    if whole.extent[:2].min() < LAWN_M:
        return points
    cells = np.floor((points[:, :2] - whole.lower[:2]) / CELL_M).astype(np.int64)
    _, cell = np.unique(cells, axis=0, return_inverse=True)
    lowest = np.full(cell.max() + 1, np.inf)
    np.minimum.at(lowest, cell, points[:, 2])  # of the ground there, which may slope
    built = points[points[:, 2] - lowest[cell] > BUILT_M]
    if not len(built):
        return points
    building = Bounds.around(built)
    if building.extent[:2].prod() >= BUILT_SHARE * whole.extent[:2].prod():
        return points
    square_metres = np.unique(np.floor(built[:, :2]), axis=0)
    covered = ((square_metres >= building.lower[:2] - 1) & (square_metres <= building.upper[:2])).all(axis=1).sum()
    if covered < DENSE_SHARE * building.extent[:2].prod():
        return points
    lower = building.lower[:2] - BUILT_MARGIN_M
    upper = building.upper[:2] + BUILT_MARGIN_M
    return points[((points[:, :2] > lower) & (points[:, :2] < upper)).all(axis=1)]


def storeys_of(scene: "Scene") -> tuple[Storey, ...]:
    """The storeys of a scene, the lowest first; at least one."""
    heights, air_m, cell_m2 = _standing_room(scene)
    most = max((m2 for _, m2 in _floors(heights, cell_m2)), default=0.0)
    floors = _floors(heights[np.isfinite(air_m)], cell_m2, most)
    # A floor without a ceiling above others: the upper side of a roof or a ceiling is none.
    open_ = heights[~np.isfinite(air_m) & (heights + ABOVE_M <= scene.bounds.upper[2])]
    if floors:
        open_ = open_[open_ >= floors[-1][0] + AIR_M]
        floors += _floors(open_, cell_m2, most)
    if len(floors) < 2:
        return (_only_storey(scene, floors, heights, cell_m2),)
    floors = [(z_m, float((np.abs(heights - z_m) <= FLOOR_TOLERANCE_M).sum() * cell_m2)) for z_m, _ in floors]
    tops = [z_m for z_m, _ in floors[1:]] + [float(scene.bounds.upper[2])]
    return tuple(_storey_between(scene, z_m, top, m2) for (z_m, m2), top in zip(floors, tops, strict=True))


def _standing_room(scene: "Scene") -> tuple[np.ndarray, np.ndarray, float]:
    """The heights (K,) at which vertical lines find a surface with AIR_M of air, the metres of air (K,), inf under
    the sky, and the square metres for which each line stands."""
    bounds = scene.bounds
    cell = bounds.extent[:2] / COLUMNS
    x = bounds.lower[0] + (np.arange(COLUMNS) + 0.5) * cell[0]
    y = bounds.lower[1] + (np.arange(COLUMNS) + 0.5) * cell[1]
    columns, surfaces = scene.heights_at(np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2))
    inside = np.abs(surfaces - bounds.middle[2]) <= bounds.extent[2] / 2 + FLOOR_TOLERANCE_M
    columns = columns[inside]
    surfaces = surfaces[inside]
    order = np.lexsort((surfaces, columns))
    columns = columns[order]
    surfaces = surfaces[order]
    air_m = np.diff(surfaces, append=np.inf)
    air_m[:-1][np.diff(columns) != 0] = np.inf  # the highest surface of a line
    standing = air_m >= AIR_M
    return surfaces[standing], air_m[standing], float(cell.prod())


def _floors(heights: np.ndarray, cell_m2: float, most: float = 0.0) -> list[tuple[float, float]]:
    """The height and the square metres of each floor among heights (K,), the lowest first: the largest, or what it
    stands on, then those at least AIR_M from all larger ones, level, and of LEAST_M2 and LEAST_SHARE of the largest, or
    of `most` square metres."""
    heights = np.sort(heights)
    floors: list[tuple[float, float]] = []
    while len(heights):
        counts = np.searchsorted(heights, heights + FLOOR_TOLERANCE_M, side="right") - np.arange(len(heights))
        largest = int(counts.argmax())
        may_carry_it = (heights > heights[largest] - AIR_M) & (counts >= LOWER_SHARE * counts[largest])
        first = int(may_carry_it.argmax())
        first += int(counts[first : first + counts[first]].argmax())
        z_m = float(np.median(heights[first : first + counts[first]]))
        m2 = float(counts[first] * cell_m2)
        most = max(most, m2)
        if m2 < max(LEAST_M2, LEAST_SHARE * most):
            break
        if counts[first] >= LEVEL_SHARE * (np.abs(heights - z_m) <= LEVEL_M).sum():
            floors.append((z_m, m2))
        heights = heights[np.abs(heights - z_m) >= AIR_M]
    return sorted(floors)


def _only_storey(scene: "Scene", floors: list[tuple[float, float]], heights: np.ndarray, cell_m2: float) -> Storey:
    """The storey of a scene with one floor at most that has a ceiling: that floor, or the lowest height at which there
    is floor. Of either, the upper side if it is clearly higher."""
    lowest = _lowest_floor(scene)
    if not floors:
        floors = _floors(heights[np.abs(heights - lowest) <= FLOOR_TOLERANCE_M + SLAB_M], cell_m2)
    z_m, m2 = floors[0] if floors else (lowest, 0.0)
    if abs(z_m - lowest) <= SLAB_M:
        z_m = lowest
    return Storey(z_m, m2, scene.bounds, scene.space)


def _lowest_floor(scene: "Scene") -> float:
    """The lower bound, unless no ray down from half the room's height hits it and most hit one other height, with
    artefacts of a mirror or a stairwell below."""
    bounds = scene.bounds
    x = np.linspace(bounds.lower[0], bounds.upper[0], FLOOR_RAYS)
    y = np.linspace(bounds.lower[1], bounds.upper[1], FLOOR_RAYS)
    origins = np.stack(np.broadcast_arrays(x[:, None], y, bounds.middle[2]), axis=-1).reshape(-1, 3)
    below = scene.heights_below(origins)
    lowest = float(bounds.lower[2])
    if (np.abs(below - lowest) <= FLOOR_TOLERANCE_M).any():
        return lowest
    floor = float(np.median(below))  # -inf if most rays miss the scan
    is_level = np.isfinite(floor) and (np.abs(below - floor) <= FLOOR_TOLERANCE_M).mean() > 0.5
    return floor if is_level else lowest


def _storey_between(scene: "Scene", floor_z_m: float, top_z_m: float, floor_m2: float) -> Storey:
    heights = scene.space[:, 2]
    points = scene.space[(heights > floor_z_m + FLOOR_TOLERANCE_M) & (heights < top_z_m)]  # no roofs beside the floor
    if not len(points):
        points = scene.space
    around = Bounds.around(points)
    lower = np.append(around.lower[:2], floor_z_m)
    return Storey(floor_z_m, floor_m2, Bounds(lower, np.append(around.upper[:2], top_z_m)), points)
