"""Reads rows of question files as questions, and names everything that is wrong with them."""

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import NoReturn

from roomscout.base.loading import code_of_others
from roomscout.base.text import escaped
from roomscout.data.answers import AnswerKind, kind_named
from roomscout.data.benchmarks import Benchmark
from roomscout.data.options import place_in, read_options, written_options
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
    Row,
    column_meant,
    listed,
)
from roomscout.data.scan_frames import ScanFrame, scan_path
from roomscout.data.starts import Start

OWN_DATASET = "own"
"""The dataset of rows that name their scan file and no dataset."""
PLACE_COLUMNS = ("dataset", "scene_name")
MAX_ERRORS_SHOWN = 20
MAX_ROWS_NAMED = 10
"""Bad rows that a message lists; it counts the others."""
LIST = "the list of questions"
"""The name of a source that is a list."""


def row_of(question: object, number: int) -> Row | QuestionError:
    """A Question as a row that is AS_GIVEN; an error for anything else."""
    if not isinstance(question, Question):
        return QuestionError(
            f"{LIST}, question {number}: {repr(question)[:80]} is not a Question; make one with roomscout."
            "Question(id, dataset, scene_name, question_type, question), or pass a single text to ask"
        )
    if question.kind is not UNDECLARED and not hasattr(question.kind, "takes_options"):
        return QuestionError(
            f"{LIST}, question {number}: its kind is {question.kind!r}; import one from roomscout.data.answers, or "
            "leave it out"
        )
    options = list(question.options) if isinstance(question.options, tuple) else question.options
    declared = {} if question.kind is UNDECLARED else {"answer_kind": question.kind.name, "unit": question.kind.unit}
    columns = {name: getattr(question, name) for name in COLUMNS}
    start = question.start.to_json() if isinstance(question.start, Start) else question.start
    extra = list(question.extra_answers) if isinstance(question.extra_answers, tuple) else question.extra_answers
    more: Row = {EXTRA_ANSWERS: extra, START_COLUMN: start, **question.frame.columns}
    return {**columns, "options": options, SCAN_COLUMN: question.scan, AS_GIVEN: True, **declared, **more}


def is_as_given(row: Row | QuestionError) -> bool:
    """Whether a row comes from a Question and has its columns as they are."""
    return not isinstance(row, QuestionError) and row.get(AS_GIVEN) is True


def parse_all(rows: Iterable[NumberedRow], name: str, benchmark: Benchmark, noun: str = "row") -> list[Question]:
    """The questions of all rows of `name`; raises a QuestionError that lists all bad rows and how to fix them.

    Messages call a row a `noun`.
    """
    first_row: dict[str, int] = {}
    scans: dict[tuple[str, str], str] = {}
    loaded_as: dict[str | tuple[str, str], tuple[ScanFrame, int]] = {}
    questions, errors = [], list[str]()
    ours = [(number, _our_columns(row, f"{name}, {noun} {number}", benchmark)) for number, row in rows]
    counted_from = _counted_from(row for _, row in ours if not isinstance(row, QuestionError))
    for number, row in ours:
        try:
            if isinstance(row, QuestionError):
                raise row
            place = f"{name}, {noun} {number}"
            question = _parse_row(row, number, place, benchmark, counted_from)
            if question.id in first_row:
                raise QuestionError(
                    f"{name}, {noun} {number}: duplicate id {question.id}, also in {noun} {first_row[question.id]}; "
                    "give every question a unique id"
                )
            if (other := scans.setdefault(question.scene, question.scan)) != question.scan:
                one, two = (scan or "the file of that name" for scan in (question.scan, other))
                raise QuestionError(
                    f"{place}: scene {question.scene_name} has the scan {one}, and in another {noun} {two}; give the "
                    "scenes different names"
                )
            frame, elsewhere = loaded_as.setdefault(question.scan or question.scene, (question.frame, number))
            if frame != question.frame:
                raise QuestionError(
                    f"{place}: the scan of scene {question.scene_name} has {question.frame}, and in {noun} "
                    f"{elsewhere} {frame}; give every {noun} about a scan the same scale and up_axis"
                )
        except QuestionError as error:
            errors.append(escaped(str(error)))
            continue
        first_row[question.id] = number
        questions.append(question)
    if len(errors) > 1:
        listing = _by_reason([error.removeprefix(f"{name}, ") for error in errors])
        raise QuestionError("\n".join([f"{name} has {len(errors)} bad {noun}s:", *listing]))
    if errors:
        raise QuestionError(errors[0])
    if not questions:
        raise QuestionError(f"{name} is empty: it contains no questions")
    return questions


