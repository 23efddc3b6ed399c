"""Pairs of rooms that differ in one edit, and a question whose answers therefore differ.

Who does not look gives both the same answer: of options it is right in one of them at most, and numbers are so far
apart that no number is near both.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.random import Generator

from roomscout.rooms import questions as asked
from roomscout.rooms.edits import Arrangement, added, moved, removed, resized, swapped, turned, wall_moved
from roomscout.rooms.questions import Draft, RoomQuestion
from roomscout.rooms.room import FURNISHED, Level, Room, draw_furniture, draw_shell, require_numbers
from roomscout.rooms.routes import MOST_BLANKS, Route, RouteMap, draw_route, turns_of
from roomscout.rooms.scan import RoomMesh, ScanStyle, area_m2, scan_by_part

MOST_ATTEMPTS = 200
EDITS_PER_ROOM = 12
COUNT_FACTOR, SIZE_FACTOR, ROOM_FACTOR, DISTANCE_FACTOR = 3.3, 3.1, 2.5, 2.5
"""By which the larger truth of a pair exceeds the smaller at least: a number between both is off by nearly half of one
of them, or more, and scores 0.2 at most."""
LEAST_COUNTED, MOST_COUNTED = 2, 12
LARGEST_M2 = 60.0
ADDED = ("plant", "stool", "box", "trash can", "backpack", "suitcase", "lamp", "picture")
MEMBERS = ("a", "b")


@dataclass(frozen=True)
class Change:
    """Two arrangements of a room, and the edit between them in words."""

    first: Arrangement
    second: Arrangement
    what: str  # such as "moved: plant"


@dataclass(frozen=True)
class Twins:
    """Two rooms that differ in one edit, and the rows of a question about each, alike but for room and truth."""

    rooms: tuple[Room, Room]
    rows: tuple[RoomQuestion, RoomQuestion]


def make_twins(
    seed: int,
    index: int,
    question_type: str,
    level: Level = FURNISHED,
    style: ScanStyle | None = None,
    attempts: int = MOST_ATTEMPTS,
) -> Twins:
    """Pair `index` of the series that `seed` selects, with a question of a type of `QUESTIONS_PER_TYPE`; `style`, by
    default the level's, affects the meshes alone. Rows lack an id. Raises ValueError for an unknown type, for numbers
    that `make_room` refuses, or if none of so many `attempts` at a furnished room has such a pair."""
    require_numbers(seed, index)
    if question_type not in CHANGES:
        raise ValueError(f"cannot make twins for type {question_type}; the types are {', '.join(CHANGES)}")
    number = list(CHANGES).index(question_type)
    for attempt in range(attempts):
        rng = np.random.default_rng([seed, index, 17 + number, attempt])
        plan, items = draw_furniture(level, rng)
        found = _find(question_type, Arrangement.of(plan, items), rng) if items else None
        if found is not None:
            change, drafts = found
            order = rng.permutation(2)
            rooms = [(change.first, change.second)[place] for place in order]
            name = f"room_seed{seed}_{index:03d}"
            meshes = _meshes(rooms, style or level.style, (seed, index, number, attempt))
            made = [
                Room(f"{name}{member}", room.plan, room.objects, mesh)
                for member, room, mesh in zip(MEMBERS, rooms, meshes, strict=True)
            ]
            rows = [_row(question_type, drafts[place], room) for place, room in zip(order, made, strict=True)]
            return Twins((made[0], made[1]), (rows[0] | {"edit": change.what}, rows[1] | {"edit": change.what}))
    raise ValueError(f"no {level.name} twins for {question_type}, seed {seed}, index {index}")


def _find(question_type: str, base: Arrangement, rng: Generator) -> tuple[Change, tuple[Draft, Draft]] | None:
    """An edit of a room and the question that it changes; None if none of some was found."""
    for change in CHANGES[question_type](base, rng):
        drafts = _ASKED[question_type](_room(change.first), _room(change.second), rng)
        if drafts is not None and change.first.is_visible() and change.second.is_visible():
            return change, drafts
    return None


def _room(arrangement: Arrangement) -> Room:
    """The room without a scan, for what depends on geometry alone."""
    nothing = np.empty((0, 3))
    mesh = RoomMesh(nothing, nothing.astype(int), nothing, np.empty(0, int))
    return Room("", arrangement.plan, arrangement.objects, mesh)


def _meshes(rooms: Sequence[Arrangement], style: ScanStyle, seed: Sequence[int]) -> Iterator[RoomMesh]:
    surrounds = [draw_shell(room.plan, np.random.default_rng([*seed, 1])) for room in rooms]
    hole_m2 = min(map(area_m2, surrounds)) / (style.holes / 2) if style.holes else math.inf
    for room, surround in zip(rooms, surrounds, strict=True):
        yield scan_by_part(surround, room.objects, room.origins, style, hole_m2, [*seed, 2])


def _row(question_type: str, draft: Draft, room: Room) -> RoomQuestion:
    options, truth = asked.options_and_truth(draft)
    return {
        "dataset": asked.DATASET, "scene_name": room.name, "question_type": question_type, "question": draft.question,
        "ground_truth": truth, "options": options,
    }  # fmt: skip


def _counts_changed(base: Arrangement, rng: Generator) -> Iterator[Change]:
    """A category with many objects, of which most are removed; where none has many, some are added first."""
    room = _with_many(base, rng)
    for kind in rng.permutation(_kinds(room)):
        movable = [index for index in _of_category(room, kind) if room.carried_by(index) == {index}]
        total = len(_of_category(room, kind))
        most = int(total / COUNT_FACTOR)
        if most < LEAST_COUNTED or total > MOST_COUNTED or len(movable) < total - LEAST_COUNTED:
            continue
        kept = int(rng.integers(LEAST_COUNTED, most + 1))
        gone = rng.permutation(movable)[: total - kept].tolist()
        if len(gone) == total - kept:
            yield Change(room, removed(room, gone), f"removed: {len(gone)} x {kind}")


def _with_many(base: Arrangement, rng: Generator) -> Arrangement:
    """A room with many objects of a category, if they fit."""
    least = math.ceil(LEAST_COUNTED * COUNT_FACTOR)
    if any(len(_of_category(base, kind)) >= least for kind in _kinds(base)):
        return base
    kind = str(rng.choice(ADDED))
    goal = int(rng.integers(least, least + 3))
    room = base
    while len(_of_category(room, kind)) < goal:
        more = added(room, kind, rng)
        if more is None:
            return room
        room = more
    return room


def _moved(base: Arrangement, rng: Generator) -> Iterator[Change]:
    """An object at another place, or two in each other's; at times one that is turned."""
    unique = [index for index in base.movable if len(_of_category(base, base.objects[index].category)) == 1]
    if len(unique) < 2:
        return
    for attempt in range(EDITS_PER_ROOM):
        first, second = map(int, rng.permutation(unique)[:2])
        one = base.objects[first].category
        if attempt % 4 == 3:
            changed = swapped(base, first, second)
            what = f"swapped: {one} and {base.objects[second].category}"
        elif attempt % 8 == 6:
            changed = turned(base, first, float(rng.choice((90, -90, 180))))
            what = f"turned: {one}"
        else:
            changed = moved(base, first, rng)
            what = f"moved: {one}"
        if changed is not None:
            yield Change(base, changed, what)


