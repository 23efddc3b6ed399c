"""Unambiguous VSI-Bench questions about a room, answered from its geometry.

Wording, answer formats and rules follow VSI-Bench (Yang et al., "Thinking in Space", 2024, appendix B and the public
rows): no counts of one; "the X" is always the only X; distances are between the closest points of the objects' boxes;
directions are between the boxes' centres in the floor plan; no two of four distances are close. The constants below
state the rules that the paper does not.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.spatial import KDTree

from roomscout.base.grouping import grouped
from roomscout.rooms.geometry import box_distance, wrap_deg
from roomscout.rooms.placement import RoomObject
from roomscout.rooms.room import MAX_OBJECTS, Room
from roomscout.rooms.routes import MOST_BLANKS, TURNS, Route, RouteMap, draw_route
from roomscout.rooms.shapes import triangulate

DATASET = "scannet"
MIN_DISTANCE_M = 0.5  # answers have one decimal: below this, rounding alone costs score
BOX_SLACK_M, BOX_SLACK_SHARE = 0.1, 0.1  # the distance between surfaces may exceed that between boxes by this much
GAP_M, LARGE_ROOM_GAP_M, LARGE_ROOM_M2 = 0.15, 0.30, 40.0  # the paper's rule for four distances
NEAREST_GAP_M = 0.3  # between the nearest of the four and the others
APART_M = 0.8  # between the centres of any two objects of a direction question
MARGIN_DEG = 10.0  # from the boundary between two directions
COUNT_WEIGHTS = (0.0, 0.0, 1.0, 2.0, 4.0, 6.0, 9.0)  # evens out answers: small counts are more common in rooms
ROUTE_ATTEMPTS = 150
OPTIONS_OF_BLANKS = {1: 3, 2: 4, 3: 4}  # by the number of turns to fill in; there are only three turns
MAX_TRIES = 200

QUESTIONS_PER_TYPE: Mapping[str, int] = MappingProxyType(
    {
        "object_counting": 3, "object_abs_distance": 3, "object_size_estimation": 3, "room_size_estimation": 1,
        "object_rel_distance": 2, "object_rel_direction_easy": 1, "object_rel_direction_medium": 2,
        "object_rel_direction_hard": 2, "route_planning": 2,
    }
)  # fmt: skip
MORE_TYPES: Mapping[str, Mapping[str, str]] = {}
"""Types that VSI-Bench lacks, with the columns `answer_kind` and `unit` of their rows: not in the benchmark `rooms`."""
ASKED_PER_TYPE = {**QUESTIONS_PER_TYPE, **dict.fromkeys(MORE_TYPES, 1)}

COUNTING = "How many {c}(s) are in this room?"
ABS_DISTANCE = (
    "Measuring from the closest point of each object, what is the distance between the {a} and the {b} (in meters)?"
)
OBJECT_SIZE = (
    "What is the length of the longest dimension (length, width, or height) of the {c}, measured in centimeters?"
)
ROOM_SIZE = (
    "What is the size of this room (in square meters)? "
    "If multiple rooms are shown, estimate the size of the combined space."
)
REL_DISTANCE = (
    "Measuring from the closest point of each object, "
    "which of these objects ({a}, {b}, {c}, {d}) is the closest to the {x}?"
)
DIRECTION = {
    "object_rel_direction_easy": (
        "If I am standing by the {a} and facing the {b}, is the {c} to the left or the right of the {b}?"
    ),
    "object_rel_direction_medium": (
        "If I am standing by the {a} and facing the {b}, is the {c} to my left, right, or back?\n"
        "An object is to my back if I would have to turn at least 135 degrees in order to face it."
    ),
    "object_rel_direction_hard": (
        "If I am standing by the {a} and facing the {b}, is the {c} to my front-left, front-right, back-left, or "
        "back-right?\nThe directions refer to the quadrants of a Cartesian plane (if I am standing at the origin and "
        "facing along the positive y-axis)."
    ),
}
ROUTE = (
    "You are a robot beginning at the {start} and facing the {facing}. You want to navigate to the {end}. You will "
    "perform the following actions (Note: for each [please fill in], choose either 'turn back,' 'turn left,' or "
    "'turn right.'): {steps} You have reached the final destination."
)
RoomQuestion = dict[str, Any]  # a row with VSI-Bench's columns
_Classify = Callable[[np.ndarray], np.ndarray]  # the answers, as indices, for bearings in degrees


@dataclass(frozen=True)
class Draft:
    """A question and its true answer: a number as text, or one of the shuffled `options`."""

    question: str
    answer: str
    options: tuple[str, ...] = ()


def room_questions(
    room: Room, seed: int | Sequence[int], per_type: Mapping[str, int] = QUESTIONS_PER_TYPE, first_id: int = 0
) -> list[RoomQuestion]:
    """Questions as rows with VSI-Bench's columns; ids count up from `first_id`. Returns up to `per_type[type]`
    questions of each type, fewer if the room has no more unambiguous ones. The same arguments give the same rows for
    any scan style, and a type's questions do not depend on other types. ValueError for types that no scan answers."""
    unknown = sorted(set(per_type) - set(_DRAFTERS))
    if unknown:
        raise ValueError(f"cannot ask questions of type {', '.join(unknown)}; the types are {', '.join(_DRAFTERS)}")
    rows: list[RoomQuestion] = []
    streams = np.random.default_rng(seed).spawn(len(_DRAFTERS))
    for (question_type, drafter), rng in zip(_DRAFTERS.items(), streams, strict=True):
        count = per_type.get(question_type, 0)
        for draft in drafter(room, rng, count) if count > 0 else ():
            options, truth = options_and_truth(draft)
            row = {"id": first_id + len(rows), "dataset": DATASET, "scene_name": room.name}
            row |= {"question_type": question_type, "question": draft.question}
            rows.append({**row, "ground_truth": truth, "options": options, **MORE_TYPES.get(question_type, {})})
    return rows


