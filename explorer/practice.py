"""Text-only practice rows: synthetic notes with many facts read off them, or a choice among options.

A conversation looks up two or three places in its notes and answers once; a practice row looks up about thirty. These
rows teach the model in minutes to look up a category, which it did not learn from conversations alone in hours. Option
letters are learned in minutes from short rows with one answer each; with several answers per row, the model learns
elimination instead.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from numpy.random import Generator

from explorer.notes import (
    FIRST,
    LONGEST_WALK_M,
    STRIDE_M,
    TURN_DEG,
    VIEWS_AROUND,
    Note,
    action_text,
    in_start_frame,
    make_note,
    pose_words,
    stepped,
    turn_deg,
    view_text,
)
from explorer.reading import (
    BLANK,
    FEWEST,
    Asked,
    Thought,
    count_thought,
    direction_words,
    distance_words,
    nearest_words,
    places_words,
    quadrant_of,
    quadrant_words,
    route_words,
    side_of,
    size_thought,
    turn_words,
    with_option,
)
from roomscout.envs.actions import CameraAction
from roomscout.rendering.camera import CameraPose
from roomscout.rooms.furniture import CATEGORIES
from roomscout.rooms.routes import MOST_BLANKS

A_QUARTER = CameraAction(rotation_angle_degrees=float(TURN_DEG))
FEWEST_SINGLE = 3
"""Minimum number of objects that are unique in their category, which distance and direction questions need."""
MOST_IN_VIEW = 9
NEAREST_M, FARTHEST_M = 0.5, 4.5
RECALL_SHARE, ABSENT_SHARE = 0.3, 0.15
"""Shares of rows with recall only, and of names in them without a note."""
NAMES_PER_LIST, LISTS_PER_ROW, THOUGHTS_PER_ROW = 5, 8, 12
FAMILIES = ("counting", "size", "distance", "options", "route")
FAMILY_SHARES = (0.05, 0.1, 0.2, 0.45, 0.2)
LISTED = ("sides", "quadrants", "objects", "turns")
LISTED_SHARES = (0.1, 0.2, 0.35, 0.35)
"""Kinds of options and their shares; harder kinds are more frequent."""
SIZES_A_VIEW, COUNTS_A_VIEW, GAPS_A_VIEW = 2, 2, 2
"""Maximum numbers of facts read off a single view's notes: sizes, counts, and distances in one comparison."""
MISSING, FOUND = (1, 3), (0, 4)
"""Ranges, end excluded, of the numbers of a question's objects that are missing and known at a second position."""
IN_VIEW_SHARE, KNOWN_SHARE = 0.6, 0.5
"""Shares of the missing and of the known objects that are in view."""
NEAREST_OF = 4
ROUTES_TRIED = 20
"""Random routes drawn to find distinct options."""
BRIEF_SHARE = 0.5
"""Of rows with directions or turns as options, the share with only the last reasoning steps."""
COUNTED_SHARE = 0.3
"""Share of notes of the counted category in counting rows."""
SIDES = ("left", "right", "back")
QUADRANTS = ("front-left", "front-right", "back-left", "back-right")


@dataclass(frozen=True)
class Practice:
    """The options as listed in a question; notes of several views in one line, or empty; lines of reasoning."""

    options: str
    notes: str
    thoughts: str


def make_practice(rng: Generator) -> Practice:
    """Random options with notes and reasoning about them, or with only the last steps towards one option."""
    notes, words = _notes(rng)
    while len(_singles(notes)) < FEWEST_SINGLE:
        notes, words = _notes(rng)
    author = _Author(rng, notes)
    options = "Options:\n" + "\n".join(f"{letter}. {option}" for option, letter in author.letters.items())
    if author.chooses and rng.random() < BRIEF_SHARE:
        return Practice(options, "", author.brief())
    return Practice(options, words, "\n".join(author.lines()))


