"""Kinds of answers: how each is asked for, parsed, guessed and scored. A new one is a class here or of a benchmark."""

import math
import random
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Protocol

import numpy as np

from roomscout.base.text import counted
from roomscout.data.options import Options, letter_named
from roomscout.data.yes_no import YES_OR_NO

MRA_THRESHOLDS = np.linspace(0.5, 0.95, 10)  # of 1 - relative error, as in VSI-Bench's scorer: literals change ties
UNIT_WORDS = {  # spellings after a number; any other unit is accepted as written, and no other answer
    "objects": ("", "object", "objects"),
    "m": ("", "m", "meter", "meters", "metre", "metres"),
    "cm": ("", "cm", "centimeter", "centimeters", "centimetre", "centimetres"),
    "m²": ("", "m²", "m2", "m^2", "sqm", "sq m", "square meter", "square meters", "square metre", "square metres"),
}
NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
LETTER = re.compile(r"\(?([A-Za-z])(?:\)?\s*|[.):]\s*.*|、(?!\s*[A-Z]\b).*)", re.DOTALL)  # "A、B" are two
HALF_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)}
HALF_WIDTH |= {ord("。"): ". ", ord("，"): ", ", ord("："): ": ", ord("；"): "; "}
"""Full-width characters of Chinese and Japanese text as ASCII; no space follows their punctuation."""
WRAPPED = re.compile(  # Markdown and LaTeX around an answer; JSON reads the beginning of "\boxed" as a backspace
    r"\*\*(.*)\*\*|`(.*)`|\[(.*)\]|\$(.*)\$|\\\((.*)\\\)|(?:\\b|\x08)oxed\{(.*)\}|\\(?:text|mathrm|mathbf)\{(.*)\}",
    re.DOTALL,
)
LONGEST_WRAPPED = 200  # characters of an answer to look into; a hostile one could be wrapped thousands of times
COORDINATES = re.compile(r"[\s,;]*(?:m|meters?|metres?)?[\s,;]+|[\s,;]*(?:m|meters?|metres?)$", re.IGNORECASE)
POINT_THRESHOLDS_M = (0.25, 0.5, 1.0, 2.0)
_YES_AND_NO: dict[bool | None, str] = {True: "yes", False: "no"}
_BEGINS_WITH_WORD = re.compile(r"([^\s.!,;:]+)(?:[.!]?|[,.;:]\s.*)", re.DOTALL)


class AnswerKind(Protocol):
    """What a valid answer to a question is. `letters` are always those of the question's options, in order."""

    name: str  # in the column `answer_kind` of question files
    unit: str = ""  # of a number
    takes_options: bool = False  # whether a question of this kind has options to choose from
    needs_judge: bool = False  # whether its questions have no score until a judge marks the answers
    in_scan_coordinates: bool = False  # whether answers are places; the model reads the camera's position in these too
    judges_camera: bool = False  # whether not what is said is scored, but `of_camera` when it is said

    def form(self, letters: Sequence[str]) -> str:
        """The form of a valid answer, as the prompt states it: "one plain number in m"."""

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        """A value of a reply's JSON object as an answer in plain form ("B", "2.5", text); None if it is not valid."""

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        """Why a value is not a valid answer. `shown` is the value as JSON; the model sees the sentence."""

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        """Why a ground truth cannot be one, to follow "the ground truth X is"; None if it can."""

    def read_truth(self, value: object, options: Options) -> str:
        """A ground truth of a question file in plain form, which is unchanged if `wrong_truth` accepts it. Raises
        ValueError, with why, for a value that may mean several answers or none."""
        if isinstance(value, str):
            return value.strip()
        if isinstance(value, Real | Decimal) and not isinstance(value, bool) and math.isfinite(value):
            return str(value)
        raise ValueError("neither text nor a finite number")

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        """A random valid answer."""

    def guess_near(self, draw: random.Random, letters: Sequence[str], place: Sequence[float]) -> str:
        """The same where answers are places: near one of the floor, (3,) metres in the scan's coordinates."""
        return self.guess(draw, letters)

    def score(self, answer: str | float | None, truth: str) -> float:
        """The score of an answer, 0 to 1; None scores 0. Raises ValueError for an impossible ground truth. The answer
        is as `parse` returned it, and the truth as `read_truth` did. A truth, by `parse` or else as it is, is scored as
        an answer when questions are loaded, and refused unless it scores 1. By default 1 for the same text as
        `matched_text`, like the exact match of SQuAD (arXiv:1606.05250), but articles and punctuation count."""
        return float(answer is not None and matched_text(str(answer)) == matched_text(truth))

    def more_scores(self, answer: str | float | None, truth: str) -> dict[str, float]:
        """Further scores by name, for the result row; they count towards no task or overall. By default none."""
        return {}

    def in_words(self, answer: str, truth: str | None = None) -> str:
        """How people read an answer, with its unit, or how far it is from a truth; without a `truth`, one itself."""
        return with_unit(answer, self.unit)

    def place(self, answer: str) -> list[float] | None:
        """Where an answer or a truth is: x, y, perhaps z (metres), heading and pitch (degrees). None if nowhere."""
        numbers = _numbers(answer, (2, 3, 5, 6)) if self.in_scan_coordinates or self.judges_camera else None
        return numbers and numbers[:5]

    def of_camera(self, pose: Sequence[float], path_m: float) -> str:
        """What is scored of a camera at `pose` (x, y, z in world metres, heading, pitch in degrees) after its path."""
        return ", ".join(f"{number:.3f}" for number in (*pose, path_m))

    def vote(self, answers: Sequence[str]) -> str | None:
        """The answer that most of these valid ones give; ignores case and a final period. None on a tie."""
        (most, count), *others = Counter(map(matched_text, answers)).most_common(2)
        if others and others[0][1] == count:
            return None
        return next(answer for answer in answers if matched_text(answer) == most)


