"""Reads rows of question files as questions, and names everything that is wrong with them."""

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, TypeGuard

from pydantic import BeforeValidator, StringConstraints

from roomscout.base.loading import code_of_others
from roomscout.base.record import Record
from roomscout.base.text import counted, escaped, listed
from roomscout.data.answers import AnswerKind, kind_named
from roomscout.data.benchmark import Benchmark
from roomscout.data.options import Options, read_options
from roomscout.data.pictures import Picture
from roomscout.data.question import UNDECLARED, AnswerKindError, Question, why_no_truth, with_kind
from roomscout.data.question_files import AS_GIVEN, COLUMNS, OPTIONAL_COLUMNS, NumberedRow, QuestionError, QuestionRow
from roomscout.data.scan_frames import ScanFrame, Start, is_empty, scan_path

log = logging.getLogger(__name__)

OWN_DATASET = "own"  # the dataset of rows that name their scan file and no dataset
SCENE_COLUMNS = ("dataset", "scene_name")
MAX_ERRORS_SHOWN = 20
LIST = "the list of questions"  # the name of a source that is a list


def row_of(question: Question) -> dict[str, Any]:
    """A question as a row that is AS_GIVEN, with its kind of answer and its scan."""
    kind = {} if question.kind is UNDECLARED else {"answer_kind": question.kind.name, "unit": question.kind.unit}
    scan = {"scan": question.scan} if question.scan else {}
    return {**question.row, **kind, **scan, AS_GIVEN: True}


def restored(row: Mapping[str, Any], benchmark: Benchmark) -> Question:
    """The question of which `row_of` made a row; its kind is that of its type in the benchmark if both are equal."""
    kind, of_type = kind_of_columns(row["answer_kind"], row["unit"], row["question_type"], benchmark)
    return Question(
        **{name: row[name] for name in COLUMNS} | {"options": tuple(row["options"])},
        kind=kind,
        declares_kind=not of_type,
        scan=row.get("scan", ""),
        start=Start.read(row.get("start")),
        extra_answers=tuple(row.get("extra_answers", ())),
        scale=row.get("scale"),
        up_axis=row.get("up_axis"),
        images=Picture.read(row.get("images")),
    )


def is_as_given(row: QuestionRow | QuestionError) -> TypeGuard[QuestionRow]:
    """Whether a row comes from a Question and has its columns as they are."""
    return not isinstance(row, QuestionError) and row.get(AS_GIVEN) is True


def parse_all(
    rows: Iterable[NumberedRow], name: str, benchmark: Benchmark, noun: str = "row", source: Path | None = None
) -> list[Question]:
    """The questions of all rows of `name` that the benchmark asks; one QuestionError lists the bad rows, as `noun`s.
    Pictures get their paths, which count from the file or folder `source`, None for code, and their hashes."""
    first_row: dict[str, int] = {}
    scans: dict[tuple[str, str], str] = {}
    frames: dict[str | tuple[str, str], ScanFrame] = {}
    questions = list[Question]()
    left_out = Counter[str]()
    errors = list[str]()
    for number, row in rows:
        place = f"{name}, {noun} {number}"
        try:
            if isinstance(row, QuestionError):
                raise row
            if not is_as_given(row):
                if why := _why_left_out(row, place, benchmark):
                    left_out[why] += 1
                    continue
                with at(place), code_of_others(f"the read_row of {benchmark.title}", QuestionError, QuestionError):
                    row = benchmark.read_row(row)
            question = _parse_row(row, number, place, benchmark, source)
            with at(f"{place} (id {question.id})"):
                if question.id in first_row:
                    raise QuestionError(f"{noun} {first_row[question.id]} has the same id")
                if scans.setdefault(question.scene, question.scan) != question.scan:
                    raise QuestionError(f"scene {question.scene_name} has another scan in an earlier {noun}")
                if frames.setdefault(question.scan or question.scene, question.frame) != question.frame:
                    raise QuestionError(f"its scan has another scale or up_axis in an earlier {noun}")
            first_row[question.id] = number
            questions.append(question)
        except QuestionError as error:
            errors.append(escaped(str(error)))
    if len(errors) > 1:
        lines = [f"{name} has {len(errors)} bad {noun}s:"]
        lines += [f"  {error.removeprefix(f'{name}, ')}" for error in errors[:MAX_ERRORS_SHOWN]]
        if len(errors) > MAX_ERRORS_SHOWN:
            lines.append(f"  and {len(errors) - MAX_ERRORS_SHOWN} more")
        raise QuestionError("\n".join(lines))
    if errors:
        raise QuestionError(errors[0])
    reasons = [f"{counted(count, noun)} left out since {why}" for why, count in left_out.items()]
    if not questions:
        raise QuestionError(f"{name} is empty: " + (", ".join(reasons) or "it contains no questions"))
    for reason in reasons:
        log.info("%s: %s", name, reason)
    return questions