def read_off(rng: Generator, notes: Sequence[Note]) -> str:
    """Facts about random objects in the notes: sizes, counts (repeated categories first), and which of two is nearer.
    Rows with a view contain them too, because skills learned from text alone do not transfer to rows with images."""
    singles = _singles(notes)
    categories = [note.category for note in notes]
    drawn = [singles[place] for place in rng.permutation(len(singles))]
    names = [categories[place] for place in rng.permutation(len(categories))]
    names = sorted(dict.fromkeys(names), key=lambda name: categories.count(name) == 1)
    lines = [size_thought(note.category, [note]).text for note in drawn[:SIZES_A_VIEW]]
    lines += [count_thought(name, notes).text for name in names[:COUNTS_A_VIEW]]
    if len(drawn) > GAPS_A_VIEW:
        places = {note.category: [note] for note in drawn[: 1 + GAPS_A_VIEW]}
        name, *options = places
        words, _ = nearest_words(name, dict(zip(options, "ABCD", strict=False)), places)
        lines.append(f"{places_words(places)}; {words}.")
    return "\n".join(lines)


def make_counting(rng: Generator) -> tuple[str, list[tuple[str, str]]]:
    """A random category to count, and for each view of a full rotation the synthetic notes, then reasoning and action.

    Counting conversations alone are too few and too long to teach how to continue a count.
    """
    name, *others = (str(category) for category in rng.choice(CATEGORIES, size=1 + MOST_IN_VIEW, replace=False))
    notes: list[Note] = []
    turns = []
    for view in range(VIEWS_AROUND):
        pose = replace(FIRST, heading_deg=float(view * TURN_DEG))
        seen = [name if rng.random() < COUNTED_SHARE else str(rng.choice(others)) for _ in range(_seen_in_view(rng))]
        new = _left_to_right(_note(rng, category, pose, len(notes) + place) for place, category in enumerate(seen))
        thought = count_thought(name, [*notes, *new], len(notes))
        notes += new
        if view + 1 == VIEWS_AROUND:
            words = _with_answer(replace(thought, answer=thought.answer or str(FEWEST)))
        else:
            words = f"{thought.text}\n{action_text(A_QUARTER)}"
        turns.append((view_text(pose, FIRST, new), words))
    return name, turns


def make_second_look(rng: Generator, notes: Sequence[Note]) -> tuple[str, str]:
    """Turn the notes of a first view into those of a view from a random second position.

    Returns the previous reply, which states that position and what is missing, and the reply to the view. Second
    positions are too rare in conversations to be learned from them alone.
    """
    away = STRIDE_M * float(rng.integers(1, 1 + round(LONGEST_WALK_M / STRIDE_M)))
    way_deg = float(TURN_DEG * rng.integers(VIEWS_AROUND))
    facing_deg = float(TURN_DEG * rng.integers(VIEWS_AROUND))
    way = math.radians(way_deg)
    pose = CameraPose(away * math.cos(way), away * math.sin(way), 0.0, facing_deg)
    places = _partly_found(rng, {note.category for note in notes})
    before = _before_walking(pose, places, away) if way_deg == facing_deg else _before_turning(pose, places)
    moved = []
    for note in notes:
        ahead, left = in_start_frame(note.ahead_m, note.left_m, replace(FIRST, heading_deg=-facing_deg))
        moved.append(replace(note, ahead_m=stepped(pose.x_m + ahead), left_m=stepped(pose.y_m + left)))
        if not places.get(note.category, moved):
            places[note.category] = moved[-1:]
    return before, f"{view_text(pose, FIRST, moved)}\n{places_words(places)}."


def _partly_found(rng: Generator, in_view: set[str]) -> dict[str, list[Note]]:
    """Random objects of a question: some missing, some already noted, each in view or not."""
    inside = [str(name) for name in rng.permutation(sorted(in_view))]
    outside = [str(name) for name in rng.permutation(sorted(set(CATEGORIES) - in_view))]

    def drawn(count: tuple[int, int], share: float) -> list[str]:
        number = int(rng.integers(*count))
        return [(inside if inside and rng.random() < share else outside).pop() for _ in range(number)]

    missing = drawn(MISSING, IN_VIEW_SHARE)
    names = rng.permutation(missing + drawn(FOUND, KNOWN_SHARE))
    return {name: [] if name in missing else [_note(rng, name, FIRST, 0)] for name in names}


def _before_walking(pose: CameraPose, places: Mapping[str, Sequence[Note]], away_m: float) -> str:
    """The reply that ends a full rotation with a walk to a pose."""
    last = replace(FIRST, heading_deg=360.0 - TURN_DEG)
    turn = turn_deg(int(last.heading_deg), int(pose.heading_deg))
    step = CameraAction(rotation_angle_degrees=float(turn), forward_meters=away_m)
    lines = [view_text(last, FIRST, []), f"{places_words(places)}.", f"To {pose_words(pose, FIRST)}."]
    return "\n".join([*lines, action_text(step)])


