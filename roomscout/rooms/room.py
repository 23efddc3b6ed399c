"""Generates a furnished room of a level of difficulty from a seed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.random import Generator
from scipy import ndimage

from roomscout.rendering.geometry import Geometry
from roomscout.rendering.scene import Scene, make_scene
from roomscout.rooms.geometry import OrientedBox, points_in_polygon, polygon_area, segments_cross
from roomscout.rooms.layout import clutter, draw_concave_plan, draw_plan, draw_rectangle, furnish
from roomscout.rooms.placement import FloorPlan, RoomObject
from roomscout.rooms.scan import RoomMesh, ScanStyle, scan, shell
from roomscout.rooms.shapes import Shape

MAX_ATTEMPTS = 50
MIN_CATEGORIES, MIN_UNIQUE = 8, 5
MOST_OF_THINNED = 6  # objects of a category in a room that is thinned out
MAX_ROOMS = 100_000
SEEDS_END = 2**32  # NumPy takes a larger seed for several numbers, and would make the room of another seed
FLOORS = [(176, 134, 92), (140, 100, 66), (198, 172, 134), (150, 150, 148), (120, 112, 104)]
WALLS = [(228, 224, 212), (214, 222, 226), (222, 214, 196), (206, 220, 206), (232, 214, 206), (216, 212, 226)]
MAX_OBJECTS = 100
EYE_M = 1.6
BODY_M = 0.25  # distance of a standing person's axis from furniture and walls
CELL_M = 0.1
MAX_SLOPE = 0.7  # a level camera of 640 x 480 pixels and focal length 300 sees slopes up to 240 / 300 = 0.8
MIN_DISTANCE_M, MAX_DISTANCE_M = 0.6, 7.0
MIN_VISIBLE_SHARE = 0.5
MAX_STANDPOINTS = 60
GLANCES = 6  # parts of the standpoints that are tried one after another, since most objects are visible from the first


@dataclass(frozen=True)
class Level:
    """How rooms are made, with numbers of `objects` from the smallest to the largest, by filling up and thinning out,
    None as the furniture comes, 10 to 50. Raises ValueError for impossible numbers."""

    name: str
    plan: Callable[[Generator], FloorPlan] = draw_plan
    objects: tuple[int, int] | None = None
    style: ScanStyle = field(default_factory=ScanStyle)

    def __post_init__(self) -> None:
        if self.objects is not None and not 9 <= self.objects[0] <= self.objects[1] <= MAX_OBJECTS:
            pair = "{} {}".format(*self.objects)
            raise ValueError(f"objects must be two numbers from 9 to {MAX_OBJECTS}, the smaller first, not {pair}")


FURNISHED = Level("furnished")  # the rooms of the demo and of the explorer's training
BARE = Level("bare", draw_rectangle, (10, 15))
CLUTTERED = Level("cluttered", draw_concave_plan, (32, 70), ScanStyle(noise_m=0.008, holes=12))
LEVELS = {level.name: level for level in (BARE, FURNISHED, CLUTTERED)}


@dataclass(frozen=True, eq=False)
class Room:
    """A furnished room in metres, z up from the floor at 0, with the scan `mesh`; a person can see all `objects`."""

    name: str
    plan: FloorPlan
    objects: tuple[RoomObject, ...]
    mesh: RoomMesh

    @property
    def area_m2(self) -> float:
        """Floor area in square metres."""
        return polygon_area(self.plan.corners)

    def of_category(self, category: str) -> tuple[RoomObject, ...]:
        """All instances of a category."""
        return tuple(o for o in self.objects if o.category == category)

    @property
    def scene(self) -> Scene:
        """The scan as a scene, made anew."""
        return make_scene(self.name, Geometry(self.mesh.vertices, self.mesh.faces, self.mesh.colours))

    @property
    def categories(self) -> list[str]:
        """The categories of the objects, sorted."""
        return sorted({o.category for o in self.objects})

    @cached_property
    def unique_objects(self) -> tuple[RoomObject, ...]:
        """The objects that are the only ones of their category, so that "the <category>" is unambiguous."""
        return tuple(o for o in self.objects if len(self.of_category(o.category)) == 1)


def make_room(seed: int, index: int = 0, style: ScanStyle | None = None, level: Level = FURNISHED) -> Room:
    """Room `index` of the series that `seed` (0 or more) selects, to the byte; `style`, by default the level's, affects
    the mesh alone. Raises ValueError for invalid numbers, or if no room has as many objects as the level demands."""
    require_numbers(seed, index)
    for attempt in range(MAX_ATTEMPTS):
        rng = np.random.default_rng([seed, index, attempt])
        plan, items = draw_furniture(level, rng)
        if items:
            surround = draw_shell(plan, rng)
            mesh = scan(surround, items, style or level.style, rng)
            return Room(f"room_seed{seed}_{index:03d}", plan, tuple(items), mesh)
    why = "; {} to {} objects are too much to demand".format(*level.objects) if level.objects else ""
    raise ValueError(f"no {level.name} room for seed {seed}, index {index} in {MAX_ATTEMPTS} attempts{why}")


def require_numbers(seed: int, index: int) -> None:
    """Raise ValueError unless there is a room of this number in a series of this seed."""
    if not 0 <= seed < SEEDS_END:
        raise ValueError(f"seed must be from 0 to {SEEDS_END - 1}, not {seed}")
    if not 0 <= index < MAX_ROOMS:
        raise ValueError(f"room index must be from 0 to {MAX_ROOMS - 1}, not {index}")


def draw_furniture(level: Level, rng: Generator) -> tuple[FloorPlan, list[RoomObject]]:
    """A floor plan of a level with visible furniture; without any if it is not rich enough to ask about."""
    plan = level.plan(rng)
    items = _furniture(plan, level.objects, rng)
    return plan, items if _is_rich_enough(items, level.objects) else []


def _furniture(plan: FloorPlan, number: tuple[int, int] | None, rng: Generator) -> list[RoomObject]:
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


def _thinned(items: list[RoomObject], most: int, rng: Generator) -> list[RoomObject]:
    """At most `most` of the items: the door, several objects of the commonest category, and one or two of others."""
    names = [item.category for item in items]
    counted = min(set(names) - {"door"}, key=lambda name: (-names.count(name), name))
    for _ in range(MAX_ATTEMPTS):
        kept = [names.index("door")] if "door" in names else []
        others = [str(name) for name in rng.permutation(sorted(set(names) - {"door", counted}))]
        for category in [counted, *others]:
            of_category = [i for i, name in enumerate(names) if name == category]
            least, largest = (3, MOST_OF_THINNED) if category == counted else (1, 2)
            largest = min(len(of_category), largest)
            count = int(rng.integers(min(least, largest), largest + 1))
            kept += rng.permutation(of_category)[: max(min(count, most - len(kept)), 0)].tolist()
        thinned = _without(items, set(range(len(items))) - set(kept))
        if _is_rich_enough(thinned):
            break
    return thinned


def _visible(plan: FloorPlan, items: list[RoomObject]) -> list[RoomObject]:
    """The furniture that is visible from some standpoint, so that a visitor can count it."""
    while items:
        visible = visible_items(standing_points(plan, [i.box for i in items]), plan, items)
        if visible.all():
            break
        items = _without(items, {int(i) for i in np.flatnonzero(~visible)})
    return items


def _without(items: list[RoomObject], gone: set[int]) -> list[RoomObject]:
    """The items without those at the indices `gone` and those that stand on them."""
    for i, item in enumerate(items):  # an item comes after the one it stands on
        if item.supported_by in gone:
            gone = gone | {i}
    kept = [i for i in range(len(items)) if i not in gone]
    new_index: dict[int | None, int | None] = {None: None, **{old: new for new, old in enumerate(kept)}}
    return [replace(items[i], supported_by=new_index[items[i].supported_by]) for i in kept]


def _is_rich_enough(items: list[RoomObject], number: tuple[int, int] | None = None) -> bool:
    """Whether there is a single door and enough to ask about, and as many objects as `number`, least and most, says."""
    categories = [item.category for item in items]
    unique = [c for c in set(categories) if categories.count(c) == 1]
    rich = "door" in unique and len(set(categories)) >= MIN_CATEGORIES and len(unique) >= MIN_UNIQUE
    return rich and (number is None or number[0] <= len(categories) <= number[1])


def draw_shell(plan: FloorPlan, rng: Generator) -> Shape:
    """Floor and walls in random tones."""
    floor = np.clip(np.array(FLOORS[rng.integers(len(FLOORS))]) + rng.uniform(-12, 12, 3), 0, 255)
    wall = np.clip(np.array(WALLS[rng.integers(len(WALLS))]) + rng.uniform(-10, 10, 3), 0, 255)
    return shell(plan.corners, plan.height, floor, wall, rng)


def standing_points(plan: FloorPlan, boxes: Sequence[OrientedBox]) -> np.ndarray:
    """(S, 2) points of a 0.1 m grid where a person can stand and that are reachable from the middle of the room."""
    x0, y0 = plan.corners.min(axis=0)
    x1, y1 = plan.corners.max(axis=0)
    xs = np.arange(x0 + CELL_M / 2, x1, CELL_M)
    ys = np.arange(y0 + CELL_M / 2, y1, CELL_M)
    points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    free = points_in_polygon(points, plan.corners)
    for dx, dy in ((BODY_M, 0), (-BODY_M, 0), (0, BODY_M), (0, -BODY_M)):
        free &= points_in_polygon(points + np.array((dx, dy)), plan.corners)
    for box in boxes:
        if box.bottom < EYE_M:
            local = np.abs(box.local(np.insert(points, 2, 0.0, axis=1)))[:, :2]
            free &= np.linalg.norm(np.maximum(local - np.array(box.size[:2]) / 2, 0), axis=1) > BODY_M
    regions, _ = ndimage.label(free.reshape(len(xs), len(ys)))
    middle = np.argmin(np.linalg.norm(points - plan.middle, axis=1))
    return points[(regions.ravel() == regions.ravel()[middle]) & free] if free[middle] else np.empty((0, 2))


def visible_items(standpoints: np.ndarray, plan: FloorPlan, items: Sequence[RoomObject]) -> np.ndarray:
    """(N,) bool: whether a level view at eye height from some standpoint shows at least half of each item's volume.
    Treats the other items as solid boxes, so it may report a visible item as hidden."""
    if len(standpoints) == 0:
        return np.zeros(len(items), dtype=bool)
    pick = np.unique(np.linspace(0, len(standpoints) - 1, MAX_STANDPOINTS).astype(int))
    eyes = np.insert(standpoints[pick], 2, EYE_M, axis=1)
    visible = []
    for item in items:
        others = [o.box for i, o in enumerate(items) if o is not item and i != item.supported_by]
        visible.append(_is_visible(eyes, item, others + list(plan.notches)))
    return np.array(visible)


def _is_visible(eyes: np.ndarray, item: RoomObject, occluders: Sequence[OrientedBox]) -> bool:
    box = item.box
    offset = np.array(box.center) - eyes
    distance = np.linalg.norm(offset[:, :2], axis=1)
    in_range = (distance > MIN_DISTANCE_M) & (distance < MAX_DISTANCE_M)
    in_range &= np.abs(offset[:, 2]) < MAX_SLOPE * distance
    if box.bottom > 0.05 and item.supported_by is None:  # hangs on a wall, so only its front is visible
        in_range &= offset[:, :2] @ box.directions[1, :2] < 0.0
    eyes = eyes[in_range]
    lattice = np.stack(np.meshgrid(*[[-0.45, 0.0, 0.45]] * 3), axis=-1).reshape(-1, 3) * box.size
    targets = np.concatenate([box.plan_point(lattice[:, :2]), lattice[:, 2:] + box.center[2]], axis=1)
    for first in range(min(GLANCES, len(eyes))):
        some = eyes[first::GLANCES, None]
        blocked = np.zeros((len(some), len(targets)), dtype=bool)
        for other in occluders:
            blocked |= segments_cross(some, targets[None], other)
        if ((~blocked).mean(axis=1) >= MIN_VISIBLE_SHARE).any():
            return True
    return False