def with_unit(answer: str, unit: str) -> str:
    """A number with its unit; "objects" and an empty unit are not stated."""
    return answer if unit in ("", "objects") else f"{answer} {unit}"


def plain_text(value: object) -> str | None:
    """A JSON string or number as text; None for anything else, also true and false."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).encode("utf-8", "replace").decode().strip()  # JSON may contain lone surrogates, files cannot


def bare_text(value: object) -> str | None:
    """As `plain_text`, in HALF_WIDTH, without Markdown and LaTeX around it: **B**, $3$ and \\boxed{B} as B and 3."""
    text = plain_text(value)
    text = text and text.translate(HALF_WIDTH).strip()
    while text and len(text) <= LONGEST_WRAPPED and (match := WRAPPED.fullmatch(text)):
        text = next(inside for inside in match.groups() if inside is not None).strip()
    return text


def first_word(answer: str | float) -> str:
    """The text before the first space (even at the start), without final periods, as VSI-Bench's scorer reads it."""
    return str(answer).split(" ")[0].rstrip(".").strip()


@dataclass(frozen=True)
class Letter(AnswerKind):
    """The letter of an option, scored 1 or 0 by its first word, ignoring case, as VSI-Bench does."""

    name = "letter"
    takes_options = True

    def form(self, letters: Sequence[str]) -> str:
        return "the letter of one option, " + " or ".join(f'"{letter}"' for letter in letters)

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        """ "B", "b", "(B)", "B." and "B. back-left" are a letter; "AB" and "A chair" are not."""
        match = LETTER.fullmatch(bare_text(value) or "")
        letter = match.group(1).upper() if match else None
        return letter if letter in letters else None

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        return f"the answer {shown} is not one of the letters {', '.join(letters)}"

    def read_truth(self, value: object, options: Options) -> str:
        """A letter, or that of the option with this text."""
        truth = super().read_truth(value, options)
        letter = letter_named(truth, options)
        return truth if letter in (None, truth.upper()) else letter

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        return None if truth.upper() in letters else f"not one of the letters {', '.join(letters)}"

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        return draw.choice(letters)

    def score(self, answer: str | float | None, truth: str) -> float:
        return 0.0 if answer is None else float(first_word(answer).lower() == truth.lower())


