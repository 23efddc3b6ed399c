"""Places furniture in a floor plan without overlap: at walls, in the open, on top of other furniture."""

from dataclasses import dataclass, field

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture import Model, draw
from roomscout.rooms.geometry import OrientedBox, box_distance, points_in_polygon, rectangles_overlap
from roomscout.rooms.shapes import Shape

MAX_TRIES = 60
MAX_REDRAWS = 8  # attempts to draw a model that fits on top of another
APART_M = 0.12  # gap between instances of a category, so that a visitor counts them separately
PILLOWS_APART_M = 0.02
# Pairs of categories that people confuse; a room contains at most one of each pair.
LOOKALIKES = (("chair", "armchair"), ("table", "desk"), ("tv", "monitor"), ("nightstand", "cabinet"))
_RIVALS = {name: {b if a == name else a for a, b in LOOKALIKES if name in (a, b)} for name in sum(LOOKALIKES, ())}


@dataclass(frozen=True, eq=False)
class FloorPlan:
    """An empty room, in metres: the `corners` (P, 2) of a counter-clockwise polygon with axis-parallel edges, and wall
    `height`. `notches` are the parts of the bounding rectangle outside the room; a rectangular room has none."""

    corners: np.ndarray
    height: float
    notches: tuple[OrientedBox, ...] = ()

    @property
    def middle(self) -> np.ndarray:
        """(2,) centre of the bounding rectangle."""
        return (self.corners.min(axis=0) + self.corners.max(axis=0)) / 2


@dataclass(frozen=True)
class RoomObject:
    """A piece of furniture."""

    category: str  # its kind in words, such as "trash can"
    box: OrientedBox  # its tight bounds
    supported_by: int | None  # the index of the object that it stands on, None for floor and walls
    surface: Shape = field(repr=False, compare=False)  # its true surface, without scan noise
    support: tuple[float, float, float, float, float] = field(repr=False, compare=False)  # see `Model`