def _resized(base: Arrangement, rng: Generator) -> Iterator[Change]:
    """An object that is small in one room and large in the other."""
    for index in rng.permutation(base.movable)[:EDITS_PER_ROOM]:
        kind = base.objects[index].category
        if len(_of_category(base, kind)) > 1:
            continue
        ratio = rng.uniform(SIZE_FACTOR, SIZE_FACTOR + 0.3)
        larger = float(np.exp(rng.uniform(np.log(ratio) / 3, np.log(ratio))))
        small = resized(base, int(index), larger / ratio)
        large = resized(base, int(index), larger)
        if small is not None and large is not None:
            yield Change(small, large, f"resized: {kind}")


def _wall_moved(base: Arrangement, rng: Generator) -> Iterator[Change]:
    """A room whose farthest wall is moved outwards."""
    area = _room(base).area_m2
    for axis in rng.permutation(2):
        edge = base.plan.corners[:, axis].max()
        side = base.plan.corners[base.plan.corners[:, axis] == edge, 1 - axis]
        more_m2 = area * (rng.uniform(ROOM_FACTOR, ROOM_FACTOR + 0.5) - 1)
        metres = round(float(more_m2 / (side.max() - side.min())), 2)
        changed = wall_moved(base, int(axis), metres) if area + more_m2 < LARGEST_M2 else None
        if changed is not None:
            yield Change(base, changed, f"wall moved: {metres:g} m")


def _kinds(room: Arrangement) -> list[str]:
    return sorted({item.category for item in room.objects} - {"door", "window"})


def _of_category(room: Arrangement, category: str) -> list[int]:
    return [index for index, item in enumerate(room.objects) if item.category == category]