def _by_reason(errors: Sequence[str]) -> list[str]:
    """Errors such as "row 3 (id a): why" as lines, one for all rows with the same reason."""
    rows: dict[str, list[str]] = {}
    for error in errors:
        found = re.fullmatch(r"(\w+ \d+(?: \(id .*?\))?): (.*)", error)
        assert found, f"an error begins with its row: {error}"
        row, why = found.groups()
        rows.setdefault(why, []).append(row)
    lines = [f"  {listed(those, MAX_ROWS_NAMED)}: {why}" for why, those in rows.items()]
    more = [f"  and {len(lines) - MAX_ERRORS_SHOWN} more reasons"] if len(lines) > MAX_ERRORS_SHOWN else []
    return lines[:MAX_ERRORS_SHOWN] + more


def _our_columns(row: Row | QuestionError, place: str, benchmark: Benchmark) -> Row | QuestionError:
    """A row with our columns: read by the benchmark, unless it comes from a Question and has them already."""
    if isinstance(row, QuestionError) or is_as_given(row):
        return row
    try:
        return _read_by(benchmark, row, place)
    except QuestionError as error:
        return error


def _read_by(benchmark: Benchmark, row: Row, place: str) -> Row:
    has_scan = bool(str(row.get(SCAN_COLUMN) or "").strip())
    optional = (*OPTIONAL_COLUMNS, *PLACE_COLUMNS) if has_scan else OPTIONAL_COLUMNS
    missing = [column for column in benchmark.columns if column not in row and column not in optional]
    if missing:
        meant = {each: column_meant(each, missing) for each in row if each not in benchmark.all_columns}
        renamed = [f"rename {each} to {ours}" for each, ours in meant.items() if ours]
        fix = " and ".join(renamed) or f"{benchmark.title}'s columns are {listed(benchmark.columns)}"
        raise QuestionError(f"{place}: missing column {listed(missing)}; {fix}")
    try:
        with code_of_others(f"the read_row of {benchmark.title}", QuestionError, QuestionError):
            ours = benchmark.read_row(row)
    except QuestionError as error:
        raise QuestionError(f"{place}: {error}") from error.__cause__
    if not isinstance(ours, Mapping):
        raise QuestionError(f"{place}: the read_row of {benchmark.title} returned {ours!r}, not a mapping of columns")
    return ours


def _parse_row(row: Row, number: int, place: str, benchmark: Benchmark, counted_from: int | None) -> Question:
    scan = scan_path(_cell(row.get(SCAN_COLUMN), SCAN_COLUMN, place))
    if scan:
        given = {name: value for name, value in row.items() if name not in PLACE_COLUMNS or value}
        row = {"dataset": OWN_DATASET, "scene_name": str(Path(scan).with_suffix(""))} | given
    missing = [column for column in COLUMNS if column not in row and column not in OPTIONAL_COLUMNS]
    if missing:
        raise QuestionError(f"{place}: the read_row of {benchmark.title} leaves out {listed(missing)}")
    question_id = _name(row.get("id", number), "id", place)
    place = f"{place} (id {question_id})"
    with at(place):
        frame = ScanFrame.read(row.get(SCALE_COLUMN), row.get(UP_AXIS_COLUMN))
        options = read_options(written_options(row.get("options")))
    text = row["question"]
    question = Question(
        id=question_id,
        dataset=_name(row["dataset"], "dataset", place),
        scene_name=_name(row["scene_name"], "scene_name", place),
        question_type=_name(row["question_type"], "question_type", place),
        question=text if isinstance(text, str) else "",
        options=options.lettered,
        kind=_declared_kind(row, place, benchmark),
        scan=scan,
        extra_answers=_extra_answers(row.get(EXTRA_ANSWERS), place),
        scale=frame.scale,
        up_axis=frame.up_axis,
    )
    with at(place):
        question = with_kind(replace(question, start=Start.read(row.get(START_COLUMN))), benchmark)
    check_content(question, place)
    truth = row["ground_truth"]
    if _is_missing(truth):
        if truth == "" or not is_as_given(row):
            _refuse_truth(question, truth, "missing; fix it or remove the question", place)
        return question
    options = replace(options, counted_from=counted_from)
    try:
        with question.kind_code("read_truth"):
            read = question.kind.read_truth(truth, options)
    except (ValueError, AnswerKindError) as error:
        _refuse_truth(question, truth, str(error), place)
    question = replace(question, ground_truth=read)
    _check_unicode(read, place)
    if wrong := why_no_truth(question):
        _refuse_truth(question, read, f"{wrong}; fix it or remove the question", place)
    return question


