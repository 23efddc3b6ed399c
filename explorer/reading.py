"""Derives answers from notes, with a short reasoning text per question type that a small model can imitate."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from explorer.notes import Note, apart, heading_deg, stepped, turn_deg
from roomscout.data.questions import Question

FEWEST = 2
"""The smallest count in any counting question."""

FAMILIES = {
    "object_counting": "counting",
    "object_abs_distance": "distance",
    "object_size_estimation": "size",
    "room_size_estimation": "room_size",
    "object_rel_distance": "nearest",
    "object_rel_direction_easy": "direction",
    "object_rel_direction_medium": "direction",
    "object_rel_direction_hard": "direction",
    "route_planning": "route",
}
"""The reasoning that each question type of `roomscout.rooms` needs."""
_WORDINGS = {
    "counting": r"How many (?P<c>.+?)\(s\)",
    "distance": r"distance between the (?P<a>.+?) and the (?P<b>.+?) \(in meters\)",
    "size": r"height\) of the (?P<c>.+?), measured",
    "nearest": r"objects \((?P<a>.+?), (?P<b>.+?), (?P<c>.+?), (?P<d>.+?)\) is the closest to the (?P<x>.+?)\?",
    "direction": r"standing by the (?P<a>.+?) and facing the (?P<b>.+?), is the (?P<c>.+?) to ",
    "route": r"beginning at the (?P<start>.+?) and facing the (?P<facing>.+?)\. .*?: (?P<steps>1\. .+)\. You have",
}
_STEP = re.compile(r"\d\. (?:Go forward until the (?P<stop>.+?)|\[please fill in\])(?= \d\. |$)")
BLANK = ""
"""A turn to fill in, among the stops of a route."""


@dataclass(frozen=True)
class Asked:
    """The categories in a question, in lookup order, and the stops of a route in order, with BLANK for each turn to
    fill in."""

    names: tuple[str, ...]
    steps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Thought:
    """The reasoning and the answer that follows from it; None if the notes do not give one."""

    text: str
    answer: str | None


def family_of(question: Question) -> str:
    """The reasoning that a question needs: a value of FAMILIES."""
    return FAMILIES[question.question_type]


def asked(question: Question) -> Asked:
    """Parse a question of `roomscout.rooms`; raises ValueError for any other wording."""
    family = family_of(question)
    if family == "room_size":
        return Asked(())
    match = re.search(_WORDINGS[family], question.question, re.DOTALL)
    if match is None:
        raise ValueError(f"question {question.id} is not worded like those of our rooms: {question.question!r}")
    named = match.groupdict()
    if family == "nearest":
        return Asked((named["x"], named["a"], named["b"], named["c"], named["d"]))
    if family == "route":
        steps = tuple(step["stop"] or BLANK for step in _STEP.finditer(named["steps"]))
        return Asked(tuple(dict.fromkeys([named["start"], named["facing"], *filter(None, steps)])), steps)
    return Asked(tuple(named.values()))


def think(question: Question, notes: Sequence[Note], spans_m: tuple[float, float], noted_before: int = 0) -> Thought:
    """Answer a question from notes, the first `noted_before` of which were taken in earlier turns.

    `spans_m` is the room's extent along x and y, rounded as in the prompt.
    """
    about = asked(question)
    family = family_of(question)
    if family == "room_size":
        return Thought(f"The room is {spans_m[0]:.1f} by {spans_m[1]:.1f}.", None)
    if family == "counting":
        return count_thought(about.names[0], notes, noted_before)
    instances = _instances(about, notes)
    if family == "size":
        return size_thought(about.names[0], instances[about.names[0]])
    where = places_words(instances)
    if family == "nearest":
        name, *options = about.names
        if not instances[name] or not any(instances[option] for option in options):
            return Thought(f"{where}.", None)
        letters = {option: letter(question, option) or "" for option in options}
        words, nearest = nearest_words(name, letters, instances)
        return Thought(f"{where}; {words}.", nearest)
    if not all(instances.values()):
        return Thought(f"{where}.", None)
    first = {name: of[0] for name, of in instances.items()}
    if family == "distance":
        return Thought(f"{where}; {distance_words(*first.values())}.", None)
    if family == "route":
        words, answer = route_words(about, first)
        return with_option(f"{where}; {words}.", answer, letter(question, answer))
    words, answer = direction_words(about, first)
    if question.question_type == "object_rel_direction_hard":
        words, answer = quadrant_words(words)
    return Thought(f"{where}; {words}.", letter(question, answer))


def so_far(question: Question, notes: Sequence[Note], noted_before: int = 0) -> str:
    """States which of the question's objects have been found, which decides whether to keep exploring.

    Empty if there is nothing to find. The first `noted_before` notes were taken in earlier turns.
    """
    about = asked(question)
    if family_of(question) == "counting":
        return count_thought(about.names[0], notes, noted_before).text
    return f"{places_words(_instances(about, notes))}." if about.names else ""


def still_missing(question: Question, notes: Sequence[Note]) -> bool:
    """Whether the notes lack an object that the question names; never for counts, whose objects may be anywhere."""
    return family_of(question) != "counting" and not all(_instances(asked(question), notes).values())


def _instances(about: Asked, notes: Sequence[Note]) -> dict[str, list[Note]]:
    return {name: [note for note in notes if note.category == name] for name in about.names}


def letter(question: Question, words: str) -> str | None:
    """The letter of the option with the text `words`, or None."""
    return next((option[0] for option in question.options if option[3:] == words), None)


def places_words(instances: Mapping[str, Sequence[Note]]) -> str:
    """The place of the first note of each category as text."""
    return "; ".join(f"{name} {of[0].place}" if of else f"{name} unseen" for name, of in instances.items())


def size_thought(name: str, of: Sequence[Note]) -> Thought:
    """The size in the first note of a category. The word "measures" distinguishes it from a place, which also follows a
    name."""
    if not of:
        return Thought(f"{name} unseen.", None)
    return Thought(f"{name} measures {of[0].size_cm} cm.", str(of[0].size_cm))


def distance_words(a: Note, b: Note) -> str:
    """The distance between the centres of two objects on the floor plan as text."""
    return f"apart {apart(b, a)}, {stepped(_distance_m(a, b)):.2f} m"


def count_thought(name: str, notes: Sequence[Note], noted_before: int = 0) -> Thought:
    """Count a category: the count in the first `noted_before` notes, the new instances numbered from there, the total.

    Each turn thus starts with the number that ended the previous one: a small model fails to find it among others.
    """
    of = [note for note in notes if note.category == name]
    before = sum(note.category == name for note in notes[:noted_before])
    words = [f"{name} {before}"]
    words += [f"{number} {note.place}" for number, note in enumerate(of[before:], before + 1)]
    if len(of) > before:
        words.append(str(len(of)))
    answer = str(max(FEWEST, len(of))) if of else None
    return Thought(f"{'; '.join(words)}.", answer)


def nearest_words(name: str, letters: Mapping[str, str], instances: Mapping[str, Sequence[Note]]) -> tuple[str, str]:
    """Find the option nearest to the object `name`; returns the reasoning and the option's letter.

    For each option with instances, the text gives its letter, the place of its nearest instance, the distance between
    centres, and the letter of the nearest option so far: a small model can compare two numbers but not four. `letters`
    maps all options, in order.
    """
    centre = instances[name][0]
    words = []
    nearest = ""
    least = math.inf
    for option in filter(instances.get, letters):
        note = min(instances[option], key=lambda note: _distance_m(centre, note))
        gap = round(_distance_m(centre, note), 1)
        if gap < least:
            nearest = letters[option]
            least = gap
        words.append(f"{letters[option]}. {option} {note.place}, {apart(note, centre)}, {gap:.1f} m; {nearest}")
    return "; ".join(words), nearest


def _distance_m(a: Note, b: Note) -> float:
    return math.hypot(b.ahead_m - a.ahead_m, b.left_m - a.left_m)


def direction_words(about: Asked, first: Mapping[str, Note]) -> tuple[str, str]:
    """The reasoning (the headings from the first object to the second and third, and the turn between them) and the
    side."""
    a, b, c = [first[name] for name in about.names]
    faced = heading_deg(b, a)
    aside = heading_deg(c, a)
    side = side_of(turn_deg(faced, aside))
    words = f"{b.category} {apart(b, a)} {faced}; {c.category} {apart(c, a)} {aside}; {turn_words(faced, aside)}"
    return f"{words}, {side}", side


def turn_words(before: int, after: int) -> str:
    """The turn from one heading to another as text, with their plain difference as an intermediate step.

    A single heading is uncorrelated with the turn, so a small model gets no gradient to learn it directly. Each heading
    correlates with the difference, and the difference determines the turn.
    """
    return f"from {before} to {after}: {after - before:+d}, turn {turn_deg(before, after):+d}"


def quadrant_words(words: str) -> tuple[str, str]:
    """The text of `direction_words` with a quadrant instead of a side, and the quadrant."""
    stem, _, _ = words.rpartition(", ")
    side = quadrant_of(int(stem.rpartition(" ")[2]))
    return f"{stem}, {side}", side


def side_of(turn: int) -> str:
    """The side for a turn in degrees (+ = left): left, right or back."""
    return "back" if abs(turn) >= 135 else "left" if turn > 0 else "right"


def quadrant_of(turn: int) -> str:
    """The quadrant for a turn in degrees (+ = left): front-left, front-right, back-left or back-right."""
    return f"{'back' if abs(turn) > 90 else 'front'}-{'left' if turn > 0 else 'right'}"


def route_words(about: Asked, first: Mapping[str, Note]) -> tuple[str, str]:
    """The turns of a route from centre to centre: the reasoning and the answer. A stop without a BLANK before it is
    the object already faced."""
    place = first[about.names[0]]
    faced = first[about.names[1]]
    heading = heading_deg(faced, place)
    words = [f"{faced.category} {apart(faced, place)} {heading}"]
    turns = []
    blank = False
    for step in about.steps:
        if step == BLANK:
            blank = True
            continue
        stop = first[step]
        if blank:
            after = heading_deg(stop, place)
            turn = turn_deg(heading, after)
            turns.append(f"Turn {side_of(turn).title()}")
            words.append(f"{step} {apart(stop, place)} {after}; {turn_words(heading, after)}, {turns[-1]}")
            heading = after
            blank = False
        place = stop
    return "; ".join(words), ", ".join(turns)


def with_option(words: str, answer: str, letter: str | None) -> Thought:
    """Append the answer's turns and its option letter to the reasoning, unless no option matches."""
    if letter:
        words += f"\nSo {answer}: {letter}."
    return Thought(words, letter)
