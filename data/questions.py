"""The ten VSI-Bench question types, and questions from the hub, a file or the command line."""

import ast
import hashlib
import json
import logging
import math
import re
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Literal

from data.question_files import (
    COLUMNS,
    HUB_DATASET,
    OPTIONAL_COLUMNS,
    NumberedRow,
    QuestionError,
    Row,
    file_rows,
    hub_rows,
    listed,
)
from data.text import escaped

__all__ = [
    "CHOICE_TYPES",
    "NUMERIC_TYPES",
    "OPEN_CHOICE_TYPE",
    "OPEN_TYPE",
    "OPEN_TYPES",
    "QUESTION_TYPES",
    "VIDEO_ONLY_TYPES",
    "Question",
    "QuestionError",
    "QuestionType",
    "ask_one",
    "fingerprint",
    "load_questions",
    "normalized",
    "saved",
]

logger = logging.getLogger(__name__)

MAX_ERRORS_SHOWN = 20
"""Bad rows that a message lists; it counts the others."""
AS_GIVEN = "as_given"
"""A column that is true in files of Question objects (`saved`). Such a row may also have a type of OPEN_TYPES and a
`ground_truth` of null, and is asked even if its type is in VIDEO_ONLY_TYPES: whoever listed it wanted it asked."""

Metric = Literal["mra", "accuracy"]
Family = Literal["counting", "distance", "size", "room_size", "nearest", "direction", "route", "order", "open"]


@dataclass(frozen=True)
class QuestionType:
    """A question type: its metric, its unit and VSI-Bench's wording of it.

    `metric` is "mra" (mean relative accuracy of a number), "accuracy" (of a letter) or None (not scored). `unit` is
    empty if answers have none. `wording` is a case-insensitive regular expression that the beginning of a question
    matches.
    """

    name: str
    family: Family
    metric: Metric | None
    unit: str = ""
    wording: str = ""

    @property
    def task(self) -> str:
        """The benchmark task of this type. The three direction types share one task."""
        return "object_rel_direction" if self.family == "direction" else self.name


_FROM = r"(measuring from the closest point of each object, )?"
_FACING = r"if i am standing by .+ and facing .+, is .+ to "
_TYPES = (
    QuestionType(
        "object_counting", "counting", "mra", "objects", r"how many .+ (are|is)( there)? in (this|the) room\W*$"
    ),
    QuestionType(
        "object_abs_distance", "distance", "mra", "m", _FROM + r"what is the distance between .+\(in meters\)"
    ),
    QuestionType(
        "object_size_estimation", "size", "mra", "cm", r"what is the length of the longest dimension .+ centimeters"
    ),
    QuestionType(
        "room_size_estimation", "room_size", "mra", "m²", r"what is the size of (this|the) room \(?in square meters"
    ),
    QuestionType(
        "object_rel_distance", "nearest", "accuracy", "", _FROM + r"which of these objects .+ is the closest to "
    ),
    QuestionType("object_rel_direction_easy", "direction", "accuracy", "", _FACING + "the left or the right of "),
    QuestionType("object_rel_direction_medium", "direction", "accuracy", "", _FACING + "my left, right, or back"),
    QuestionType(
        "object_rel_direction_hard", "direction", "accuracy", "", _FACING + "my front-left, front-right, back-left"
    ),
    QuestionType("route_planning", "route", "accuracy", "", r"you are a robot beginning at .+\[please fill in\]"),
    QuestionType("obj_appearance_order", "order", "accuracy", "", "what will be the first-time appearance order of "),
)
# Published with VSI-Bench (Yang et al., "Thinking in Space", arXiv:2412.14171); in the order of its tables.
QUESTION_TYPES: dict[str, QuestionType] = {kind.name: kind for kind in _TYPES}
NUMERIC_TYPES = frozenset(name for name, kind in QUESTION_TYPES.items() if kind.metric == "mra")
CHOICE_TYPES = frozenset(name for name, kind in QUESTION_TYPES.items() if kind.metric == "accuracy")
# Asks for an order in the video that the scan was made from, which the scan does not show.
VIDEO_ONLY_TYPES = frozenset({"obj_appearance_order"})
# The user's own questions: open ones take any text and are not scored; multiple-choice ones are scored by letter. They
# count towards no benchmark task, and only question files with AS_GIVEN may use them.
OPEN_TYPE = QuestionType("open", "open", None)
OPEN_CHOICE_TYPE = QuestionType("open_choice", "open", "accuracy")
OPEN_TYPES: dict[str, QuestionType] = {kind.name: kind for kind in (OPEN_TYPE, OPEN_CHOICE_TYPE)}

