"""VSI-Bench questions about a room, answered from its geometry; ambiguous questions are not asked.

Wording, answer formats and rules follow VSI-Bench (Yang et al., "Thinking in Space", 2024, appendix B and the public
rows): counts of one are not asked; "the X" is always the only X; distances are between the closest points of the
objects' boxes; directions are between the boxes' centres in the floor plan; of four distances no two may be close.
Where the paper is silent, the constants below state the rule and its reason.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.random import Generator
from scipy.spatial import KDTree

from data.rooms.geometry import box_distance, wrap_deg
from data.rooms.room import Room, RoomObject
from data.rooms.routes import MOST_BLANKS, TURNS, Route, RouteMap, draw_route
from data.rooms.shapes import triangulate

DATASET = "scannet"
NEAREST_M = 0.5  # answers have one decimal: below this, rounding alone would cost score
BOX_SLACK_M, BOX_SLACK_SHARE = 0.1, 0.1  # the distance of surfaces may exceed that of their boxes by this much
GAP_M, LARGE_ROOM_GAP_M, LARGE_ROOM_M2 = 0.15, 0.30, 40.0  # the paper's rule for four distances
WINNER_GAP_M = 0.3  # and the nearest of them is nearest by this much
APART_M = 0.8  # between the centres of any two objects of a direction question
MARGIN_DEG = 10.0  # from the boundary between two directions
COUNT_WEIGHTS = (0.0, 0.0, 1.0, 2.0, 4.0, 6.0, 9.0)  # rooms hold more pairs than fives: even out the answers
ROUTE_ATTEMPTS = 150
TRIES = 200

QUESTIONS_PER_TYPE: Mapping[str, int] = MappingProxyType(
    {
        "object_counting": 3,
        "object_abs_distance": 3,
        "object_size_estimation": 3,
        "room_size_estimation": 1,
        "object_rel_distance": 2,
        "object_rel_direction_easy": 1,
        "object_rel_direction_medium": 2,
        "object_rel_direction_hard": 2,
        "route_planning": 2,
    }
)

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


@dataclass(frozen=True)
class _Draft:
    """A question with its true answer: a number as text, or one of the shuffled `options`."""

    question: str
    answer: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Facts:
    """A room with cached facts for its questions."""

    room: Room

    @cached_property
    def unique(self) -> tuple[RoomObject, ...]:
        return self.room.unique_objects

    @cached_property
    def categories(self) -> list[str]:
        return sorted({o.category for o in self.room.objects})

    @cached_property
    def _trees(self) -> dict[int, KDTree]:
        return {}

    def _tree(self, thing: RoomObject) -> KDTree:
        """Points of the object's true surface, about 5 cm apart."""
        key = self.room.objects.index(thing)
        if key not in self._trees:
            self._trees[key] = KDTree(triangulate(thing.surface, 0.05)[0])
        return self._trees[key]

    def surface_distance(self, a: RoomObject, b: RoomObject) -> float:
        """Distance in metres between the true surfaces, to about 2 cm."""
        few, many = sorted((self._tree(a), self._tree(b)), key=lambda tree: tree.n)
        return float(many.query(few.data)[0].min())

    def touching(self, a: RoomObject, b: RoomObject) -> bool:
        """Whether one of the two stands on the other."""
        objects = self.room.objects
        return any(s is not None and objects[s] is other for s, other in ((a.supported_by, b), (b.supported_by, a)))


def room_questions(
    room: Room,
    seed: int | Sequence[int],
    per_type: Mapping[str, int] = QUESTIONS_PER_TYPE,
    first_id: int = 0,
) -> list[dict[str, Any]]:
    """Rows in VSI-Bench's columns, ids counting up from `first_id`: at most `per_type[type]` questions of each type,
    fewer where the room offers no more that are beyond dispute. The same arguments give the same rows, whatever the
    scan's style, and a type's questions do not depend on which other types are asked for. Raises ValueError for a type
    that a scan cannot answer or this package does not know.
    """
    unknown = sorted(set(per_type) - set(_DRAFTERS))
    if unknown:
        raise ValueError(f"no questions of type {', '.join(unknown)}; known: {', '.join(_DRAFTERS)}")
    facts = _Facts(room)
    rows: list[dict[str, Any]] = []
    streams = np.random.default_rng(seed).spawn(len(_DRAFTERS))
    for (question_type, drafter), rng in zip(_DRAFTERS.items(), streams, strict=True):
        count = per_type.get(question_type, 0)
        for draft in drafter(facts, rng, count) if count > 0 else ():
            rows.append(_row(first_id + len(rows), room.name, question_type, draft))
    return rows