@dataclass(frozen=True)
class Number(AnswerKind):
    """A finite number in `unit` (empty: a plain one), scored by mean relative accuracy: the share of MRA_THRESHOLDS t
    with |answer - truth| / truth <= 1 - t. Source: arXiv:2412.14171, section 3, and its code (vsibench/utils.py)."""

    unit: str = ""
    name = "number"

    def form(self, letters: Sequence[str]) -> str:
        if self.unit == "objects":
            return "one plain number, such as 3"
        return f"one plain number in {self.unit}" if self.unit else "one plain number"

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        """A finite number, alone or followed by the unit."""
        text = bare_text(value)
        match = NUMBER.match(text) if text else None
        if text is None or match is None:
            return None
        unit = self.unit.rstrip(".").lower()
        spellings = next((words for words in UNIT_WORDS.values() if unit and unit in words), ("", unit))
        if text[match.end() :].strip().rstrip(".").lower() not in spellings:
            return None
        return match.group() if math.isfinite(float(match.group())) else None

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        return f"the answer {shown} is not a plain number" + (f" of {self.unit}" if self.unit else "")

    def read_truth(self, value: object, options: Options) -> str:
        """A number with or without its unit, also with a decimal comma, as spreadsheets write it."""
        truth = super().read_truth(value, options)
        if _is_positive(truth):
            return truth
        if truth.startswith("["):
            raise ValueError("a list: write its value alone, as column.str[0] of pandas is")
        if re.match(r"[1-9]\d*,\d{3}(?!\d)", truth):
            raise ValueError("a number with a comma: write it with a decimal point")
        with_point = re.sub(r"^(\d*),(\d+)", r"\1.\2", truth)
        return self.parse(with_point, ()) or truth

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        """Relative accuracy requires a finite ground truth above 0."""
        return None if _is_positive(truth) else "not a finite number above 0, which relative accuracy requires"

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        return str(draw.randint(1, 10))

    def score(self, answer: str | float | None, truth: str) -> float:
        """The mean relative accuracy of the answer's first word; 0 if that is not a number."""
        if not _is_positive(truth):
            raise ValueError(f"ground truth {truth!r} must be a finite number above 0")
        error = _relative_error(answer, truth)
        return 0.0 if error is None else float(np.mean(error <= 1 - MRA_THRESHOLDS))

    def more_scores(self, answer: str | float | None, truth: str) -> dict[str, float]:
        """`relative_error`: |answer - truth| / truth, 0 for an exact answer; none if the answer is not a number."""
        error = _relative_error(answer, truth)
        return {} if error is None or not math.isfinite(error) else {"relative_error": round(error, 6)}

    def vote(self, answers: Sequence[str]) -> str:
        return str(statistics.median(map(float, answers)))


@dataclass(frozen=True)
class YesNo(AnswerKind):
    """Yes or no, scored 1 or 0."""

    name = "yes_no"

    def form(self, letters: Sequence[str]) -> str:
        return '"yes" or "no"'

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        """ "Yes", "no." and "Ja, hinter der Tür" are valid, as are true and false; "no idea" is not."""
        text = str(value) if isinstance(value, bool) else bare_text(value)
        match = _BEGINS_WITH_WORD.fullmatch(text or "")
        return _YES_AND_NO.get(YES_OR_NO.get(match[1].lower())) if match else None

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        return f"the answer {shown} is neither yes nor no"

    def read_truth(self, value: object, options: Options) -> str:
        """A word of YES_OR_NO, in either case, or true and false."""
        truth = str(value) if isinstance(value, bool) else super().read_truth(value, options)
        word = truth.lower()
        return truth if word in ("yes", "no") else _YES_AND_NO.get(YES_OR_NO.get(word), truth)

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        return None if truth.lower() in ("yes", "no") else "neither yes nor no (also ja, non, TRUE or FALSCH)"

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        return draw.choice(("yes", "no"))


@dataclass(frozen=True)
class Text(AnswerKind):
    """Any text, scored 1 if it equals the ground truth and 0 otherwise, as by default."""

    name = "text"

    def form(self, letters: Sequence[str]) -> str:
        return "a short text"

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        return plain_text(value) or None

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        return "the answer is empty"

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        return None if truth else "empty"

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        return "unknown"


