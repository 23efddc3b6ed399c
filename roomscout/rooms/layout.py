"""Furnishes a floor plan with plausible groups: a bed with nightstands, a table with chairs, a desk with a monitor."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture import draw
from roomscout.rooms.geometry import OrientedBox, polygon_area
from roomscout.rooms.placement import FloorPlan, Placer

Group = Callable[[Placer], object]  # places some furniture
MIN_AREA_M2, MAX_AREA_M2 = 8.2, 44.5
MAX_RECTANGLE_M2 = 30.0
MIN_CONCAVE_M2, MAX_CONCAVE_M2 = 14.0, 40.0
ON_WALL_M = 0.005  # gap between a wall and the objects that hang on it
_CUTS = ((2, 0), (1, 0), (3, 2), (0, 4))  # of L-shapes: the corner that is cut off, and from where corners are listed
IN_FRONT_M = {
    "door": 0.9, "window": 0.45, "wardrobe": 0.6, "bookshelf": 0.6, "whiteboard": 0.5, "cabinet": 0.6, "tv": 0.6,
    "refrigerator": 0.6, "stove": 0.6, "sink": 0.5, "washer": 0.5, "bathtub": 0.5, "toilet": 0.5, "bed": 0.5,
    "sofa": 0.5, "desk": 0.95,
}  # fmt: skip
"""What stays free in front of furniture at a wall, metres, but for what belongs there, such as the chair of a desk."""
STANDING_M = 1.0  # side of the square that stays free in the middle of the room, to stand in


def draw_plan(rng: Generator) -> FloorPlan:
    """A random rectangular or L-shaped room of 8 to 45 square metres, with one corner of its bounds at the origin."""
    area = np.exp(rng.uniform(np.log(MIN_AREA_M2), np.log(MAX_AREA_M2)))
    aspect = rng.uniform(1.0, 1.7)
    l_shaped = area > 13.0 and rng.random() < 0.45
    cut = rng.uniform(0.25, 0.42, 2) if l_shaped else np.zeros(2)
    width, depth, height = _bounds(area / (1 - cut[0] * cut[1]), aspect, rng)
    if not l_shaped:
        return _plan(width, depth, height, {})
    at_left, at_front = rng.random(2) < 0.5
    corner, first = _CUTS[2 * at_left + at_front]
    plan = _plan(width, depth, height, {corner: cut})
    return replace(plan, corners=np.roll(plan.corners, -first, axis=0))


def draw_rectangle(rng: Generator) -> FloorPlan:
    """A random rectangular room of 8 to 30 square metres."""
    area = np.exp(rng.uniform(np.log(MIN_AREA_M2), np.log(MAX_RECTANGLE_M2)))
    aspect = rng.uniform(1.0, 1.7)
    return _plan(*_bounds(area, aspect, rng), {})


def draw_concave_plan(rng: Generator) -> FloorPlan:
    """A random L-, T- or Z-shaped room of 14 to 40 square metres: one or two corners of its bounds are cut off."""
    area = np.exp(rng.uniform(np.log(MIN_CONCAVE_M2), np.log(MAX_CONCAVE_M2)))
    aspect = rng.uniform(1.0, 1.7)
    cut_corners = rng.permutation(4)[: _randint(rng, 1, 2)]
    shares = {int(corner): rng.uniform(0.25, 0.42, 2) for corner in cut_corners}
    return _plan(*_bounds(area / (1 - sum(float(a * b) for a, b in shares.values())), aspect, rng), shares)


def _plan(width: float, depth: float, height: float, cuts: Mapping[int, np.ndarray]) -> FloorPlan:
    """A rectangle without corners, counter-clockwise from the origin; `cuts` (2,) are their shares of its sides."""
    bounds = np.array([[0, 0], [width, 0], [width, depth], [0, depth]])
    outline: list[np.ndarray] = []
    notches: list[OrientedBox] = []
    for corner, at in enumerate(bounds):  # counter-clockwise
        if corner not in cuts:
            outline.append(at)
            continue
        a, b = np.round(cuts[corner] * (width, depth), 2)
        inner = at + np.where(at > 0, -1, 1) * (a, b)
        before = np.array([at[0], inner[1]])
        after = np.array([inner[0], at[1]])
        outline += [before, inner, after] if corner % 2 == 0 else [after, inner, before]
        x, y = (at + inner) / 2
        notches.append(OrientedBox((float(x), float(y), height / 2), (float(a), float(b), height)))
    return FloorPlan(np.round(outline, 2), height, tuple(notches))


def _bounds(area: float, aspect: float, rng: Generator) -> tuple[float, float, float]:
    """Width, depth and height in metres of a room with this area and ratio of its sides."""
    sides = [round(float(np.sqrt(area * aspect)), 2), round(float(np.sqrt(area / aspect)), 2)]
    width, depth = sides if rng.random() < 0.5 else sides[::-1]
    return width, depth, round(float(rng.uniform(2.4, 2.8)), 2)


def furnish(plan: FloorPlan, rng: Generator) -> Placer:
    """Furnish the plan; omits what does not fit."""
    placer = Placer(plan, rng)
    placer.clear.append(OrientedBox((*plan.middle, 1.0), (STANDING_M, STANDING_M, 2.0)))
    placer.at_wall("door", reach=IN_FRONT_M["door"], gap=ON_WALL_M)
    area = polygon_area(plan.corners)
    groups = _groups(area, rng)
    for group in groups:  # place bulky furniture before the windows
        group[0](placer)
    _several(_window, 4)(placer)
    for group in groups:
        for step in group[1:]:
            step(placer)
    _decorate(placer, area)
    return placer


def _randint(rng: Generator, low: int, high: int) -> int:
    return int(rng.integers(low, high + 1))


def _groups(area: float, rng: Generator) -> list[list[Group]]:
    """A list of placing functions, bulky furniture first, for each purpose of the room; a large room has several."""
    wardrobes = _several(partial(Placer.at_wall, kind="wardrobe", reach=IN_FRONT_M["wardrobe"]), 2)
    bookshelves = _several(partial(Placer.at_wall, kind="bookshelf", reach=IN_FRONT_M["bookshelf"]), 3)
    whiteboard = partial(Placer.at_wall, kind="whiteboard", z=0.95, reach=IN_FRONT_M["whiteboard"], gap=ON_WALL_M)
    purposes: dict[str, list[Group]] = {
        "bedroom": [_bed_group, wardrobes, _either(_desk, _armchairs)],
        "living": [_sofa_group, _either(_armchairs, _dining), bookshelves],
        "office": [_several(_desk, 4), whiteboard, bookshelves],
        "kitchen": [_dining, _kitchen_row, _cabinet_group],
        "bathroom": [_bath_group],
    }
    weights = {"living": 1.0 if area > 13 else 0.0, "bathroom": 0.6}
    weight = np.array([weights.get(name, 1.0) for name in purposes])
    count = 1 if area < 13 else 2 if area < 24 else 3
    names = rng.choice(list(purposes), count, replace=False, p=weight / weight.sum())
    return [purposes[str(name)] for name in names]


def _window(placer: Placer) -> None:
    index = placer.at_wall("window", z=placer.rng.uniform(0.9, 1.05), reach=IN_FRONT_M["window"], gap=ON_WALL_M)
    if index is None or placer.rng.random() < 0.4:
        return
    box = placer.items[index].box
    below = draw("heater", placer.rng)
    x, y = box.plan_point(np.array([0.0, (below.size[1] - box.size[1]) / 2 + 0.02]))
    heater = placer.put(below, x, y, 0.1, box.yaw_deg)
    if heater is not None:
        placer.clear.append(placer.in_front(placer.items[heater].box, 0.3, 0.0, 0.7))


def _bed_group(placer: Placer) -> None:
    """A bed with its head at the wall, up to two nightstands with lamps, and pillows."""
    bed = placer.at_wall("bed", reach=IN_FRONT_M["bed"])
    if bed is None:
        return
    box = placer.items[bed].box
    for side in placer.rng.permutation([-1, 1])[: placer.rng.choice(3, p=[0.2, 0.3, 0.5])]:
        stand = draw("nightstand", placer.rng)
        across = side * (box.size[0] / 2 + stand.size[0] / 2 + 0.05)
        x, y = box.plan_point(np.array([across, -box.size[1] / 2 + stand.size[1] / 2]))
        index = placer.put(stand, x, y, 0.0, box.yaw_deg)
        if index is not None:
            placer.clear.append(placer.in_front(placer.items[index].box, 0.35, 0.0, 1.0))
            if placer.rng.random() < 0.6:
                placer.on_top("table lamp", index, 0.5)
    _pillows(placer, bed, int(box.size[0] / 0.36))
    for side in (-1, 1):
        x, y = box.plan_point(np.array([side * (box.size[0] / 2 + 0.25), 0.3]))
        placer.clear.append(OrientedBox((x, y, 0.5), (0.5, 1.2, 1.0), box.yaw_deg))


def _pillows(placer: Placer, base: int, max_count: int) -> None:
    count = _randint(placer.rng, 1, max(max_count, 1))
    for across in np.linspace(0.0, 1.0, count) if count > 1 else [0.5]:
        placer.on_top("pillow", base, float(across), turn=0.0)


def _several(step: Group, most: int) -> Group:
    def place(placer: Placer) -> None:
        for _ in range(_randint(placer.rng, 1, most)):
            step(placer)

    return place


def _either(one: Group, other: Group) -> Group:
    return lambda placer: (one if placer.rng.random() < 0.5 else other)(placer)


def _desk(placer: Placer) -> None:
    desk = placer.at_wall("desk", reach=IN_FRONT_M["desk"])
    if desk is None:
        return
    box = placer.items[desk].box
    for across in np.linspace(0.1, 0.9, _randint(placer.rng, 1, 2)) if box.size[0] > 1.45 else [0.4]:
        placer.on_top("monitor", desk, float(across), gap=0.15)  # the gap avoids window sills and whiteboards
    chair = draw("chair", placer.rng)
    shift = placer.rng.uniform(-0.25, 0.1) * box.size[0]
    x, y = box.plan_point(np.array([shift, box.size[1] / 2 + chair.size[1] / 2 + placer.rng.uniform(0.06, 0.15)]))
    placer.put(chair, x, y, 0.0, box.yaw_deg + 180 + placer.rng.uniform(-10, 10), strict=False)


def _sofa_group(placer: Placer) -> None:
    """A sofa with pillows, a coffee table in front of it, and a television."""
    sofa = placer.at_wall("sofa", reach=IN_FRONT_M["sofa"])
    if sofa is None:
        return
    box = placer.items[sofa].box
    if placer.rng.random() < 0.7:
        _pillows(placer, sofa, 3)
    if placer.rng.random() < 0.75:
        low = draw("coffee table", placer.rng)
        reach = box.size[1] / 2 + 0.42 + low.size[1] / 2
        x, y = box.plan_point(np.array([placer.rng.uniform(-0.3, 0.3), reach]))
        placer.put(low, x, y, 0.0, box.yaw_deg + placer.rng.uniform(-6, 6), strict=False)
    bench = placer.at_wall("tv bench", reach=0.7) if placer.allows("cabinet") and placer.allows("tv") else None
    if bench is None:
        placer.at_wall("wall tv", z=placer.rng.uniform(0.9, 1.1), reach=IN_FRONT_M["tv"], gap=ON_WALL_M)
    elif placer.on_top("tv", bench, 0.5) is not None:
        box = placer.items[-1].box
        placer.clear.append(placer.in_front(box, 0.7, box.bottom, box.top))


def _armchairs(placer: Placer) -> None:
    if placer.allows("armchair"):
        for _ in range(_randint(placer.rng, 1, 3)):
            placer.in_open("armchair", spare=0.2, turn=25)


def _dining(placer: Placer) -> None:
    table = placer.in_open("table", spare=0.7, turn=5) if placer.allows("chair") else None
    if table is None:
        return
    box = placer.items[table].box
    width, depth, _ = box.size
    per_side = max(int(width / 0.62), 1)
    across = (np.arange(per_side) + 0.5) / per_side * width - width / 2
    seats = [(x, side * (depth / 2), 90.0 * (1 + side)) for x in across for side in (-1, 1)]
    seats += [(side * (width / 2), 0.0, 90.0 * side) for side in (-1, 1)]
    style = placer.rng.integers(2**32)
    for i in placer.rng.permutation(len(seats))[: _randint(placer.rng, 2, len(seats))]:
        x, y, facing = seats[i]
        chair = draw("chair", np.random.default_rng(style))
        outward = np.array([np.sign(x), 0.0]) if abs(facing) == 90.0 else np.array([0.0, np.sign(y)])
        at = box.plan_point(np.array([x, y]) + outward * (chair.size[1] / 2 + placer.rng.uniform(0.05, 0.12)))
        placer.put(chair, at[0], at[1], 0.0, box.yaw_deg + facing + placer.rng.uniform(-6, 6), strict=False)


def _kitchen_row(placer: Placer) -> None:
    """Refrigerator, stove, sink and perhaps a washer: in a row, or separate if no wall is long enough."""
    kinds = [str(k) for k in placer.rng.permutation(["refrigerator", "stove", "sink"])]
    if placer.rng.random() < 0.4:
        kinds.append("washer")
    models = [draw(kind, placer.rng) for kind in kinds]
    total = sum(m.size[0] + 0.05 for m in models)
    walls = [w for w in placer.walls() if w[2] > total + 0.1]
    if not walls:
        for kind in kinds:
            placer.at_wall(kind, reach=0.6)
        return
    start, along, length = walls[placer.rng.integers(len(walls))]
    t = placer.rng.uniform(0.05, length - total)
    for model in models:
        if placer.put_at_wall(model, start, along, t + model.size[0] / 2, 0.0, 0.6) is None:
            placer.at_wall(model.category, reach=0.6)
        t += model.size[0] + 0.05


def _cabinet_group(placer: Placer) -> None:
    cabinet = placer.at_wall("cabinet", reach=IN_FRONT_M["cabinet"]) if placer.allows("cabinet") else None
    if cabinet is not None and placer.rng.random() < 0.7:
        placer.on_top("microwave", cabinet)


def _bath_group(placer: Placer) -> None:
    """Bathtub, toilet, sink with a mirror above it, towels and perhaps a washer."""
    placer.at_wall("bathtub", reach=IN_FRONT_M["bathtub"])
    placer.at_wall("toilet", reach=IN_FRONT_M["toilet"])
    sink = placer.at_wall("sink", reach=IN_FRONT_M["sink"])
    if sink is not None:
        box = placer.items[sink].box
        mirror = draw("mirror", placer.rng)
        x, y = box.plan_point(np.array([0.0, (mirror.size[1] - box.size[1]) / 2 - 0.02 + ON_WALL_M]))
        placer.put(mirror, x, y, box.top + 0.1, box.yaw_deg)
    if placer.rng.random() < 0.7:
        placer.at_wall("washer", reach=IN_FRONT_M["washer"])
    for _ in range(_randint(placer.rng, 1, 4)):
        placer.at_wall("towel", z=placer.rng.uniform(0.8, 1.0), reach=0.3, gap=ON_WALL_M)


_ON_WALLS = {"picture": (1.15, 1.4), "clock": (1.6, 1.9), "mirror": (1.0, 1.2)}
_REPEATED = ("picture", "plant", "stool", "box", "trash can", "backpack", "suitcase", "lamp")
_SINGLE = ("picture", "clock", "mirror", "plant", "stool", "box", "trash can", "backpack", "suitcase", "lamp", "heater")


def _decorate(placer: Placer, area: float) -> None:
    """Add single objects, and random numbers of two to four categories, which the rest of the room does not predict."""
    rng = placer.rng
    is_small = area < 13
    most = 5 if is_small else 8
    repeated = rng.permutation(_REPEATED)[: 2 if is_small else _randint(rng, 2, 4)]
    for category in repeated:
        for _ in range(_randint(rng, 2, most)):
            if place_small(placer, str(category)) is None:
                break
    for category in rng.permutation([c for c in _SINGLE if c not in repeated]):
        if not placer.has(str(category)) and rng.random() < 0.6:
            place_small(placer, str(category))


def place_small(placer: Placer, category: str) -> int | None:
    """Place a small object at a wall, on it, or in the open; returns its index, or None if it does not fit."""
    if category in _ON_WALLS:
        return placer.at_wall(category, z=placer.rng.uniform(*_ON_WALLS[category]), reach=0.3, gap=ON_WALL_M)
    if category == "heater":
        return placer.at_wall(category, z=0.1, reach=0.3)
    if category == "stool" and placer.rng.random() < 0.6:
        return placer.in_open(category, spare=0.25)
    return placer.at_wall(category, reach=0.25, gap=0.05)


_DIVIDERS = ("bookshelf", "wardrobe", "plant", "refrigerator", "suitcase")
_SURFACES = ("table", "desk", "cabinet", "nightstand", "washer", "bookshelf")
_ON_TOP = ("box", "plant", "backpack", "table lamp", "clock", "microwave")
_HEAPED = ("box", "chair", "plant", "stool", "backpack", "suitcase", "trash can", "picture", "pillow", "towel")
MOST_MISSES, HEAP_TRIES = 12, 15


def clutter(placer: Placer, goal: int) -> None:
    """Add tall furniture that hides other furniture, things on it, many of four kinds, up to `goal` if it fits."""
    rng = placer.rng
    for kind in rng.permutation(_DIVIDERS)[: _randint(rng, 2, 4)]:
        placer.in_open(str(kind), spare=0.35, turn=8)
    surfaces = [index for index, item in enumerate(placer.items) if item.category in _SURFACES]
    for kind in rng.permutation(_ON_TOP)[:2]:
        for base in surfaces:
            placer.on_top(str(kind), base, gap=0.05)
    kinds = [str(kind) for kind in rng.permutation(_HEAPED)[:4]]
    misses = 0
    while len(placer.items) < goal and misses < MOST_MISSES:
        misses += _heap(placer, kinds[rng.integers(len(kinds))]) is None


def _heap(placer: Placer, category: str) -> int | None:
    """Place an object of a category on the floor, on a wall or on furniture, close to others."""
    if category in ("picture", "towel"):
        return placer.at_wall(category, placer.rng.uniform(0.9, 1.5), 0.2, ON_WALL_M, HEAP_TRIES)
    if category == "pillow":
        soft = [index for index, item in enumerate(placer.items) if item.category in ("bed", "sofa", "armchair")]
        return placer.on_top(category, int(placer.rng.choice(soft))) if soft else None
    if placer.rng.random() < 0.5:
        return placer.in_open(category, spare=0.04, tries=HEAP_TRIES)
    return placer.at_wall(category, gap=0.04, tries=HEAP_TRIES)