def options_and_truth(draft: Draft) -> tuple[list[str] | None, str]:
    """The columns `options` and `ground_truth` of a draft."""
    if not draft.options:
        return None, draft.answer
    options = [f"{letter}. {text}" for letter, text in zip("ABCD", draft.options, strict=False)]
    return options, "ABCD"[draft.options.index(draft.answer)]


@lru_cache(maxsize=MAX_OBJECTS)
def _tree(item: RoomObject) -> KDTree:
    """Points of the object's true surface, about 5 cm apart."""
    return KDTree(triangulate(item.surface, 0.05)[0])


def surface_distance(a: RoomObject, b: RoomObject) -> float:
    """Distance in metres between the true surfaces, to about 2 cm."""
    few, many = sorted((_tree(a), _tree(b)), key=lambda tree: tree.n)
    return float(many.query(few.data)[0].min())


def stacked(room: Room, a: RoomObject, b: RoomObject) -> bool:
    """Whether one of the two stands on the other."""
    pairs = ((a.supported_by, b), (b.supported_by, a))
    return any(index is not None and room.objects[index] is other for index, other in pairs)


def _counting(room: Room, rng: Generator, count: int) -> list[Draft]:
    counts = {c: len(room.of_category(c)) for c in room.categories}
    several = [c for c, n in counts.items() if n > 1]
    if not several:
        return []
    weight = np.array([COUNT_WEIGHTS[min(counts[c], len(COUNT_WEIGHTS) - 1)] for c in several])
    chosen = rng.choice(several, min(count, len(several)), replace=False, p=weight / weight.sum())
    return [Draft(COUNTING.format(c=c), str(counts[str(c)])) for c in chosen]


def _abs_distance(room: Room, rng: Generator, count: int) -> list[Draft]:
    pairs = list(combinations(room.unique_objects, 2))
    drafts: list[Draft] = []
    for a, b in shuffled(pairs, rng):
        if len(drafts) == count:
            break
        metres = distance_m(room, a, b)
        if metres is not None:
            first, second = (a, b) if rng.random() < 0.5 else (b, a)
            drafts.append(Draft(ABS_DISTANCE.format(a=first.category, b=second.category), f"{metres:.1f}"))
    return drafts


def distance_m(room: Room, a: RoomObject, b: RoomObject) -> float | None:
    """Metres between the boxes of two objects; None if it cannot be asked for."""
    metres = box_distance(a.box, b.box)
    if metres < MIN_DISTANCE_M or stacked(room, a, b):
        return None
    return metres if surface_distance(a, b) - metres <= max(BOX_SLACK_M, BOX_SLACK_SHARE * metres) else None


def _object_size(room: Room, rng: Generator, count: int) -> list[Draft]:
    chosen = shuffled(list(room.unique_objects), rng)[:count]
    return [Draft(OBJECT_SIZE.format(c=o.category), str(round(100 * max(o.box.size)))) for o in chosen]


def _room_size(room: Room, rng: Generator, count: int) -> list[Draft]:
    return [Draft(ROOM_SIZE, f"{room.area_m2:.1f}")][:count]