def _why_left_out(row: QuestionRow, place: str, benchmark: Benchmark) -> str:
    """Why the benchmark does not ask a row; empty if it does. Raises QuestionError for a row without its columns."""
    with at(place):
        optional = (*OPTIONAL_COLUMNS, *SCENE_COLUMNS) if row.get("scan") else OPTIONAL_COLUMNS
        if missing := [column for column in benchmark.columns if column not in row and column not in optional]:
            columns = listed(benchmark.columns)
            raise QuestionError(f"missing column {listed(missing)}; {benchmark.title}'s columns are {columns}")
        with code_of_others(f"the leaves_out of {benchmark.title}", QuestionError, (QuestionError, ValueError)):
            return benchmark.leaves_out(row)


def _number_as_text(value: object) -> object:
    """Whole numbers as text without ".0", which is exact below 2**53."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        value = int(value)
    return str(int(value)) if isinstance(value, Integral) and not isinstance(value, bool) else value


Name = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1), BeforeValidator(_number_as_text)]
Cell = Annotated[
    str, StringConstraints(strip_whitespace=True), BeforeValidator(lambda value: "" if is_empty(value) else value)
]


@dataclass(frozen=True)
class _Columns(Record):
    """The cells of a row, but for those that are read by what they describe."""

    id: Name  # by default the number of the row
    dataset: Name  # by default OWN_DATASET, if the row names its scan
    scene_name: Name  # by default the path of the scan without its ending
    question_type: Name  # of the benchmark, or any name with an answer_kind
    question: str  # its text
    ground_truth: object  # see `AnswerKind.read_truth`
    scan: Cell = ""  # the path of the scan file
    answer_kind: Cell = ""  # a name of KIND_NAMES
    unit: Cell = ""  # of a number
    extra_answers: tuple[str, ...] | None = None  # right as well


def _parse_row(row: QuestionRow, number: int, place: str, benchmark: Benchmark, source: Path | None) -> Question:
    with at(place):
        scan = scan_path(row.get("scan"))
        if scan:
            cells = {name: value for name, value in row.items() if name not in SCENE_COLUMNS or value}
            row = {"dataset": OWN_DATASET, "scene_name": str(Path(scan).with_suffix("")), **cells}
        columns = _Columns.from_json({"id": number, **row})
    with at(f"{place} (id {columns.id})"):
        options = read_options(row.get("options"))
        frame = ScanFrame.read(row.get("scale"), row.get("up_axis"))
        kind = UNDECLARED
        if columns.answer_kind or columns.unit:
            kind, _ = kind_of_columns(columns.answer_kind, columns.unit, columns.question_type, benchmark)
        question = Question(
            id=columns.id,
            dataset=columns.dataset,
            scene_name=columns.scene_name,
            question_type=columns.question_type,
            question=columns.question,
            options=options.lettered,
            kind=kind,
            scan=scan,
            start=Start.read(row.get("start")),
            extra_answers=columns.extra_answers or (),
            images=tuple(image.beside(source) for image in Picture.read(row.get("images"))),
            **vars(frame),
        )
        question = with_kind(question, benchmark)
        check_content(question)
        if columns.ground_truth is None and is_as_given(row):
            return question
        return with_truth(question, columns.ground_truth, options)


def with_truth(question: Question, value: object, options: Options) -> Question:
    """The question with a ground truth as its kind reads it; raises QuestionError for one that cannot be scored."""
    try:
        with question.kind_code("read_truth"):
            truth = question.kind.read_truth(value, options)
        _require_unicode(truth)
        question = replace(question, ground_truth=truth)
        wrong = why_no_truth(question)
    except (ValueError, AnswerKindError) as error:
        wrong = str(error)
    if wrong:
        shown = repr(value)[:80]
        raise QuestionError(f"ground_truth {shown} of a question of type {question.question_type} is {wrong}")
    return question


@contextmanager
def at(place: str = "", setting: str | None = None) -> Iterator[None]:
    """Names the place, or the setting, in errors of what is read there."""
    try:
        yield
    except (ValueError, QuestionError) as error:
        sentence = f"{place}: {error}" if place else str(error)
        raise QuestionError(sentence, setting=setting) from error.__cause__


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
        raise QuestionError(f"{text!r} contains an unpaired surrogate; write it as UTF-8")


def kind_of_columns(name: str, unit: str, question_type: str, benchmark: Benchmark) -> tuple[AnswerKind, bool]:
    """The kind of this name and unit, and whether it is that of the type in the benchmark; raises ValueError."""
    own = benchmark.type_of(question_type)
    if own is not None and (own.kind.name, own.kind.unit) == (name, unit):
        return own.kind, True
    return kind_named(name, unit), False
