"""Words to practise on: made-up notes of a room, then many things that are read off them.

A conversation reads two or three places off its notes and answers once; a row of these reads some thirty. With that
many, looking a category up in the notes is learned within minutes; with conversations alone it was not in hours.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from numpy.random import Generator

from agent.actions import CameraAction
from data.rooms.furniture import CATEGORIES
from data.rooms.routes import MOST_BLANKS
from rendering.camera import CameraPose
from training.notes import FIRST, STRIDE_M, TURN_DEG, VIEWS_AROUND, Note, action_text, make_note, view_text
from training.reading import (
    BLANK,
    Asked,
    Thought,
    count_thought,
    direction_words,
    distance_words,
    nearest_words,
    noted_gap_m,
    places_words,
    quadrant_words,
    route_words,
    size_thought,
)

FEWEST_SINGLE = 3
"""Objects that are alone of their kind: what distances and directions are asked about."""
MOST_IN_VIEW = 9
NEAREST_M, FARTHEST_M = 0.5, 4.5
RECALL_SHARE, ABSENT_SHARE = 0.3, 0.15
"""Shares of rows that only recall, and of names in them that no note holds."""
NAMES_A_LIST, LISTS, THOUGHTS = 5, 8, 12
FAMILIES = ("counting", "size", "distance", "options", "route")
FAMILY_SHARES = (0.15, 0.1, 0.15, 0.4, 0.2)
NEAREST_OF = 4
ROUTES_TRIED = 20
"""To find one that some list of options holds."""
SIDES = ("left", "right", "back")
QUADRANTS = ("front-left", "front-right", "back-left", "back-right")


@dataclass(frozen=True)
class Practice:
    """The options of all directions asked for, as a question lists them; the notes of some views in one line; and the
    lines of thoughts about them."""

    options: str
    notes: str
    thoughts: str


def make_practice(rng: Generator) -> Practice:
    """Notes and thoughts at random."""
    notes, words = _notes(rng)
    singles = _singles(notes)
    while len(singles) < FEWEST_SINGLE:
        notes, words = _notes(rng)
        singles = _singles(notes)
    options = _options(rng, singles)
    recalls = rng.random() < RECALL_SHARE
    thoughts = [
        _recall(rng, notes, singles) if recalls else _thought(rng, notes, singles, options)
        for _ in range(LISTS if recalls else THOUGHTS)
    ]
    lettered = "\n".join(f"{letter}. {option}" for letter, option in zip("ABCD", options, strict=False))
    return Practice(f"Options:\n{lettered}", words, "\n".join(thoughts))


def _options(rng: Generator, singles: Sequence[Note]) -> list[str]:
    """Sides, quadrants, the turns of up to four routes, or four of the objects."""
    kind = int(rng.integers(4))
    if kind == 3 and len(singles) > NEAREST_OF:
        return [singles[place].category for place in rng.permutation(len(singles))[:NEAREST_OF]]
    if kind == 2:
        turns = int(rng.integers(1, 1 + min(MOST_BLANKS, len(singles) - 2)))
        answers = dict.fromkeys(_route(rng, singles, turns)[1] for _ in range(ROUTES_TRIED))
        return list(answers)[:NEAREST_OF]
    return [str(side) for side in rng.permutation(SIDES if kind else QUADRANTS)]


def _notes(rng: Generator) -> tuple[list[Note], str]:
    """Objects all around, as a turn by quarters and perhaps one step aside would note them."""
    categories = rng.choice(CATEGORIES, size=int(rng.integers(8, 20)), replace=False)
    notes: list[Note] = []
    words = []
    for pose in _poses(rng):
        seen = [
            _note(rng, str(rng.choice(categories)), pose, len(notes) + number)
            for number in range(int(rng.integers(MOST_IN_VIEW)))
        ]
        seen.sort(key=lambda note: -note.bearing_deg)
        words.append(view_text(pose, FIRST, seen))
        notes += seen
    return notes, " ".join(words)


def _poses(rng: Generator) -> Iterator[CameraPose]:
    views = int(rng.integers(1, VIEWS_AROUND + 2))
    for view in range(min(views, VIEWS_AROUND)):
        yield CameraPose(0.0, 0.0, 0.0, float(view * TURN_DEG))
    if views > VIEWS_AROUND:
        ahead, left = (STRIDE_M * float(strides) for strides in rng.integers(-4, 5, size=2))
        yield CameraPose(ahead, left, 0.0, float(rng.integers(VIEWS_AROUND) * TURN_DEG))


def _note(rng: Generator, category: str, pose: CameraPose, index: int) -> Note:
    bearing = math.radians(pose.heading_deg + rng.uniform(-TURN_DEG / 2, TURN_DEG / 2))
    away = rng.uniform(NEAREST_M, FARTHEST_M)
    offset = away * math.cos(bearing), away * math.sin(bearing)
    return make_note(category, offset, pose, FIRST, math.exp(rng.uniform(math.log(0.2), math.log(2.6))), index)


def _singles(notes: Sequence[Note]) -> list[Note]:
    categories = [note.category for note in notes]
    return [note for note in notes if categories.count(note.category) == 1]


def _recall(rng: Generator, notes: Sequence[Note], singles: Sequence[Note]) -> str:
    """Where some objects are, or how large one is."""
    if rng.random() < 1 / 3:
        of = singles[int(rng.integers(len(singles)))]
        return _with_answer(size_thought(of.category, [of]))
    noted = {note.category for note in notes}
    absent = [name for name in CATEGORIES if name not in noted]
    found: dict[str, list[Note]] = {}
    for place in rng.permutation(len(singles))[:NAMES_A_LIST]:
        if rng.random() < ABSENT_SHARE:
            found[str(rng.choice(absent))] = []
        else:
            found[singles[place].category] = [singles[place]]
    return f"{places_words(found)}."


def _thought(rng: Generator, notes: Sequence[Note], singles: Sequence[Note], options: Sequence[str]) -> str:
    """One of the thoughts that answer questions, but for those that need more than notes."""
    family = str(rng.choice(FAMILIES, p=FAMILY_SHARES))
    if family == "options" and options[0] in CATEGORIES:
        return _nearest(rng, singles, options)
    if family == "options" and options[0].startswith("Turn"):
        return _lettered_route(rng, singles, options)
    if family == "route":
        return _route(rng, singles, int(rng.integers(1, 1 + min(MOST_BLANKS, len(singles) - 2))))[0]
    if family == "counting":
        name = notes[int(rng.integers(len(notes)))].category
        return _with_answer(count_thought(name, notes))
    drawn = [singles[place] for place in rng.permutation(len(singles))]
    if family == "size":
        return _with_answer(size_thought(drawn[0].category, drawn[:1]))
    first = {note.category: note for note in drawn[: 2 if family == "distance" else 3]}
    where = places_words({name: [note] for name, note in first.items()})
    if family == "distance":
        return f"{where}; {distance_words(*first.values())}."
    words, side = direction_words(Asked(tuple(first)), first)
    if len(options) == len(QUADRANTS):
        words, side = quadrant_words(words)
    return _with_answer(Thought(f"{where}; {words}.", "ABCD"[options.index(side)]))


def _nearest(rng: Generator, singles: Sequence[Note], options: Sequence[str]) -> str:
    """Which of the options is nearest to some other object."""
    name = str(rng.choice([note.category for note in singles if note.category not in options]))
    found = {note.category: [note] for note in singles}
    where = places_words({each: found[each] for each in (name, *options)})
    words, winner = nearest_words(name, options, found, noted_gap_m)
    return _with_answer(Thought(f"{where}; {words}.", "ABCD"[options.index(winner)]))


def _lettered_route(rng: Generator, singles: Sequence[Note], options: Sequence[str]) -> str:
    """A route whose turns are one of the options, or one without an answer where none is found."""
    turns = 1 + options[0].count(",")
    for _ in range(ROUTES_TRIED):
        words, answer = _route(rng, singles, turns)
        if answer in options:
            return _with_answer(Thought(words, "ABCD"[options.index(answer)]))
    return words


def _route(rng: Generator, singles: Sequence[Note], turns: int) -> tuple[str, str]:
    """The thought of a walk with some turns, and all of them."""
    first = {singles[place].category: singles[place] for place in rng.permutation(len(singles))[: turns + 2]}
    names = tuple(first)
    to_faced = names[1:2] if rng.random() < 0.5 else ()
    steps = tuple(word for name in names[2:] for word in (BLANK, name))
    words, answer = route_words(Asked(names, to_faced + steps), first)
    return f"{places_words({name: [note] for name, note in first.items()})}; {words}", answer


def _with_answer(thought: Thought) -> str:
    return f"{thought.text}\n{action_text(CameraAction(answer=thought.answer, done=True))}"