def _rel_distance(room: Room, rng: Generator, count: int) -> list[Draft]:
    drafts: list[Draft] = []
    primaries: set[str] = set()
    gap = _gap_m(room)
    for _ in range(MAX_TRIES):
        if len(drafts) == count:
            break
        primary = room.unique_objects[rng.integers(len(room.unique_objects))]
        chosen = draw_four(room, nearest_distances(room, primary), gap, rng)
        if primary.category not in primaries and chosen and surfaces_agree(room, primary, chosen):
            primaries.add(primary.category)
            names = dict(zip("abcd", shuffled(chosen, rng)[:4], strict=True))
            drafts.append(Draft(REL_DISTANCE.format(x=primary.category, **names), chosen[0], tuple(names.values())))
    return drafts


def _gap_m(room: Room) -> float:
    """By which any two of four distances differ."""
    return LARGE_ROOM_GAP_M if room.area_m2 > LARGE_ROOM_M2 else GAP_M


def is_unambiguous(room: Room, primary: RoomObject, metres: Mapping[str, float], chosen: Sequence[str]) -> bool:
    """Whether the first of four categories is the nearest, and all of their distances `metres` are apart."""
    if any(metres[chosen[0]] + NEAREST_GAP_M >= metres[other] for other in chosen[1:]):
        return False
    if any(abs(metres[one] - metres[two]) <= _gap_m(room) for one, two in combinations(chosen, 2)):
        return False
    return surfaces_agree(room, primary, chosen)


def nearest_distances(room: Room, primary: RoomObject) -> dict[str, float]:
    """Metres from the primary object to the nearest instance of each category; omits categories stacked with it."""
    distances = {}
    for category in room.categories:
        others = room.of_category(category)
        if not any(o is primary or stacked(room, o, primary) for o in others):
            distances[category] = min(box_distance(primary.box, o.box) for o in others)
    return distances


def draw_four(room: Room, distances: Mapping[str, float], gap: float, rng: Generator) -> list[str] | None:
    """Four categories, nearest first, whose distances differ by more than the gaps; None if none were found. Draws the
    nearest first, inversely to its instances: uniformly, categories with many would usually be the answer."""
    names = list(distances)
    weight = np.array([1 / len(room.of_category(c)) for c in names])
    nearest = str(rng.choice(names, p=weight / weight.sum()))
    chosen = [nearest]
    for category in shuffled(names, rng):
        farther = distances[category] > distances[nearest] + NEAREST_GAP_M
        if farther and all(abs(distances[category] - distances[c]) > gap for c in chosen):
            chosen.append(category)
        if len(chosen) == 4:
            return chosen
    return None


def surfaces_agree(room: Room, primary: RoomObject, chosen: Sequence[str]) -> bool:
    """Whether the first category is also nearest by the distance between true surfaces, by at least half the gap."""
    metres = [min(surface_distance(primary, o) for o in room.of_category(c)) for c in chosen]
    return metres[0] + NEAREST_GAP_M / 2 < min(metres[1:])


def _sides(bearing: np.ndarray) -> np.ndarray:
    """The medium type's answer for bearings in degrees (+ = left, -180 to 180): 0 left, 1 right, 2 back."""
    return np.where(np.abs(bearing) >= 135.0, 2, np.where(bearing > 0, 0, 1))


def _quadrants(bearing: np.ndarray) -> np.ndarray:
    """The hard type's answer: 0 front-left, 1 front-right, 2 back-left, 3 back-right."""
    return 2 * (np.abs(bearing) > 90.0) + (bearing <= 0)


# The easy type uses the medium type's sides, but does not ask about objects at the back.
DIRECTIONS: dict[str, tuple[_Classify, tuple[str, ...]]] = {
    "object_rel_direction_easy": (_sides, ("left", "right")),
    "object_rel_direction_medium": (_sides, ("left", "right", "back")),
    "object_rel_direction_hard": (_quadrants, ("front-left", "front-right", "back-left", "back-right")),
}


def _direction(room: Room, rng: Generator, count: int, question_type: str) -> list[Draft]:
    classify, names = DIRECTIONS[question_type]
    triples, answers = unambiguous_triples(room.unique_objects, classify)
    drafts = []
    for _ in range(count):
        possible = [i for i in range(len(names)) if (answers == i).any()]
        if not possible:
            break
        answer = possible[rng.integers(len(possible))]
        pick = rng.choice(np.flatnonzero(answers == answer))
        a, b, c = (room.unique_objects[i].category for i in triples[pick])
        options = tuple(shuffled(names, rng))
        drafts.append(Draft(DIRECTION[question_type].format(a=a, b=b, c=c), names[answer], options))
        answers[(np.sort(triples, axis=1) == np.sort(triples[pick])).all(axis=1)] = -1
    return drafts