def _row(number: int, scene_name: str, question_type: str, draft: _Draft) -> dict[str, Any]:
    options, truth = None, draft.answer
    if draft.options:
        options = [f"{letter}. {text}" for letter, text in zip("ABCD", draft.options, strict=False)]
        truth = "ABCD"[draft.options.index(draft.answer)]
    return {
        "id": number,
        "dataset": DATASET,
        "scene_name": scene_name,
        "question_type": question_type,
        "question": draft.question,
        "ground_truth": truth,
        "options": options,
    }


# ---- numbers ----------------------------------------------------------------------------------------------------


def _counting(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
    counts = {c: len(facts.room.of_category(c)) for c in facts.categories}
    several = [c for c, n in counts.items() if n > 1]
    if not several:
        return []
    weight = np.array([COUNT_WEIGHTS[min(counts[c], len(COUNT_WEIGHTS) - 1)] for c in several])
    chosen = rng.choice(several, min(count, len(several)), replace=False, p=weight / weight.sum())
    return [_Draft(COUNTING.format(c=c), str(counts[str(c)])) for c in chosen]


def _abs_distance(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
    pairs = list(combinations(facts.unique, 2))
    drafts: list[_Draft] = []
    for a, b in _sample(pairs, len(pairs), rng):
        if len(drafts) == count:
            break
        metres = box_distance(a.box, b.box)
        if metres < NEAREST_M or facts.touching(a, b):
            continue
        if facts.surface_distance(a, b) - metres <= max(BOX_SLACK_M, BOX_SLACK_SHARE * metres):
            first, second = (a, b) if rng.random() < 0.5 else (b, a)
            drafts.append(_Draft(ABS_DISTANCE.format(a=first.category, b=second.category), f"{metres:.1f}"))
    return drafts


def _object_size(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
    chosen = _sample(list(facts.unique), count, rng)
    return [_Draft(OBJECT_SIZE.format(c=o.category), str(round(100 * max(o.box.size)))) for o in chosen]


def _room_size(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
    return [_Draft(ROOM_SIZE, f"{facts.room.area_m2:.1f}")][:count]


# ---- choices ----------------------------------------------------------------------------------------------------


def _rel_distance(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
    drafts: list[_Draft] = []
    asked: set[str] = set()
    gap = LARGE_ROOM_GAP_M if facts.room.area_m2 > LARGE_ROOM_M2 else GAP_M
    for _ in range(TRIES):
        if len(drafts) == count:
            break
        primary = facts.unique[rng.integers(len(facts.unique))]
        chosen = _four_apart(facts, _nearest(facts, primary), gap, rng)
        if primary.category not in asked and chosen and _surfaces_agree(facts, primary, chosen):
            asked.add(primary.category)
            names = dict(zip("abcd", _sample(chosen, 4, rng), strict=True))
            drafts.append(_Draft(REL_DISTANCE.format(x=primary.category, **names), chosen[0], tuple(names.values())))
    return drafts


def _nearest(facts: _Facts, primary: RoomObject) -> dict[str, float]:
    """Metres from the primary object to the nearest instance of every category that does not touch it."""
    distances = {}
    for category in facts.categories:
        others = facts.room.of_category(category)
        if not any(o is primary or facts.touching(o, primary) for o in others):
            distances[category] = min(box_distance(primary.box, o.box) for o in others)
    return distances


def _four_apart(facts: _Facts, distances: Mapping[str, float], gap: float, rng: Generator) -> list[str] | None:
    """Four categories, the nearest first, whose distances differ by more than the gaps; None if none were found.

    The nearest is drawn first, weighted by the inverse of its number of instances: with uniform draws, categories with
    many instances would usually be the answer.
    """
    names = list(distances)
    weight = np.array([1 / len(facts.room.of_category(c)) for c in names])
    nearest = str(rng.choice(names, p=weight / weight.sum()))
    chosen = [nearest]
    for category in _sample(names, len(names), rng):
        farther = distances[category] > distances[nearest] + WINNER_GAP_M
        if farther and all(abs(distances[category] - distances[c]) > gap for c in chosen):
            chosen.append(category)
        if len(chosen) == 4:
            return chosen
    return None


def _surfaces_agree(facts: _Facts, primary: RoomObject, chosen: Sequence[str]) -> bool:
    """Whether the first category is also nearest by the true surfaces, by at least half the gap."""
    true = [min(facts.surface_distance(primary, o) for o in facts.room.of_category(c)) for c in chosen]
    return true[0] + WINNER_GAP_M / 2 < min(true[1:])


def _sides(bearing: np.ndarray) -> np.ndarray:
    """Medium's answer for bearings in degrees (+ = left, from -180 to 180): 0 left, 1 right, 2 back."""
    return np.where(np.abs(bearing) >= 135.0, 2, np.where(bearing > 0, 0, 1))


def _quadrants(bearing: np.ndarray) -> np.ndarray:
    """Hard's answer: 0 front-left, 1 front-right, 2 back-left, 3 back-right."""
    return 2 * (np.abs(bearing) > 90.0) + (bearing <= 0)


# Easy asks medium's question without its third answer: what lies at the back is neither left nor right of the view.
_DIRECTIONS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
    "object_rel_direction_easy": (_sides, ("left", "right")),
    "object_rel_direction_medium": (_sides, ("left", "right", "back")),
    "object_rel_direction_hard": (_quadrants, ("front-left", "front-right", "back-left", "back-right")),
}


def _directions(question_type: str) -> Callable[[_Facts, Generator, int], list[_Draft]]:
    """The drafter of one of the three direction types."""
    classify, names = _DIRECTIONS[question_type]

    def draft(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
        triples, answers = _clear_triples(facts.unique, classify)
        drafts = []
        for _ in range(count):
            possible = [i for i in range(len(names)) if (answers == i).any()]
            if not possible:
                break
            answer = possible[rng.integers(len(possible))]
            pick = rng.choice(np.flatnonzero(answers == answer))
            a, b, c = (facts.unique[i].category for i in triples[pick])
            options = tuple(_sample(names, len(names), rng))
            drafts.append(_Draft(DIRECTION[question_type].format(a=a, b=b, c=c), names[answer], options))
            answers[(np.sort(triples, axis=1) == np.sort(triples[pick])).all(axis=1)] = -1
        return drafts

    return draft


def _clear_triples(
    objects: Sequence[RoomObject], classify: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Index triples (T, 3) of standing, facing and asked object whose answer (T,) is clear: centres apart, bearing
    away from boundaries, and the same answer wherever in the inner half of its footprint each object is taken."""
    n = len(objects)
    triples = np.stack(np.meshgrid(*[np.arange(n)] * 3, indexing="ij"), axis=-1).reshape(-1, 3)
    centers = np.array([o.box.plan_center for o in objects]).reshape(n, 2)
    apart = np.linalg.norm(centers[:, None] - centers, axis=-1) >= APART_M
    a, b, c = triples.T
    triples = triples[apart[a, b] & apart[b, c] & apart[a, c]]
    spread = np.array(
        [np.vstack([o.box.plan_center, o.box.plan_center + (o.box.footprint - o.box.plan_center) / 2]) for o in objects]
    ).reshape(n, 5, 2)
    stand, face, ask = (spread[triples[:, i]] for i in range(3))
    ahead = face[:, None, :, None] - stand[:, :, None, None]
    aside = ask[:, None, None, :] - stand[:, :, None, None]
    bearing = wrap_deg(_heading_deg(aside) - _heading_deg(ahead))  # (T, 5, 5, 5), all centres first
    answer = classify(bearing[:, 0, 0, 0])
    clear = (classify(bearing) == answer[:, None, None, None]).all(axis=(1, 2, 3))
    for shift in (-MARGIN_DEG, MARGIN_DEG):
        clear &= classify(wrap_deg(bearing[:, 0, 0, 0] + shift)) == answer
    return triples[clear], answer[clear]


def _heading_deg(vector: np.ndarray) -> np.ndarray:
    return np.degrees(np.arctan2(vector[..., 1], vector[..., 0]))


def _route_planning(facts: _Facts, rng: Generator, count: int) -> list[_Draft]:
    pool = _route_pool(facts, rng)
    drafts: list[_Draft] = []
    while pool and len(drafts) < count:
        sequences = _pick(_by_blanks(pool), rng)
        turns = _pick(sequences, rng)
        route = _pick(pool[turns], rng)
        question = ROUTE.format(start=route.start, facing=route.facing, end=route.stops[-1], steps=_steps(route.steps))
        drafts.append(_Draft(question, ", ".join(turns), _turn_options(turns, sequences, rng)))
        pool = {
            t: [r for r in routes if (r.start, r.stops[-1]) != (route.start, route.stops[-1])]
            for t, routes in pool.items()
        }
        pool = {t: routes for t, routes in pool.items() if routes}
    return drafts


def _route_pool(facts: _Facts, rng: Generator) -> dict[tuple[str, ...], list[Route]]:
    """Routes through the room by their turns.

    Answers and wrong options are both drawn uniformly from its keys, so that common turns are not more often right than
    wrong.
    """
    paths = RouteMap(facts.room)
    pool: dict[tuple[str, ...], list[Route]] = {}
    for attempt in range(ROUTE_ATTEMPTS):
        route = draw_route(paths, rng, blanks=1 + attempt % MOST_BLANKS)
        if route is not None:
            pool.setdefault(route.turns, []).append(route)
    return pool


def _by_blanks(pool: Mapping[tuple[str, ...], list[Route]]) -> list[list[tuple[str, ...]]]:
    """The pool's turns, one list per number of blanks; only lists long enough to fill all options, if there are any."""
    lists = [sorted(turns for turns in pool if len(turns) == blanks) for blanks in sorted({len(t) for t in pool})]
    full = [turns for turns in lists if len(turns) >= _option_count(turns[0])]
    return full or lists


def _option_count(turns: Sequence[str]) -> int:
    """Three for one blank, because there are only three turns, else four."""
    return 3 if len(turns) == 1 else 4


def _steps(steps: Sequence[str]) -> str:
    """ "1. Go forward until the bed 2. [please fill in] 3. Go forward until the door." """
    return " ".join(f"{i}. {step}" for i, step in enumerate(steps, 1)) + "."


def _turn_options(turns: tuple[str, ...], others: Sequence[tuple[str, ...]], rng: Generator) -> tuple[str, ...]:
    """The answer among other turns: all three for one blank, else four distinct sequences, preferring those that other
    routes in the room have."""
    every = list(product(TURNS, repeat=len(turns)))
    ranked = [turns, *_sample(others, len(others), rng), *_sample(every, len(every), rng)]
    distinct = list(dict.fromkeys(ranked))
    options = distinct[: _option_count(turns)]
    return tuple(", ".join(sequence) for sequence in _sample(options, len(options), rng))


def _pick(items: Sequence[Any], rng: Generator) -> Any:
    """One item, all equally likely."""
    return items[int(rng.integers(len(items)))]


def _sample(items: Sequence[Any], count: int, rng: Generator) -> list[Any]:
    """At most `count` different items in random order."""
    return [items[i] for i in rng.permutation(len(items))[:count]]


_DRAFTERS: dict[str, Callable[[_Facts, Generator, int], list[_Draft]]] = {
    "object_counting": _counting,
    "object_abs_distance": _abs_distance,
    "object_size_estimation": _object_size,
    "room_size_estimation": _room_size,
    "object_rel_distance": _rel_distance,
    "object_rel_direction_easy": _directions("object_rel_direction_easy"),
    "object_rel_direction_medium": _directions("object_rel_direction_medium"),
    "object_rel_direction_hard": _directions("object_rel_direction_hard"),
    "route_planning": _route_planning,
}