def _counting(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
    for kind in first.categories:
        counts = [len(room.of_category(kind)) for room in (first, second)]
        if counts[0] != counts[1] and _are_apart(counts, COUNT_FACTOR) and min(counts) >= LEAST_COUNTED:
            return _same(asked.COUNTING.format(c=kind), map(str, counts))
    return None


def _abs_distance(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
    names = _unique_in_both(first, second)
    for one, two in asked.shuffled(list(combinations(names, 2)), rng):
        metres = [asked.distance_m(room, _only(room, one), _only(room, two)) for room in (first, second)]
        known = [round(each, 1) for each in metres if each is not None]
        if len(known) == 2 and _are_apart(known, DISTANCE_FACTOR):
            pair = (one, two) if rng.random() < 0.5 else (two, one)
            return _same(asked.ABS_DISTANCE.format(a=pair[0], b=pair[1]), [f"{each:.1f}" for each in known])
    return None


def _object_size(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
    for kind in _unique_in_both(first, second):
        sizes = [round(100 * max(_only(room, kind).box.size)) for room in (first, second)]
        if _are_apart(sizes, SIZE_FACTOR - 0.05):
            return _same(asked.OBJECT_SIZE.format(c=kind), map(str, sizes))
    return None


def _room_size(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
    areas = [room.area_m2 for room in (first, second)]
    truths = [f"{area:.1f}" for area in areas]
    return _same(asked.ROOM_SIZE, truths) if _are_apart(areas, ROOM_FACTOR - 0.05) else None


def _rel_distance(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
    """Four categories of which another is nearest in each room, by the rules for one room in both."""
    for name in asked.shuffled(_unique_in_both(first, second), rng):
        metres = [asked.nearest_distances(room, _only(room, name)) for room in (first, second)]
        names = sorted(metres[0].keys() & metres[1].keys())
        nearest = [min(names, key=each.__getitem__) for each in metres] if len(names) >= 4 else []
        for one, two in [nearest] if len(set(nearest)) == 2 else []:
            others = asked.shuffled([each for each in names if each not in (one, two)], rng)
            for pair in combinations(others, 2):
                chosen = [[one, two, *pair], [two, one, *pair]]
                if all(
                    asked.is_unambiguous(room, _only(room, name), each, four)
                    for room, each, four in zip((first, second), metres, chosen, strict=True)
                ):
                    options = asked.shuffled(chosen[0], rng)
                    question = asked.REL_DISTANCE.format(x=name, **dict(zip("abcd", options, strict=True)))
                    return _same(question, (one, two), options)
    return None


def _direction(question_type: str) -> "_Ask":
    classify, names = asked.DIRECTIONS[question_type]

    def ask(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
        found: list[dict[tuple[str, ...], int]] = []
        for room in (first, second):
            objects = room.unique_objects
            triples, answers = asked.unambiguous_triples(objects, classify)
            named = [tuple(objects[place].category for place in triple) for triple in triples]
            options = len(names)  # the easy type has no option for what is behind
            found.append(
                {kind: answer for kind, answer in zip(named, answers.tolist(), strict=True) if answer < options}
            )
        changed = [kinds for kinds, answer in found[0].items() if found[1].get(kinds, answer) != answer]
        if not changed:
            return None
        kinds = changed[rng.integers(len(changed))]
        question = asked.DIRECTION[question_type].format(**dict(zip("abc", kinds, strict=True)))
        return _same(question, [names[each[kinds]] for each in found], asked.shuffled(names, rng))

    return ask


def _route_planning(first: Room, second: Room, rng: Generator) -> tuple[Draft, Draft] | None:
    """A route that can be walked in both rooms, with other turns."""
    maps = [RouteMap(room) for room in (first, second)]
    for attempt in range(asked.ROUTE_ATTEMPTS):
        route = draw_route(maps[0], rng, blanks=1 + attempt % MOST_BLANKS)
        turns = turns_of(maps[1], route) if route is not None else None
        if route is not None and turns is not None and turns != route.turns:
            return _of_route(route, turns, rng)
    return None


def _of_route(route: Route, turns: tuple[str, ...], rng: Generator) -> tuple[Draft, Draft]:
    options = asked.turn_options(route.turns, [turns], rng)
    return _same(asked.route_question(route), [", ".join(each) for each in (route.turns, turns)], options)


def _same(question: str, truths: Any, options: Sequence[str] = ()) -> tuple[Draft, Draft]:
    first, second = (Draft(question, truth, tuple(options)) for truth in truths)
    return first, second


def _are_apart(numbers: Sequence[float], factor: float) -> bool:
    return max(numbers) >= factor * min(numbers)


def _unique_in_both(first: Room, second: Room) -> list[str]:
    kinds = {item.category for item in first.unique_objects} & {item.category for item in second.unique_objects}
    return sorted(kinds)


def _only(room: Room, category: str) -> Any:
    return room.of_category(category)[0]


_Ask = Callable[[Room, Room, Generator], tuple[Draft, Draft] | None]
CHANGES: Mapping[str, Callable[[Arrangement, Generator], Iterator[Change]]] = {
    "object_counting": _counts_changed,
    "object_abs_distance": _moved,
    "object_size_estimation": _resized,
    "room_size_estimation": _wall_moved,
    "object_rel_distance": _moved,
    **dict.fromkeys(asked.DIRECTION, _moved),
    "route_planning": _moved,
}
"""What differs between twins, by the type of their question."""
_ASKED: Mapping[str, _Ask] = {
    "object_counting": _counting,
    "object_abs_distance": _abs_distance,
    "object_size_estimation": _object_size,
    "room_size_estimation": _room_size,
    "object_rel_distance": _rel_distance,
    **{question_type: _direction(question_type) for question_type in asked.DIRECTION},
    "route_planning": _route_planning,
}