def _before_turning(pose: CameraPose, places: Mapping[str, Sequence[Note]]) -> str:
    """The reply one quarter turn before a pose, at the same position."""
    before = replace(pose, heading_deg=(pose.heading_deg - TURN_DEG) % 360)
    return "\n".join([view_text(before, FIRST, []), f"{places_words(places)}.", action_text(A_QUARTER)])


def _notes(rng: Generator) -> tuple[list[Note], str]:
    """Random notes over quarter turns and perhaps one walk, and their text."""
    categories = rng.choice(CATEGORIES, size=int(rng.integers(8, 20)), replace=False)
    notes: list[Note] = []
    words = []
    for pose in _poses(rng):
        seen = _left_to_right(
            _note(rng, str(rng.choice(categories)), pose, len(notes) + number) for number in range(_seen_in_view(rng))
        )
        words.append(view_text(pose, FIRST, seen))
        notes += seen
    return notes, " ".join(words)


def _seen_in_view(rng: Generator) -> int:
    return int(rng.integers(MOST_IN_VIEW))


def _left_to_right(seen: Iterable[Note]) -> list[Note]:
    return sorted(seen, key=lambda note: -note.bearing_deg)


def _poses(rng: Generator) -> Iterator[CameraPose]:
    views = int(rng.integers(1, VIEWS_AROUND + 2))
    for view in range(min(views, VIEWS_AROUND)):
        yield CameraPose(0.0, 0.0, 0.0, float(view * TURN_DEG))
    if views > VIEWS_AROUND:
        ahead, left = (STRIDE_M * rng.integers(-4, 5, size=2)).tolist()
        yield CameraPose(ahead, left, 0.0, float(rng.integers(VIEWS_AROUND) * TURN_DEG))


def _note(rng: Generator, category: str, pose: CameraPose, index: int) -> Note:
    bearing = math.radians(pose.heading_deg + rng.uniform(-TURN_DEG / 2, TURN_DEG / 2))
    away = rng.uniform(NEAREST_M, FARTHEST_M)
    offset = away * math.cos(bearing), away * math.sin(bearing)
    return make_note(category, offset, pose, FIRST, math.exp(rng.uniform(math.log(0.2), math.log(2.6))), index)


def _singles(notes: Sequence[Note]) -> list[Note]:
    categories = [note.category for note in notes]
    return [note for note in notes if categories.count(note.category) == 1]


