"""Reads rows of question files as questions, and names everything that is wrong with them."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import Any

from roomscout.base.loading import code_of_others
from roomscout.base.text import escaped
from roomscout.data.answers import AnswerKind, kind_named
from roomscout.data.benchmark import Benchmark
from roomscout.data.options import read_options
from roomscout.data.question import UNDECLARED, AnswerKindError, Question, why_no_truth, with_kind
from roomscout.data.question_files import (
    AS_GIVEN,
    COLUMNS,
    EXTRA_ANSWERS,
    OPTIONAL_COLUMNS,
    SCALE_COLUMN,
    SCAN_COLUMN,
    START_COLUMN,
    UP_AXIS_COLUMN,
    NumberedRow,
    QuestionError,
    QuestionRow,
    listed,
)
from roomscout.data.scan_frames import ScanFrame, scan_path
from roomscout.data.starts import Start

OWN_DATASET = "own"
"""The dataset of rows that name their scan file and no dataset."""
SCENE_COLUMNS = ("dataset", "scene_name")
MAX_ERRORS_SHOWN = 20
LIST = "the list of questions"
"""The name of a source that is a list."""


def row_of(question: Question) -> dict[str, Any]:
    """A question as a row that is AS_GIVEN, with its kind of answer and its scan."""
    kind = {} if question.kind is UNDECLARED else {"answer_kind": question.kind.name, "unit": question.kind.unit}
    scan = {SCAN_COLUMN: question.scan} if question.scan else {}
    return {**question.row, **kind, **scan, AS_GIVEN: True}


def is_as_given(row: QuestionRow | QuestionError) -> bool:
    """Whether a row comes from a Question and has its columns as they are."""
    return not isinstance(row, QuestionError) and row.get(AS_GIVEN) is True


def parse_all(rows: Iterable[NumberedRow], name: str, benchmark: Benchmark, noun: str = "row") -> list[Question]:
    """The questions of all rows of `name` that the benchmark asks, in its order.

    Raises a QuestionError that lists the first bad rows and how to fix them. Messages call a row a `noun`.
    """
    first_row: dict[str, int] = {}
    scans: dict[tuple[str, str], str] = {}
    frames: dict[str | tuple[str, str], ScanFrame] = {}
    questions, errors = list[Question](), list[str]()
    for number, row in rows:
        place = f"{name}, {noun} {number}"
        try:
            ours = _in_our_columns(row, place, benchmark)
            if ours is None:
                continue
            question = _parse_row(ours, number, place, benchmark)
            with at(f"{place} (id {question.id})"):
                if question.id in first_row:
                    raise QuestionError(f"{noun} {first_row[question.id]} has the same id")
                if scans.setdefault(question.scene, question.scan) != question.scan:
                    raise QuestionError(f"scene {question.scene_name} has another scan in an earlier {noun}")
                if frames.setdefault(question.scan or question.scene, question.frame) != question.frame:
                    raise QuestionError(f"its scan has another scale or up_axis in an earlier {noun}")
        except QuestionError as error:
            errors.append(escaped(str(error)))
            continue
        first_row[question.id] = number
        questions.append(question)
    if len(errors) > 1:
        shown = [f"  {error.removeprefix(f'{name}, ')}" for error in errors[:MAX_ERRORS_SHOWN]]
        more = [f"  and {len(errors) - len(shown)} more"] if len(errors) > len(shown) else []
        raise QuestionError("\n".join([f"{name} has {len(errors)} bad {noun}s:", *shown, *more]))
    if errors:
        raise QuestionError(errors[0])
    if not questions:
        raise QuestionError(f"{name} is empty: it contains no questions")
    return questions


def _in_our_columns(row: QuestionRow | QuestionError, place: str, benchmark: Benchmark) -> QuestionRow | None:
    """A row as the benchmark's `read_row` reads it; None if the benchmark does not ask it."""
    if isinstance(row, QuestionError):
        raise row
    if is_as_given(row):
        return row
    with at(place):
        optional = (*OPTIONAL_COLUMNS, *SCENE_COLUMNS) if row.get(SCAN_COLUMN) else OPTIONAL_COLUMNS
        if missing := [column for column in benchmark.columns if column not in row and column not in optional]:
            columns = listed(benchmark.columns)
            raise QuestionError(f"missing column {listed(missing)}; {benchmark.title}'s columns are {columns}")
        with code_of_others(f"the asks of {benchmark.title}", QuestionError, (QuestionError, ValueError)):
            if not benchmark.asks(row):
                return None
        with code_of_others(f"the read_row of {benchmark.title}", QuestionError, QuestionError):
            ours = benchmark.read_row(row)
        if not isinstance(ours, Mapping):
            raise QuestionError(f"the read_row of {benchmark.title} returned {ours!r}, not a mapping of columns")
        return ours