_LETTERED_OPTION = re.compile(r"\s*\(?([A-Z])[.):]\s+\S")


@dataclass(frozen=True)
class Question:
    """A question about a scan. The fields are VSI-Bench's columns.

    `options` include their letters ("A. Turn Back") and are empty for numeric and open questions. `ground_truth` is a
    letter, a number as text, or None if unknown: the question is then asked but not scored. Not validated here, but
    by `load_questions` and `normalized`.
    """

    id: str
    dataset: str
    scene_name: str
    question_type: str
    question: str
    options: tuple[str, ...] = ()
    ground_truth: str | None = None

    @property
    def kind(self) -> QuestionType:
        """The question's entry in QUESTION_TYPES or OPEN_TYPES."""
        return OPEN_TYPES.get(self.question_type) or QUESTION_TYPES[self.question_type]

    @property
    def scene(self) -> tuple[str, str]:
        """The dataset and the scene's name, which identify a scan."""
        return self.dataset, self.scene_name

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the options, in order."""
        found = (_LETTERED_OPTION.match(option) for option in self.options)
        return tuple(match[1] for match in found if match)

    @property
    def is_numeric(self) -> bool:
        """Whether the answer is a number in `unit`."""
        return self.kind.metric == "mra"

    @property
    def is_choice(self) -> bool:
        """Whether the answer is one of `letters`."""
        return self.kind.metric == "accuracy"

    @property
    def unit(self) -> str:
        """The unit of a numeric answer; empty for other questions."""
        return self.kind.unit


def load_questions(
    source: Path | None,
    *,
    datasets: Sequence[str] = (),
    question_types: Sequence[str] = (),
    scenes: Sequence[str] = (),
    ids: Sequence[str] = (),
    num_questions: int | None = None,
) -> list[Question]:
    """Load and filter the questions of `source`, in its order.

    `source` is a .jsonl, .json, .csv or .parquet file with VSI-Bench's columns (COLUMNS; ignores others), or None for
    the test split of nyu-visionx/VSI-Bench on the Hugging Face hub. Questions must pass all filters; an empty filter
    passes everything. Excludes VIDEO_ONLY_TYPES unless `question_types` names them or the row is AS_GIVEN. Returns the
    first `num_questions` of the remaining questions.

    The columns `id` and `options` are optional: the id defaults to the row number, the options to none. Messages
    count rows from 1: lines in a .jsonl file, else records without the header.

    Raises QuestionError if the source cannot be read, a filter value does not occur in it, no question remains, or rows
    are bad (missing column, unknown type, duplicate id, empty question, options or ground truth that do not fit the
    type). One message lists all bad rows.
    """
    if num_questions is not None and num_questions < 1:
        raise QuestionError(f"--num-questions must be at least 1, got {num_questions}")
    name = HUB_DATASET if source is None else str(source)
    rows = list(hub_rows() if source is None else file_rows(Path(source)))
    everything = _parse_all(rows, name)
    as_given = {question.id for question, (_, row) in zip(everything, rows, strict=True) if _is_as_given(row)}
    kept = everything
    for flag, wanted, column in (
        ("--datasets", datasets, "dataset"),
        ("--question-types", question_types, "question_type"),
        ("--scenes", scenes, "scene_name"),
        ("--ids", ids, "id"),
    ):
        if wanted:
            _require_present(everything, flag, wanted, column, name)
            chosen = frozenset(wanted)
            kept = [question for question in kept if getattr(question, column) in chosen]
    kept = _without_video_only(kept, question_types, as_given)
    if not kept:
        raise QuestionError(
            f"{name}: no question passes all of --datasets, --question-types, --scenes and --ids "
            f"({', '.join(sorted(VIDEO_ONLY_TYPES))} is excluded unless --question-types names it); relax a filter"
        )
    return kept[:num_questions]


def normalized(questions: Iterable[Question]) -> list[Question]:
    """Question objects as `load_questions` would return them from the file of `saved`, all of them and in order.

    Ids, names and types become text without blanks around it, as does a ground truth, and options a tuple.

    Raises QuestionError for no questions at all, for other objects, and for what `load_questions` refuses in a row that
    is AS_GIVEN. One message lists all bad questions, counted from 1, with their ids.
    """
    rows = ((number, _row_of(question, number)) for number, question in enumerate(questions, start=1))
    return _parse_all(rows, _LIST, "question")


def saved(questions: Iterable[Question]) -> str:
    """The contents of a .jsonl file from which `load_questions` reads these `normalized` questions again."""
    return "".join(json.dumps({**asdict(question), AS_GIVEN: True}) + "\n" for question in questions)


def ask_one(
    question: str,
    scene_name: str,
    options: Sequence[str] = (),
    question_type: str | None = None,
    ground_truth: str | None = None,
) -> Question:
    """Make a question from the user's own text about a scan.

    If `question_type` is None, a question in VSI-Bench's wording gets the matching type, provided that it has options
    for a multiple-choice type and none otherwise. Any other question is "open_choice" with options, "open" without. If
    no option has a letter, they get A, B, ... `ground_truth` may be an option's text instead of its letter.

    Raises QuestionError if question, type, options and ground truth do not fit together.
    """
    lettered = _with_letters(options)
    if ground_truth is not None:
        ground_truth = _letter_of_text(ground_truth, lettered)
    asked = Question(
        id="asked",
        dataset="asked",
        scene_name=scene_name,
        question_type=question_type or _type_of_wording(question, bool(lettered)),
        question=question,
        options=lettered,
        ground_truth=ground_truth,
    )
    if asked.question_type not in (*QUESTION_TYPES, *OPEN_TYPES):
        raise QuestionError(f"--question-type {question_type!r} is unknown: the types are {listed(QUESTION_TYPES)}")
    if asked.is_choice and len(lettered) < 2:
        raise QuestionError(f"--options: a multiple-choice question needs at least two, got {len(lettered)}")
    if lettered and not asked.is_choice:
        raise QuestionError(f"--options: a question of type {asked.question_type} takes none")
    _check_content(asked, "--options" if lettered and question.strip() else "--question")
    if ground_truth is not None:
        if asked.question_type == OPEN_TYPE.name:
            raise QuestionError(
                "--ground-truth cannot score free text: leave it out, or add --options or --question-type"
            )
        if asked.is_choice and ground_truth.upper() not in asked.letters:
            raise QuestionError(f"--ground-truth {ground_truth!r} is not one of --options ({listed(lettered)})")
        if asked.is_numeric and not _is_positive_number(ground_truth):
            raise QuestionError(
                f"--ground-truth {ground_truth!r} is not a number above 0, as type {asked.question_type} requires"
            )
    return asked


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 (64 hex digits) of all fields of all questions, in order."""
    content = json.dumps([asdict(question) for question in questions], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


# Filters


def _require_present(questions: list[Question], flag: str, wanted: Sequence[str], column: str, name: str) -> None:
    existing = dict.fromkeys(getattr(question, column) for question in questions)
    absent = [value for value in wanted if value not in existing]
    if absent:
        raise QuestionError(f"{flag}: {name} has no {listed(absent)}; it has {listed(existing)}")


def _without_video_only(
    questions: list[Question], question_types: Sequence[str], as_given: Container[str]
) -> list[Question]:
    """The questions that a scan can answer, those of `question_types`, and those whose ids are in `as_given`."""
    unwanted = VIDEO_ONLY_TYPES.difference(question_types)
    kept = [question for question in questions if question.question_type not in unwanted or question.id in as_given]
    if len(kept) < len(questions):
        logger.info(
            "Excluded all %s questions (%d): a scan does not show the order in the video; "
            "to include them, name the type with --question-types",
            listed(sorted(unwanted)),
            len(questions) - len(kept),
        )
    return kept


# The user's own question


def _with_letters(options: Sequence[str]) -> tuple[str, ...]:
    lettered = [bool(_LETTERED_OPTION.match(option)) for option in options]
    if any(lettered):
        return tuple(options)
    if len(options) > 26:
        raise QuestionError(f"--options: at most 26 are supported, got {len(options)}")
    return tuple(f"{chr(ord('A') + index)}. {option}" for index, option in enumerate(options))


def _letter_of_text(truth: str, options: Sequence[str]) -> str:
    """The letter of the only option whose text, with or without its letter, is `truth`; else `truth` itself.

    Ignores case.
    """
    matches = [match for option in options if (match := _LETTERED_OPTION.match(option))]
    wanted = truth.strip().lower()
    found = []
    for match in matches:
        option, text = match.string, match.string[match.end() - 1 :]
        if wanted in (option.strip().lower(), text.strip().lower()):
            found.append(match[1])
    if wanted.upper() in (match[1] for match in matches) or len(found) != 1:
        return truth
    logger.info("Ground truth %r is option %s", truth, found[0])
    return found[0]


def _type_of_wording(question: str, has_options: bool) -> str:
    for name, kind in QUESTION_TYPES.items():
        if (kind.metric == "accuracy") == has_options and re.match(kind.wording, question.strip(), re.I | re.S):
            return name
    return OPEN_CHOICE_TYPE.name if has_options else OPEN_TYPE.name


# From rows to questions


_LIST = "the list of questions"


def _row_of(question: object, number: int) -> Row | QuestionError:
    if not isinstance(question, Question):
        return QuestionError(
            f"{_LIST}, question {number}: {repr(question)[:80]} is not a Question; make one with data.questions."
            "Question(id, dataset, scene_name, question_type, question), or pass a single text to ask"
        )
    options = list(question.options) if isinstance(question.options, tuple) else question.options
    return {**{name: getattr(question, name) for name in COLUMNS}, "options": options, AS_GIVEN: True}


def _is_as_given(row: Row | QuestionError) -> bool:
    return not isinstance(row, QuestionError) and row.get(AS_GIVEN) is True


def _parse_all(rows: Iterable[NumberedRow], name: str, noun: str = "row") -> list[Question]:
    """The questions of all rows of `name`; raises a QuestionError that lists all bad rows and how to fix them.

    Messages call a row a `noun`.
    """
    first_row: dict[str, int] = {}
    questions, errors = [], list[str]()
    for number, row in rows:
        try:
            if isinstance(row, QuestionError):
                raise row
            question = _parse_row(row, number, f"{name}, {noun} {number}")
            if question.id in first_row:
                raise QuestionError(
                    f"{name}, {noun} {number}: duplicate id {question.id}, also in {noun} {first_row[question.id]}; "
                    "give every question a unique id"
                )
        except QuestionError as error:
            errors.append(escaped(str(error)))
            continue
        first_row[question.id] = number
        questions.append(question)
    if len(errors) > 1:
        listing = [f"  {error.removeprefix(f'{name}, ')}" for error in errors[:MAX_ERRORS_SHOWN]]
        more = [f"  and {len(errors) - MAX_ERRORS_SHOWN} more"] if len(errors) > MAX_ERRORS_SHOWN else []
        raise QuestionError("\n".join([f"{name} has {len(errors)} bad {noun}s:", *listing, *more]))
    if errors:
        raise QuestionError(errors[0])
    if not questions:
        raise QuestionError(f"{name} is empty: it contains no questions")
    return questions


def _parse_row(row: Row, number: int, place: str) -> Question:
    missing = [column for column in COLUMNS if column not in row and column not in OPTIONAL_COLUMNS]
    if missing:
        raise QuestionError(f"{place}: missing column {listed(missing)}; VSI-Bench's columns are {listed(COLUMNS)}")
    question_id = _name(row.get("id", number), "id", place)
    place = f"{place} (id {question_id})"
    text = row["question"]
    question = Question(
        id=question_id,
        dataset=_name(row["dataset"], "dataset", place),
        scene_name=_name(row["scene_name"], "scene_name", place),
        question_type=_name(row["question_type"], "question_type", place),
        question=text if isinstance(text, str) else "",
        options=_options(row.get("options"), place),
        ground_truth=_truth(row["ground_truth"], place),
    )
    _check_type(question, place, QUESTION_TYPES | OPEN_TYPES if _is_as_given(row) else QUESTION_TYPES)
    _check_content(question, place)
    if question.ground_truth is not None or not _is_as_given(row):
        _check_ground_truth(question, question.ground_truth, place)
    return question


def _name(value: object, column: str, place: str) -> str:
    """An id or a name as text. Writes whole floats without ".0", which is exact below 2**53."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, Integral) and not isinstance(value, bool):  # also numpy's integers
        return str(int(value))
    if isinstance(value, str) and value.strip() and _is_unicode(value):
        return value.strip()
    raise QuestionError(f"{place}: {column} is {value!r}; it must be text or a whole number")


def _truth(value: object, place: str) -> str | None:
    if value is None or isinstance(value, str):
        return value and value.strip()
    if isinstance(value, Real) and not isinstance(value, bool):
        return str(value)
    raise QuestionError(f"{place}: ground_truth is {value!r}; it must be text or a number")


_LITERAL = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""
# Lists as printed by Python, and by numpy, which omits commas.
_PRINTED_LIST = re.compile(rf"[\[(](?:[\s,]*(?:{_LITERAL}))*[\s,]*[\])]", re.S)


def _options(value: object, place: str) -> tuple[str, ...]:
    if isinstance(value, str):
        value = _options_from_text(value.strip(), place)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ()
    if not isinstance(value, list) or not all(isinstance(option, str) for option in value):
        raise QuestionError(
            f'{place}: options are {value!r}; they must be a list of strings such as ["A. left", "B. right"]'
        )
    return tuple(value)


def _options_from_text(text: str, place: str) -> object:
    if text.lower() in ("", "null", "none", "nan", "[]"):
        return None
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    with suppress(ValueError, SyntaxError):
        if _PRINTED_LIST.fullmatch(text):
            return [ast.literal_eval(literal) for literal in re.findall(_LITERAL, text, re.S)]
    raise QuestionError(f'{place}: options {text[:80]!r} are not a list; write JSON such as ["A. left", "B. right"]')


def _check_type(question: Question, place: str, types: Iterable[str]) -> None:
    if question.question_type not in types:
        raise QuestionError(f"{place}: unknown question_type {question.question_type!r}; the types are {listed(types)}")


def _check_content(question: Question, place: str) -> None:
    if not question.question.strip():
        raise QuestionError(f"{place}: the question is empty or not text")
    for text in (question.question, *question.options, question.ground_truth or ""):
        if not _is_unicode(text):
            raise QuestionError(f"{place}: {text!r} contains an unpaired surrogate; write the text as UTF-8")
    if question.is_choice:
        _check_options(question, place)
    elif question.options:
        raise QuestionError(f"{place}: {question.question_type} takes no options, but has {listed(question.options)}")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_options(question: Question, place: str) -> None:
    if len(question.options) < 2:
        raise QuestionError(
            f"{place}: {question.question_type} needs at least two options, but has {len(question.options)}"
        )
    bare = [option for option in question.options if not _LETTERED_OPTION.match(option)]
    if bare:
        raise QuestionError(f"{place}: option {bare[0]!r} has no letter or no text; write it as 'A. {bare[0].strip()}'")
    if len(set(question.letters)) < len(question.letters):
        raise QuestionError(f"{place}: options have duplicate letters ({listed(question.letters)})")


def _check_ground_truth(question: Question, truth: str | None, place: str) -> None:
    if question.is_choice and (truth is None or truth.upper() not in question.letters):
        raise QuestionError(f"{place}: ground_truth {truth!r} is not one of the letters {listed(question.letters)}")
    if question.is_numeric and not _is_positive_number(truth):
        raise QuestionError(
            f"{place}: ground_truth {truth!r} of a {question.question_type} question is not a finite number above 0, "
            "which relative accuracy requires; fix it or remove the question"
        )


def _is_positive_number(text: str | None) -> bool:
    try:
        return text is not None and 0 < float(text) < math.inf
    except ValueError:
        return False
