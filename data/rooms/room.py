"""A finished room: what it is made of, and how one is drawn from a seed."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator

from data.rooms.geometry import OrientedBox, polygon_area
from data.rooms.layout import draw_plan, furnish
from data.rooms.placement import FloorPlan, Placed
from data.rooms.scan import RoomMesh, ScanStyle, scan, shell
from data.rooms.shapes import Shape
from data.rooms.sight import seen_objects, standing_points

MOST_ATTEMPTS = 50
FEWEST_CATEGORIES, FEWEST_UNIQUE = 8, 5
MOST_ROOMS = 100_000
FLOORS = [(176, 134, 92), (140, 100, 66), (198, 172, 134), (150, 150, 148), (120, 112, 104)]
WALLS = [(228, 224, 212), (214, 222, 226), (222, 214, 196), (206, 220, 206), (232, 214, 206), (216, 212, 226)]


@dataclass(frozen=True)
class RoomObject:
    """One piece of furniture: its `category`, the tight `box` around it, the position in `Room.objects` of what it
    stands on (None: floor or wall), and its true surface, before any noise of scanning."""

    category: str
    box: OrientedBox
    supported_by: int | None
    surface: Shape = field(repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Room:
    """A furnished room: `polygon` of the floor, counter-clockwise, and wall `height` in metres, z up, floor at 0;
    `objects`, each of which can be seen from somewhere a person can stand; `mesh`, the scan of it all."""

    name: str
    plan: FloorPlan
    objects: tuple[RoomObject, ...]
    mesh: RoomMesh

    @property
    def polygon(self) -> np.ndarray:
        """(P, 2) floor outline in metres, counter-clockwise."""
        return self.plan.corners

    @property
    def height(self) -> float:
        """Height of the walls in metres."""
        return self.plan.height

    @property
    def area_m2(self) -> float:
        """Floor area in square metres."""
        return polygon_area(self.polygon)

    def of_category(self, category: str) -> tuple[RoomObject, ...]:
        """All instances of a category."""
        return tuple(o for o in self.objects if o.category == category)

    @property
    def unique_objects(self) -> tuple[RoomObject, ...]:
        """The objects that "the <category>" names without doubt: the only ones of their category."""
        return tuple(o for o in self.objects if len(self.of_category(o.category)) == 1)


def scene_name(seed: int, index: int) -> str:
    """The name of room `index` of a seed: unlike for every other room, and a plain path component."""
    if not 0 <= index < MOST_ROOMS:
        raise ValueError(f"room index must be from 0 to {MOST_ROOMS - 1}, not {index}")
    return f"room_seed{seed}_{index:03d}"


def make_room(seed: int, index: int = 0, style: ScanStyle | None = None) -> Room:
    """Room `index` of the endless series that `seed` (0 or more) begins; the same arguments give the same bytes.

    The style changes the mesh alone: plan, objects and questions stay.
    """
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, not {seed}")
    name = scene_name(seed, index)
    for attempt in range(MOST_ATTEMPTS):
        rng = np.random.default_rng([seed, index, attempt])
        plan = draw_plan(rng)
        objects = _visible(plan, furnish(plan, rng).items)
        if _rich_enough(objects):
            return Room(name, plan, objects, _mesh(plan, objects, style or ScanStyle(), rng))
    raise RuntimeError(f"no furnished room found for seed {seed}, index {index} in {MOST_ATTEMPTS} attempts")


def _visible(plan: FloorPlan, items: list[Placed]) -> tuple[RoomObject, ...]:
    """The furniture without what can be seen from nowhere, so that every count is one that a visitor can make."""
    while items:
        seen = seen_objects(standing_points(plan, [i.box for i in items]), plan, items)
        if seen.all():
            break
        items = _without(items, {int(i) for i in np.flatnonzero(~seen)})
    return tuple(RoomObject(i.category, i.box, i.supported_by, i.shape) for i in items)


def _without(items: list[Placed], gone: set[int]) -> list[Placed]:
    """The items that remain, and remain supported, when those at the positions `gone` are taken away."""
    for i, item in enumerate(items):  # a supporter always comes before what it supports
        if item.supported_by in gone:
            gone = gone | {i}
    kept = [i for i in range(len(items)) if i not in gone]
    renumber: dict[int | None, int | None] = {None: None, **{old: new for new, old in enumerate(kept)}}
    return [replace(items[i], supported_by=renumber[items[i].supported_by]) for i in kept]


def _rich_enough(objects: tuple[RoomObject, ...]) -> bool:
    """Is there a door, and enough to ask about?"""
    categories = [o.category for o in objects]
    unique = [c for c in set(categories) if categories.count(c) == 1]
    return "door" in unique and len(set(categories)) >= FEWEST_CATEGORIES and len(unique) >= FEWEST_UNIQUE


def _mesh(plan: FloorPlan, objects: tuple[RoomObject, ...], style: ScanStyle, rng: Generator) -> RoomMesh:
    floor = np.clip(np.array(FLOORS[rng.integers(len(FLOORS))]) + rng.uniform(-12, 12, 3), 0, 255)
    wall = np.clip(np.array(WALLS[rng.integers(len(WALLS))]) + rng.uniform(-10, 10, 3), 0, 255)
    surround = shell(plan.corners, plan.height, floor, wall, rng)
    return scan(surround, [o.surface for o in objects], [o.box for o in objects], style, rng)