def _parse_row(row: QuestionRow, number: int, place: str, benchmark: Benchmark) -> Question:
    with at(place):
        if scan := scan_path(_text(row, SCAN_COLUMN)):
            given = {name: value for name, value in row.items() if name not in SCENE_COLUMNS or value}
            row = {"dataset": OWN_DATASET, "scene_name": str(Path(scan).with_suffix("")), **given}
        if missing := [name for name in COLUMNS if name not in row and name not in OPTIONAL_COLUMNS]:
            raise QuestionError(f"the read_row of {benchmark.title} leaves out {listed(missing)}")
        question_id = _name({"id": number, **row}, "id")
    with at(f"{place} (id {question_id})"):
        options = read_options(row.get("options"))
        frame = ScanFrame.read(row.get(SCALE_COLUMN), row.get(UP_AXIS_COLUMN))
        question = Question(
            id=question_id,
            dataset=_name(row, "dataset"),
            scene_name=_name(row, "scene_name"),
            question_type=_name(row, "question_type"),
            question=_text(row, "question"),
            options=options.lettered,
            scan=scan,
            start=Start.read(row.get(START_COLUMN)),
            extra_answers=_extra_answers(row.get(EXTRA_ANSWERS)),
            scale=frame.scale,
            up_axis=frame.up_axis,
        )
        question = with_kind(replace(question, kind=_declared_kind(row, benchmark)), benchmark)
        check_content(question)
        truth = row["ground_truth"]
        if truth is None and is_as_given(row):
            return question
        try:
            with question.kind_code("read_truth"):
                question = replace(question, ground_truth=question.kind.read_truth(truth, options))
            _require_unicode(str(question.ground_truth))
            wrong = why_no_truth(question)
        except (ValueError, AnswerKindError) as error:
            wrong = str(error)
        if wrong:
            raise QuestionError(f"ground_truth {truth!r} of a question of type {question.question_type} is {wrong}")
        return question


@contextmanager
def at(place: str) -> Iterator[None]:
    """Names the place in errors of what is read there."""
    try:
        yield
    except (ValueError, QuestionError) as error:
        raise QuestionError(f"{place}: {error}") from error.__cause__


def _extra_answers(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise QuestionError(f"extra_answers are {value!r}; they must be a list of texts")
    return tuple(value)


def _declared_kind(row: QuestionRow, benchmark: Benchmark) -> AnswerKind:
    """The kind in the columns `answer_kind` and `unit`; UNDECLARED if both are absent or empty."""
    kind, unit = _text(row, "answer_kind"), _text(row, "unit")
    if not kind and not unit:
        return UNDECLARED
    return kind_of_columns(kind, unit, _name(row, "question_type"), benchmark)[0]


def _text(row: QuestionRow, column: str) -> str:
    """A text; empty for an empty cell of any format."""
    value = row.get(column)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise QuestionError(f"{column} is {value!r}; it must be text")
    _require_unicode(value)
    return value if column == "question" else value.strip()


def _name(row: QuestionRow, column: str) -> str:
    """An id or a name as text. Writes whole floats without ".0", which is exact below 2**53."""
    value = row[column]
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, Integral) and not isinstance(value, bool):  # also numpy's integers
        return str(int(value))
    if isinstance(value, str) and value.strip():
        return _text(row, column)
    raise QuestionError(f"{column} is {value!r}; it must be text or a whole number")


def check_content(question: Question) -> None:
    """Raise QuestionError for text or options that no question may have."""
    if not question.question.strip():
        raise QuestionError("the question is empty")
    for text in (question.question, *question.options):
        _require_unicode(text)
    if not question.kind.takes_options and question.options:
        raise QuestionError(f"{question.question_type} takes no options, but has {listed(question.options)}")
    if question.kind.takes_options and len(question.options) < 2:
        raise QuestionError(f"{question.question_type} needs at least two options, but has {len(question.options)}")
    if len(set(question.letters)) < len(question.letters):
        raise QuestionError(f"options have duplicate letters ({listed(question.letters)})")


def _require_unicode(text: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise QuestionError(f"{text!r} contains an unpaired surrogate; write the text as UTF-8")


def kind_of_columns(name: str, unit: str, question_type: str, benchmark: Benchmark) -> tuple[AnswerKind, bool]:
    """The kind of this name and unit, and whether it is that of the type in the benchmark; raises ValueError."""
    known = benchmark.type_of(question_type)
    if known is not None and (known.kind.name, known.kind.unit) == (name, unit):
        return known.kind, True
    return kind_named(name, unit), False