@dataclass(frozen=True)
class Point(AnswerKind):
    """A position in the room: x, y and z in metres, in the coordinates of the camera's position that the model reads.
    The score is the share of 0.25, 0.5, 1 and 2 m that its distance from the ground truth does not exceed. A ground
    truth of x and y alone is a place on the floor plan; the height of the answer then does not matter. Source: nuScenes
    averages over 0.5, 1, 2 and 4 m between centres (arXiv:1903.11027, section 3.1); half as much suits rooms."""

    name = "point"
    in_scan_coordinates = True

    def form(self, letters: Sequence[str]) -> str:
        """Three coordinates as one text, so that a JSON schema of texts and numbers allows it."""
        return 'a position as the text "x, y, z" in m'

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        """ "1.5, -2, 0.4", "(1.5 -2 0.4)", "1.5 m, -2 m, 0.4 m" and the list [1.5, -2, 0.4] are valid."""
        return _point_text(plain_text(_one_text(value)) or "", (3,))

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        return f"the answer {shown} is not three coordinates x, y, z in m"

    def read_truth(self, value: object, options: Options) -> str:
        return AnswerKind.read_truth(self, _one_text(value), options)  # also that of poses

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        return None if _point_text(truth, (2, 3)) else "not two or three coordinates in m, such as 1.5, -2, 0.4"

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        """A place within 3 m of the origin, at most 2 m high."""
        return self.guess_near(draw, letters, (0.0, 0.0, 0.0))

    def guess_near(self, draw: random.Random, letters: Sequence[str], place: Sequence[float]) -> str:
        """A place within 3 m of another one (x, y, z) on the floor, at most 2 m above it."""
        x, y, z = place
        return f"{x + draw.uniform(-3, 3):.1f}, {y + draw.uniform(-3, 3):.1f}, {z + draw.uniform(0, 2):.1f}"

    def in_words(self, answer: str, truth: str | None = None) -> str:
        distance = None if truth is None else _distance_m(answer, truth)
        return f"{answer} m" + ("" if distance is None else f", {distance:.2f} m off")

    def score(self, answer: str | float | None, truth: str) -> float:
        """The share of POINT_THRESHOLDS_M within which the answer is."""
        distance = _distance_m(answer, truth)
        return 0.0 if distance is None else sum(distance <= limit for limit in POINT_THRESHOLDS_M) / 4

    def more_scores(self, answer: str | float | None, truth: str) -> dict[str, float]:
        """`distance_m`: the distance from the ground truth in metres."""
        distance = _distance_m(answer, truth)
        return {} if distance is None else {"distance_m": round(distance, 6)}

    def vote(self, answers: Sequence[str]) -> str:
        columns = zip(*(map(float, answer.split(",")) for answer in answers), strict=True)
        return ", ".join(f"{statistics.median(column):g}" for column in columns)


@dataclass(frozen=True)
class Pose(AnswerKind):
    """Where the camera is when the model says that it is there: the answer is the word "here". A ground truth is x, y
    and z in metres and heading and pitch in degrees, in the scan's coordinates; a sixth number is the length of the
    shortest free path from the start, metres. What is scored has the same numbers, with the length of its own path. The
    score is 1 within `near_m` and `near_deg` (between directions of view), else 0. Thresholds as in ViewSuite."""

    near_m: float = 0.25
    near_deg: float = 15.0
    wide_m: float = 0.5
    wide_deg: float = 30.0

    name = "pose"
    judges_camera = True

    def form(self, letters: Sequence[str]) -> str:
        return 'the word "here": where the camera then is and looks is your answer'

    def parse(self, value: object, letters: Sequence[str]) -> str | None:
        return "here" if matched_text(bare_text(value) or "") == "here" else None

    def why_invalid(self, shown: str, letters: Sequence[str]) -> str:
        return f'the answer {shown} is not the word "here"'

    read_truth = Point.read_truth

    def wrong_truth(self, truth: str, letters: Sequence[str]) -> str | None:
        numbers = _numbers(truth, (5, 6))
        if numbers is None:
            return (
                "not x, y, z, heading and pitch, such as 1.5, -2, 1.5, 90, 0, perhaps with the shortest path's metres"
            )
        if abs(numbers[3]) > 360 or abs(numbers[4]) > 90:
            return "no pose: a heading is from -360 to 360 degrees, and a pitch from -90 to 90"
        return "no pose: the shortest path, its last number, is below 0 m" if min(numbers[5:], default=0) < 0 else None

    def guess(self, draw: random.Random, letters: Sequence[str]) -> str:
        return "here"

    def in_words(self, answer: str, truth: str | None = None) -> str:
        """How far a pose is from the truth, "3.2 m and 18 degrees off"; without one, where it is."""
        apart = self.apart(answer, truth or answer)
        if apart is None:
            return answer
        if truth is None:
            words = "x {:.2f}, y {:.2f}, z {:.2f} m, heading {:.0f}, pitch {:.0f} degrees"
            return words.format(*self.place(answer) or ())
        digits = 1 if apart[0] >= 1 else 2
        return f"{apart[0]:.{digits}f} m and {counted(round(apart[1]), 'degree')} off"

    def apart(self, answer: str | float | None, truth: str) -> tuple[float, float] | None:
        """Metres and degrees between two poses; None without an answer."""
        pose = _numbers(str(answer or ""), (5, 6))
        goal = _numbers(truth, (5, 6))
        if goal is None:
            raise ValueError(f"ground truth {truth!r} must be x, y, z, heading and pitch")
        if pose is None:
            return None
        turn, look = map(math.radians, pose[3:5])
        goal_turn, goal_look = map(math.radians, goal[3:5])
        turned = math.cos(look) * math.cos(goal_look) * math.sin((turn - goal_turn) / 2) ** 2
        angle = 2 * math.asin(math.sqrt(min(1.0, math.sin((look - goal_look) / 2) ** 2 + turned)))  # haversine
        return math.dist(pose[:3], goal[:3]), math.degrees(angle)

    def score(self, answer: str | float | None, truth: str) -> float:
        return float(_within(self.apart(answer, truth), self.near_m, self.near_deg))

    def more_scores(self, answer: str | float | None, truth: str) -> dict[str, float]:
        """`distance_m` and `angle_deg` from the ground truth, `success_wide` within `wide_m` and `wide_deg`, and `spl`,
        the score times the shortest path over the own one, if that is not shorter (arXiv:1807.06757)."""
        apart = self.apart(answer, truth)
        scores = {"success_wide": float(_within(apart, self.wide_m, self.wide_deg))}
        if apart is not None:
            scores |= {"distance_m": round(apart[0], 6), "angle_deg": round(apart[1], 6)}
        if (shortest := _numbers(truth, (6,))) is not None:
            own = _numbers(str(answer or ""), (6,)) or [math.inf]
            share = shortest[-1] / own[-1] if own[-1] > shortest[-1] else 1.0
            scores["spl"] = round(self.score(answer, truth) * share, 6)
        return scores

    def vote(self, answers: Sequence[str]) -> str:
        """The one nearest to all: metres, and degrees as ViewSuite weighs them, 60 to a metre."""
        apart = {answer: [self.apart(answer, other) or (math.inf, 0.0) for other in answers] for answer in answers}
        return min(apart, key=lambda answer: sum(metres + degrees / 60 for metres, degrees in apart[answer]))


