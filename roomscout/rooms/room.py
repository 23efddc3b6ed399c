"""Generates a furnished room from a seed."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.random import Generator

from roomscout.rooms.geometry import OrientedBox, polygon_area
from roomscout.rooms.layout import clutter, furnish
from roomscout.rooms.levels import FURNISHED, Level
from roomscout.rooms.placement import FloorPlan, Placed
from roomscout.rooms.scan import RoomMesh, ScanStyle, scan, shell
from roomscout.rooms.shapes import Shape
from roomscout.rooms.sight import standing_points, visible_items

MAX_ATTEMPTS = 50
MIN_CATEGORIES, MIN_UNIQUE = 8, 5
MOST_OF_THINNED = 6  # objects of a category in a room that is thinned out
MAX_ROOMS = 100_000
FLOORS = [(176, 134, 92), (140, 100, 66), (198, 172, 134), (150, 150, 148), (120, 112, 104)]
WALLS = [(228, 224, 212), (214, 222, 226), (222, 214, 196), (206, 220, 206), (232, 214, 206), (216, 212, 226)]


@dataclass(frozen=True)
class RoomObject:
    """A piece of furniture: its `category`, its tight bounding `box`, and its true `surface`, without scan noise.

    `supported_by` is the index in `Room.objects` of the object that it stands on; None for floor and walls.
    """

    category: str
    box: OrientedBox
    supported_by: int | None
    surface: Shape = field(repr=False, compare=False)


@dataclass(frozen=True, eq=False)
class Room:
    """A furnished room in metres; z is up and the floor is at 0.

    Each of `objects` is visible from some place where a person can stand. `mesh` is the scan.
    """

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
        """The objects that are the only ones of their category, so that "the <category>" is unambiguous."""
        return tuple(o for o in self.objects if len(self.of_category(o.category)) == 1)


def scene_name(seed: int, index: int) -> str:
    """The name of room `index` of a seed: unique, and a plain path component."""
    if not 0 <= index < MAX_ROOMS:
        raise ValueError(f"room index must be from 0 to {MAX_ROOMS - 1}, not {index}")
    return f"room_seed{seed}_{index:03d}"


def make_room(seed: int, index: int = 0, style: ScanStyle | None = None, level: Level = FURNISHED) -> Room:
    """Room `index` of the series that `seed` (0 or more) selects. The same arguments give the same bytes.

    The style, by default that of the level, affects only the mesh, not the plan, objects or questions. Raises
    ValueError for invalid numbers, or if no room of the level has as many objects as it demands.
    """
    if seed < 0:
        raise ValueError(f"seed must be 0 or more, not {seed}")
    name = scene_name(seed, index)
    for attempt in range(MAX_ATTEMPTS):
        rng = np.random.default_rng([seed, index, attempt])
        plan = level.plan(rng)
        items = _furniture(plan, level.objects, rng)
        if _is_rich_enough(items, level.objects):
            objects = tuple(RoomObject(i.category, i.box, i.supported_by, i.shape) for i in items)
            return Room(name, plan, objects, _mesh(plan, objects, style or level.style, rng))
    raise ValueError(
        f"no {level.name} room for seed {seed}, index {index} in {MAX_ATTEMPTS} attempts"
        + (f"; --objects {level.objects[0]} {level.objects[1]} demands too much" if level.objects else "")
    )


def _furniture(plan: FloorPlan, number: tuple[int, int] | None, rng: Generator) -> list[Placed]:
    """Visible furniture; `number` are the smallest and the largest number of objects to aim at."""
    placer = furnish(plan, rng)
    if number is None:
        return _visible(plan, placer.items)
    goal = int(rng.integers(number[0], number[1] + 1))
    if len(placer.items) < goal:
        clutter(placer, goal)
    if not _is_rich_enough(placer.items, (number[0], len(placer.items))):
        return []
    items = _visible(plan, placer.items)
    return items if len(items) <= goal else _visible(plan, _thinned(items, goal, rng))


def _thinned(items: list[Placed], most: int, rng: Generator) -> list[Placed]:
    """At most `most` of the items: the door, several objects of the commonest category, and one or two of others."""
    names = [item.category for item in items]
    counted = min(set(names) - {"door"}, key=lambda name: (-names.count(name), name))
    for _ in range(MAX_ATTEMPTS):
        kept = [names.index("door")] if "door" in names else []
        others = [str(name) for name in rng.permutation(sorted(set(names) - {"door", counted}))]
        for category in [counted, *others]:
            of_category = [i for i, name in enumerate(names) if name == category]
            largest = min(len(of_category), MOST_OF_THINNED if category == counted else 2)
            count = int(rng.integers(min(3, largest) if category == counted else 1, largest + 1))
            kept += rng.permutation(of_category)[: max(min(count, most - len(kept)), 0)].tolist()
        thinned = _without(items, set(range(len(items))) - set(kept))
        if _is_rich_enough(thinned):
            break
    return thinned


def _visible(plan: FloorPlan, items: list[Placed]) -> list[Placed]:
    """The furniture that is visible from some standpoint, so that a visitor can count it."""
    while items:
        visible = visible_items(standing_points(plan, [i.box for i in items]), plan, items)
        if visible.all():
            break
        items = _without(items, {int(i) for i in np.flatnonzero(~visible)})
    return items


def _without(items: list[Placed], gone: set[int]) -> list[Placed]:
    """The items without those at the indices `gone` and those that stand on them."""
    for i, item in enumerate(items):  # an item comes after the one it stands on
        if item.supported_by in gone:
            gone = gone | {i}
    kept = [i for i in range(len(items)) if i not in gone]
    new_index: dict[int | None, int | None] = {None: None, **{old: new for new, old in enumerate(kept)}}
    return [replace(items[i], supported_by=new_index[items[i].supported_by]) for i in kept]


def _is_rich_enough(items: list[Placed], number: tuple[int, int] | None = None) -> bool:
    """Whether there is a single door and enough to ask about, and as many objects as `number`, least and most, says."""
    categories = [item.category for item in items]
    unique = [c for c in set(categories) if categories.count(c) == 1]
    rich = "door" in unique and len(set(categories)) >= MIN_CATEGORIES and len(unique) >= MIN_UNIQUE
    return rich and (number is None or number[0] <= len(categories) <= number[1])


def _mesh(plan: FloorPlan, objects: tuple[RoomObject, ...], style: ScanStyle, rng: Generator) -> RoomMesh:
    floor = np.clip(np.array(FLOORS[rng.integers(len(FLOORS))]) + rng.uniform(-12, 12, 3), 0, 255)
    wall = np.clip(np.array(WALLS[rng.integers(len(WALLS))]) + rng.uniform(-10, 10, 3), 0, 255)
    surround = shell(plan.corners, plan.height, floor, wall, rng)
    return scan(surround, [o.surface for o in objects], [o.box for o in objects], style, rng)