def unambiguous_triples(objects: Sequence[RoomObject], classify: _Classify) -> tuple[np.ndarray, np.ndarray]:
    """Index triples (T, 3) of the objects stood by, faced and asked about, with their answers (T,), where centres are
    apart, the bearing is off its boundaries, and all of the inner halves of the footprints answer alike."""
    n = len(objects)
    triples = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    centers = np.array([o.box.plan_center for o in objects]).reshape(n, 2)
    apart = np.linalg.norm(centers[:, None] - centers, axis=-1) >= APART_M
    a, b, c = triples.T
    triples = triples[apart[a, b] & apart[b, c] & apart[a, c]]
    points = np.array(
        [np.vstack([o.box.plan_center, o.box.plan_center + (o.box.footprint - o.box.plan_center) / 2]) for o in objects]
    ).reshape(n, 5, 2)
    stand, face, ask = points[triples.T]
    to_faced = face[:, None, :, None] - stand[:, :, None, None]
    to_asked = ask[:, None, None, :] - stand[:, :, None, None]
    bearing = wrap_deg(_heading_deg(to_asked) - _heading_deg(to_faced))  # (T, 5, 5, 5); index 0 is the centre
    answer = classify(bearing[:, 0, 0, 0])
    unambiguous = (classify(bearing) == answer[:, None, None, None]).all(axis=(1, 2, 3))
    for shift in (-MARGIN_DEG, MARGIN_DEG):
        unambiguous &= classify(wrap_deg(bearing[:, 0, 0, 0] + shift)) == answer
    return triples[unambiguous], answer[unambiguous]


def _heading_deg(vector: np.ndarray) -> np.ndarray:
    return np.degrees(np.arctan2(vector[..., 1], vector[..., 0]))


def _route_planning(room: Room, rng: Generator, count: int) -> list[Draft]:
    route_map = RouteMap(room)
    routes = [draw_route(route_map, rng, blanks=1 + attempt % MOST_BLANKS) for attempt in range(ROUTE_ATTEMPTS)]
    # By turns, from which answers and wrong options are drawn uniformly: common turns are as often wrong as right.
    pool = grouped((route.turns, route) for route in routes if route)
    drafts: list[Draft] = []
    while pool and len(drafts) < count:
        sequences = _pick(_by_blanks(pool), rng)
        turns = _pick(sequences, rng)
        route = _pick(pool[turns], rng)
        drafts.append(Draft(route_question(route), ", ".join(turns), turn_options(turns, sequences, rng)))
        ends = route.start, route.stops[-1]
        left = (route for routes in pool.values() for route in routes if (route.start, route.stops[-1]) != ends)
        pool = grouped((route.turns, route) for route in left)
    return drafts


def route_question(route: Route) -> str:
    """The question for the turns of a route."""
    steps = " ".join(f"{i}. {step}" for i, step in enumerate(route.steps, 1)) + "."
    return ROUTE.format(start=route.start, facing=route.facing, end=route.stops[-1], steps=steps)


def _by_blanks(pool: Mapping[tuple[str, ...], list[Route]]) -> list[list[tuple[str, ...]]]:
    """The pool's turns, one list per number of blanks. Drops lists too short to fill the options, unless all are."""
    lists = [sorted(turns for turns in pool if len(turns) == blanks) for blanks in sorted({len(t) for t in pool})]
    return [turns for turns in lists if len(turns) >= OPTIONS_OF_BLANKS[len(turns[0])]] or lists


def turn_options(turns: tuple[str, ...], others: Sequence[tuple[str, ...]], rng: Generator) -> tuple[str, ...]:
    """The answer and distinct wrong options, shuffled. Prefers the turns of other routes in the room."""
    every = list(product(TURNS, repeat=len(turns)))
    ranked = [turns, *shuffled(others, rng), *shuffled(every, rng)]
    options = list(dict.fromkeys(ranked))[: OPTIONS_OF_BLANKS[len(turns)]]
    return tuple(", ".join(sequence) for sequence in shuffled(options, rng))


def _pick(items: Sequence[Any], rng: Generator) -> Any:
    return items[int(rng.integers(len(items)))]


def shuffled(items: Sequence[Any], rng: Generator) -> list[Any]:
    """The items in a random order."""
    return [items[i] for i in rng.permutation(len(items))]


_DRAFTERS: dict[str, Callable[[Room, Generator, int], list[Draft]]] = {
    "object_counting": _counting,
    "object_abs_distance": _abs_distance,
    "object_size_estimation": _object_size,
    "room_size_estimation": _room_size,
    "object_rel_distance": _rel_distance,
    **{question_type: partial(_direction, question_type=question_type) for question_type in DIRECTION},
    "route_planning": _route_planning,
}