def _within(apart: tuple[float, float] | None, most_m: float, most_deg: float) -> bool:
    return apart is not None and apart[0] <= most_m + 1e-9 and apart[1] <= most_deg + 1e-9


LETTER_KIND = Letter()
YES_NO_KIND = YesNo()
TEXT_KIND = Text()
POINT_KIND = Point()
POSE_KIND = Pose()
_KINDS = {kind.name: kind for kind in (LETTER_KIND, Number(), YES_NO_KIND, TEXT_KIND, POINT_KIND, POSE_KIND)}
KIND_NAMES = tuple(_KINDS)  # what the column `answer_kind` of question files takes


def kind_named(name: str, unit: str = "") -> AnswerKind:
    """The kind for a name of KIND_NAMES; raises ValueError for another name, or for a unit of anything but a number."""
    if name == Number.name:
        return Number(unit)
    if unit:
        instead = f"not {name}" if name else "and answer_kind is empty"
        raise ValueError(f"unit {unit!r} is for answers of kind number, {instead}")
    if name not in _KINDS:
        raise ValueError(f"answer_kind {name!r} is unknown; the kinds are {', '.join(KIND_NAMES)}")
    return _KINDS[name]


def _relative_error(answer: str | float | None, truth: str) -> float | None:
    try:
        return None if answer is None else abs(float(first_word(answer)) - float(truth)) / float(truth)
    except ValueError:
        return None


def _one_text(value: object) -> object:
    return ", ".join(str(plain_text(part)) for part in value) if isinstance(value, list) else value


def _numbers(text: str, sizes: Sequence[int]) -> list[float] | None:
    """The numbers of a text of them, if there are as many as one of `sizes`."""
    parts = _point_text(text, sizes)
    return [float(part) for part in parts.split(", ")] if parts else None


def _point_text(text: str, sizes: Sequence[int]) -> str | None:
    """Coordinates separated by ", "; None unless there are as many as one of `sizes`, all finite numbers."""
    parts = [part for part in COORDINATES.split(text.strip(" ()[]")) if part]
    if len(parts) not in sizes or not all(NUMBER.fullmatch(part) and math.isfinite(float(part)) for part in parts):
        return None
    return ", ".join(parts)


def _distance_m(answer: str | float | None, truth: str) -> float | None:
    """Metres between two positions, on the floor plan if the ground truth has no height; None without an answer."""
    goal = _numbers(truth, (2, 3))
    place = _numbers(str(answer or ""), (3, len(goal or ())))
    if goal is None:
        raise ValueError(f"ground truth {truth!r} must be two or three coordinates in m")
    return None if place is None else math.dist(place[: len(goal)], goal)


def _is_positive(text: str) -> bool:
    try:
        return 0 < float(text) < math.inf
    except ValueError:
        return False


def matched_text(text: str) -> str:
    """A text without what an exact match ignores: case, further white space and a final period."""
    return " ".join(text.lower().split()).rstrip(".")