def _counted_from(rows: Iterable[Row]) -> int | None:
    """Whether ground truths that are the numbers of options count from 0 or from 1; None if no row tells."""
    begin_at_0 = begin_at_1 = False
    for row in rows:
        truth = row.get("ground_truth")
        if isinstance(truth, bool) or not re.fullmatch(r"\d{1,2}(?:\.0)?", str(truth).strip()):
            continue
        try:
            options = read_options(written_options(row.get("options")))
        except ValueError:  # reported with its row
            continue
        place = place_in(str(truth).strip().removesuffix(".0"), options)
        begin_at_0 |= place == 0
        begin_at_1 |= place is not None and place == len(options.lettered) > 0
    return None if begin_at_0 == begin_at_1 else int(begin_at_1)


@contextmanager
def at(place: str) -> Iterator[None]:
    """Names the place in errors of what is read there."""
    try:
        yield
    except (ValueError, QuestionError) as error:
        raise QuestionError(f"{place}: {error}") from None


def _extra_answers(value: object, place: str) -> tuple[str, ...]:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ()
    try:
        texts = written_options(value) if isinstance(value, str) else value
    except ValueError:
        texts = value
    if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
        raise QuestionError(f"{place}: extra_answers are {value!r}; they must be a list of texts")
    return tuple(texts)


def _declared_kind(row: Row, place: str, benchmark: Benchmark) -> AnswerKind:
    """The kind in the columns `answer_kind` and `unit`; UNDECLARED if both are absent or empty."""
    kind, unit = (_cell(row.get(name), name, place) for name in ("answer_kind", "unit"))
    if not kind and not unit:
        return UNDECLARED
    with at(place):
        return kind_of_columns(kind, unit, str(row["question_type"]).strip(), benchmark)[0]


def _cell(value: object, column: str, place: str) -> str:
    """An optional text; empty for an empty cell of any format."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if not isinstance(value, str):
        raise QuestionError(f"{place}: {column} is {value!r}; it must be text")
    if not _is_unicode(value):
        raise QuestionError(f"{place}: {column} {value!r} contains an unpaired surrogate; write it as UTF-8")
    return value.strip()


def _name(value: object, column: str, place: str) -> str:
    """An id or a name as text. Writes whole floats without ".0", which is exact below 2**53."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    if isinstance(value, Integral) and not isinstance(value, bool):  # also numpy's integers
        return str(int(value))
    if isinstance(value, str) and value.strip() and _is_unicode(value):
        return value.strip()
    raise QuestionError(f"{place}: {column} is {value!r}; it must be text or a whole number")


def check_content(question: Question, place: str) -> None:
    """Raise QuestionError for text or options that no question may have."""
    if not question.question.strip():
        raise QuestionError(f"{place}: the question is empty or not text")
    for text in (question.question, *question.options):
        _check_unicode(text, place)
    if question.kind.takes_options:
        _check_options(question, place)
    elif question.options:
        raise QuestionError(f"{place}: {question.question_type} takes no options, but has {listed(question.options)}")


def _check_unicode(text: str, place: str) -> None:
    if not _is_unicode(text):
        raise QuestionError(f"{place}: {text!r} contains an unpaired surrogate; write the text as UTF-8")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_options(question: Question, place: str) -> None:
    if len(question.options) < 2:
        raise QuestionError(
            f"{place}: {question.question_type} needs at least two options, but has {len(question.options)}"
        )
    if len(set(question.letters)) < len(question.letters):
        raise QuestionError(f"{place}: options have duplicate letters ({listed(question.letters)})")


def _refuse_truth(question: Question, truth: object, why: str, place: str) -> NoReturn:
    raise QuestionError(f"{place}: ground_truth {truth!r} of a question of type {question.question_type} is {why}")


def _is_missing(value: object) -> bool:
    """Whether a cell is empty, in any format."""
    return value is None or (isinstance(value, float) and math.isnan(value)) or value == ""


def kind_of_columns(name: str, unit: str, question_type: str, benchmark: Benchmark) -> tuple[AnswerKind, bool]:
    """The kind of this name and unit, and whether it is that of the type in the benchmark; raises ValueError."""
    known = benchmark.type_of(question_type)
    if known is not None and (known.kind.name, known.kind.unit) == (name, unit):
        return known.kind, True
    return kind_named(name, unit), False