@dataclass
class Placer:
    """The furniture placed so far, and `clear`, the volumes that must stay empty. Methods that place an item return its
    index, or None if it does not fit."""

    plan: FloorPlan
    rng: Generator
    items: list[RoomObject] = field(default_factory=list)
    clear: list[OrientedBox] = field(default_factory=list)

    def fits(self, box: OrientedBox, supported_by: int | None = None, strict: bool = True) -> bool:
        """Whether a box is inside the walls, free of furniture but its support, and if `strict` of what stays clear."""
        if not points_in_polygon(box.footprint, self.plan.corners).all() or box.top > self.plan.height:
            return False
        others = [item.box for i, item in enumerate(self.items) if i != supported_by]
        others += self.clear if strict else []
        others += self.plan.notches
        near = [o for o in others if o.bottom < box.top - 1e-9 and box.bottom < o.top - 1e-9]
        return not near or not rectangles_overlap(box.footprint, np.array([o.footprint for o in near])).any()

    def has(self, category: str) -> bool:
        """Whether the room contains the category."""
        return any(item.category == category for item in self.items)

    def allows(self, category: str) -> bool:
        """Whether the room contains no lookalike of the category."""
        return not any(self.has(rival) for rival in _RIVALS.get(category, ()))

    def put(
        self, model: Model, x: float, y: float, z: float, yaw_deg: float, on: int | None = None, strict: bool = True
    ) -> int | None:
        """Place a model, if it fits, with the centre of its footprint at (x, y) and its lowest point at z."""
        width, depth, height = model.size
        box = OrientedBox((float(x), float(y), float(z + height / 2)), (width, depth, height), float(yaw_deg))
        if not self.allows(model.category) or not self.fits(box, on, strict):
            return None
        apart = PILLOWS_APART_M if model.category == "pillow" else APART_M
        if any(box_distance(box, o.box) < apart for o in self.items if o.category == model.category):
            return None  # the two could look like one object
        surface = model.shape.turned(yaw_deg).moved((x, y, z))
        self.items.append(RoomObject(model.category, box, on, surface, model.support))
        return len(self.items) - 1

    @staticmethod
    def in_front(box: OrientedBox, reach: float, bottom: float, top: float) -> OrientedBox:
        """The volume in front of a box, as wide as the box and `reach` metres deep."""
        x, y = box.plan_point(np.array([0, box.size[1] / 2 + reach / 2]))
        return OrientedBox((x, y, (bottom + top) / 2), (box.size[0], reach, top - bottom), box.yaw_deg)

    def walls(self) -> list[tuple[np.ndarray, np.ndarray, float]]:
        """(start, unit direction, length) of each wall; the room is to the left of the direction."""
        start = self.plan.corners
        along = np.roll(start, -1, axis=0) - start
        length = np.linalg.norm(along, axis=1)
        return [(s, a / n, float(n)) for s, a, n in zip(start, along, length, strict=True)]

    def at_wall(
        self, kind: str, z: float = 0.0, reach: float = 0.0, gap: float = 0.02, tries: int = MAX_TRIES
    ) -> int | None:
        """Place with the back to a random position at a random wall; keeps `reach` metres in front clear."""
        model = draw(kind, self.rng)
        if not self.allows(model.category):
            return None
        walls = self.walls()
        lengths = np.array([w[2] for w in walls])
        for _ in range(tries):
            start, along, length = walls[self.rng.choice(len(walls), p=lengths / lengths.sum())]
            spare = length - model.size[0] - 0.04
            if spare > 0:
                t = model.size[0] / 2 + 0.02 + self.rng.uniform(0, spare)
                index = self.put_at_wall(model, start, along, t, z, reach, gap)
                if index is not None:
                    return index
        return None

    def put_at_wall(
        self, model: Model, start: np.ndarray, along: np.ndarray, t: float, z: float, reach: float, gap: float = 0.02
    ) -> int | None:
        """Place with the back to the given wall, the centre `t` metres from the wall's start."""
        inward = np.array([-along[1], along[0]])
        x, y = start + t * along + inward * (gap + model.size[1] / 2)
        yaw = float(np.degrees(np.arctan2(along[1], along[0])))
        box = OrientedBox((float(x), float(y), z + model.size[2] / 2), model.size, yaw)
        low = z if z > 0.5 else 0.0
        ahead = self.in_front(box, reach, low, max(box.top, low + 0.1))
        if reach and not self.fits(ahead, strict=False):
            return None
        index = self.put(model, x, y, z, yaw)
        if index is not None and reach:
            self.clear.append(ahead)
        return index

    def in_open(self, kind: str, spare: float = 0.4, turn: float = 180.0, tries: int = MAX_TRIES) -> int | None:
        """Place anywhere with `spare` metres free on all sides, rotated by up to `turn` degrees from the walls."""
        model = draw(kind, self.rng)
        if not self.allows(model.category):
            return None
        low = self.plan.corners.min(axis=0)
        high = self.plan.corners.max(axis=0)
        for _ in range(tries):
            x, y = self.rng.uniform(low, high)
            yaw = 90.0 * self.rng.integers(4) + self.rng.uniform(-turn, turn)
            width, depth, _ = model.size
            hull = OrientedBox((x, y, 0.6), (width + 2 * spare, depth + 2 * spare, 1.2), yaw)
            index = self.put(model, x, y, 0.0, yaw) if self.fits(hull, strict=False) else None
            if index is not None:
                return index
        return None

    def on_top(
        self, kind: str, base: int, across: float | None = None, turn: float = 8.0, gap: float = 0.02
    ) -> int | None:
        """Place on the support of item `base`, `gap` metres from its back edge, `across` its width or at random."""
        item = self.items[base]
        x0, y0, x1, y1, z = item.support
        for _ in range(MAX_REDRAWS):
            model = draw(kind, self.rng)
            width, depth, _ = model.size
            if width > x1 - x0 or depth + gap > y1 - y0:
                continue
            share = self.rng.uniform() if across is None else across
            x = x0 + width / 2 + share * (x1 - x0 - width)
            at = item.box.plan_point(np.array([x, y0 + depth / 2 + gap]))
            yaw = item.box.yaw_deg + self.rng.uniform(-turn, turn)
            index = self.put(model, at[0], at[1], item.box.bottom + z, yaw, on=base, strict=False)
            if index is not None:
                return index
        return None