class _Author:
    """Writes reasoning about notes. States an option's letter only once per row: the model would copy a repeated letter
    instead of looking it up."""

    def __init__(self, rng: Generator, notes: Sequence[Note]) -> None:
        self._rng = rng
        self._notes = notes
        self._singles = _singles(notes)
        self._most_turns = min(MOST_BLANKS, len(self._singles) - 2)
        self._options = self._draw_options()
        self._letter_stated = False
        self.letters = dict(zip(self._options, "ABCD", strict=False))

    @property
    def chooses(self) -> bool:
        """Whether the options are directions or turns, so that the reasoning ends by selecting one."""
        return self._options[0] not in CATEGORIES

    def lines(self) -> list[str]:
        """All reasoning lines of a row with notes."""
        if self._rng.random() < RECALL_SHARE:
            return [self._recall() for _ in range(LISTS_PER_ROW)]
        return [self._thought() for _ in range(THOUGHTS_PER_ROW)]

    def brief(self) -> str:
        """Only the last steps of the reasoning towards an option, with its letter."""
        option = self._shuffled(self._options)[0]
        return self._with_letter(f"{'; '.join(map(self._turn_reasoning, option.split(', ')))}.", option)

    def _draw_options(self) -> list[str]:
        """Sides, quadrants, the turns of up to four routes, or four of the objects."""
        kind = str(self._rng.choice(LISTED, p=LISTED_SHARES))
        if kind == "objects" and len(self._singles) > NEAREST_OF:
            return [note.category for note in self._drawn(NEAREST_OF)]
        if kind == "turns":
            turns = int(self._rng.integers(1, 1 + self._most_turns))
            answers = dict.fromkeys(self._route(turns)[1] for _ in range(ROUTES_TRIED))
            return list(answers)[:NEAREST_OF]
        directions = SIDES if kind == "sides" else QUADRANTS
        return self._shuffled(directions)

    def _turn_reasoning(self, option: str) -> str:
        """Reasoning with random headings that ends in this direction or turn."""
        describe = quadrant_of if option in QUADRANTS else side_of
        wanted = option.removeprefix("Turn ").lower()
        while True:
            before, after = (self._rng.integers(36, size=2) * 10).tolist()
            if describe(turn_deg(before, after)) == wanted:
                return f"{turn_words(before, after)}, {option}"

    def _recall(self) -> str:
        """The places or sizes of some objects."""
        if self._rng.random() < 1 / 3:
            return "\n".join(size_thought(of.category, [of]).text for of in self._drawn(NAMES_PER_LIST))
        noted = {note.category for note in self._notes}
        absent = [name for name in CATEGORIES if name not in noted]
        places: dict[str, list[Note]] = {}
        for note in self._drawn(NAMES_PER_LIST):
            if self._rng.random() < ABSENT_SHARE:
                places[str(self._rng.choice(absent))] = []
            else:
                places[note.category] = [note]
        return f"{places_words(places)}."

    def _thought(self) -> str:
        """The reasoning for a random question type among those that need only notes."""
        family = str(self._rng.choice(FAMILIES, p=FAMILY_SHARES))
        if family == "options" and not self.chooses:
            return self._nearest()
        if family == "options" and self._options[0].startswith("Turn"):
            return self._with_letter(*self._route(1 + self._options[0].count(",")))
        if family == "route":
            return self._route(int(self._rng.integers(1, 1 + self._most_turns)))[0]
        if family == "counting":
            name = self._notes[int(self._rng.integers(len(self._notes)))].category
            return _with_answer(count_thought(name, self._notes))
        count = 2 if family == "distance" else 3
        drawn = self._drawn(count)
        if family == "size":
            return _with_answer(size_thought(drawn[0].category, drawn[:1]))
        first = {note.category: note for note in drawn}
        if family == "distance":
            return f"{_where(drawn)}; {distance_words(*drawn)}."
        words, side = direction_words(Asked(tuple(first)), first)
        if len(self._options) == len(QUADRANTS):
            words, side = quadrant_words(words)
        return self._with_letter(f"{_where(drawn)}; {words}.", side)

    def _nearest(self) -> str:
        """Reasoning about which option is nearest to another object."""
        places = {note.category: [note] for note in self._singles}
        name = self._shuffled([name for name in places if name not in self._options])[0]
        words, nearest = nearest_words(name, self.letters, places)
        where = places_words({option: places[option] for option in (name, *self._options)})
        return _with_answer(Thought(f"{where}; {words}.", nearest))

    def _route(self, turns: int) -> tuple[str, str]:
        """Reasoning about a route with this many turns, and the answer."""
        drawn = self._drawn(turns + 2)
        names = tuple(note.category for note in drawn)
        to_faced = names[1:2] if self._rng.random() < 0.5 else ()
        steps = tuple(word for name in names[2:] for word in (BLANK, name))
        words, answer = route_words(Asked(names, to_faced + steps), {note.category: note for note in drawn})
        return f"{_where(drawn)}; {words}.", answer

    def _with_letter(self, words: str, option: str) -> str:
        """Append the option's letter, unless this row has already stated one."""
        letter = None if self._letter_stated else self.letters.get(option)
        if letter is None:
            return words
        self._letter_stated = True
        if option.startswith("Turn"):
            return _with_answer(with_option(words, option, letter))
        return _with_answer(Thought(words, letter))

    def _drawn(self, count: int) -> list[Note]:
        return [self._singles[place] for place in self._rng.permutation(len(self._singles))[:count]]

    def _shuffled(self, words: Sequence[str]) -> list[str]:
        return [words[place] for place in self._rng.permutation(len(words))]


def _where(drawn: Sequence[Note]) -> str:
    return places_words({note.category: [note] for note in drawn})


def _with_answer(thought: Thought) -> str:
    return f"{thought.text}\n{action_text(CameraAction(answer=thought.answer, done=True))}"
