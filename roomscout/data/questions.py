"""Questions about scans: from a benchmark's source, a file, the command line or Python."""

import hashlib
import json
import logging
import math
import random
import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Self

from roomscout import UpAxis
from roomscout.base.text import escaped, on_disk
from roomscout.base.wording import named
from roomscout.data.answers import AnswerKind, kind_named
from roomscout.data.benchmarks import DEFAULT, RESERVED, Benchmark, find_benchmark
from roomscout.data.options import (
    LETTER_PREFIX,
    LETTERED_OPTION,
    Options,
    place_in,
    read_options,
    written_options,
)
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
    file_rows,
    hub_rows,
    listed,
    questions_file,
)
from roomscout.data.scan_frames import ScanFrame, scan_path
from roomscout.data.starts import Start

__all__ = [
    "Asked",
    "Question",
    "QuestionError",
    "QuestionSource",
    "ask_one",
    "fingerprint",
    "load_questions",
    "load_saved",
    "normalized",
    "questions_asked",
    "saved",
    "with_kind",
]

logger = logging.getLogger(__name__)

OWN_DATASET = "own"
"""The dataset of rows that name their scan file and no dataset."""
PLACE_COLUMNS = ("dataset", "scene_name")
MAX_ERRORS_SHOWN = 20
MAX_ROWS_NAMED = 10
"""Bad rows that a message lists; it counts the others."""


@dataclass(frozen=True)
class Question:
    """A question about a scan. Its fields but the kind are columns of question files, the last five optional ones.

    `options` include their letters ("A. Turn Back") and are empty unless the answer is a letter. `ground_truth` is a
    letter, a number as text, yes or no, a text, or None if unknown: the question is then asked but not scored. `kind`
    is the kind of answer, by default that of the question type in its benchmark; `declares_kind` says that it was
    declared with the question instead. `scan` is the path of the scan file, absolute or relative to the scan root; if
    it is empty, dataset and scene name locate the scan. `start` is where the camera starts, by default at the first
    view of the scan. `extra_answers` are right as well, and only a judge reads them. `scale` is the scan's
    unit in metres and `up_axis` its axis that points up, by default those of the run. Not validated here, but by
    `load_questions` and `normalized`.
    """

    id: str
    dataset: str
    scene_name: str
    question_type: str
    question: str
    options: tuple[str, ...] = ()
    ground_truth: str | None = None
    kind: AnswerKind = field(default_factory=lambda: UNDECLARED)
    declares_kind: bool = False
    scan: str = ""
    start: Start | None = None
    extra_answers: tuple[str, ...] = ()
    scale: float | None = None
    up_axis: UpAxis | None = None

    @property
    def frame(self) -> ScanFrame:
        """The unit and the up axis of the scan, as far as they are not those of the run."""
        return ScanFrame(self.scale, self.up_axis)

    @property
    def scene(self) -> tuple[str, str]:
        """The dataset and the scene's name, which identify a scan."""
        return self.dataset, self.scene_name

    @property
    def letters(self) -> tuple[str, ...]:
        """The letters of the options, in order."""
        return _letters(self.options)

    @property
    def row(self) -> dict[str, Any]:
        """The question as a row of a question file."""
        columns = {name: getattr(self, name) for name in COLUMNS}
        if self.declares_kind:
            columns |= {"answer_kind": self.kind.name, "unit": self.kind.unit}
        if self.start:
            columns |= {START_COLUMN: self.start.to_json()}
        if self.extra_answers:
            columns |= {EXTRA_ANSWERS: list(self.extra_answers)}
        return columns | self.frame.columns

    def parse_answer(self, value: object) -> str | None:
        """A value as an answer to this question in plain form ("B", "2.5", text); None if it is not a valid answer."""
        return self.kind.parse(value, self.letters)

    def text_of(self, letter: str | None) -> str:
        """The text of the option with this letter, in either case; empty if there is none."""
        texts = {match[1]: option[match.end() :] for option in self.options if (match := LETTER_PREFIX.match(option))}
        return texts.get((letter or "").upper(), "")

    def guess(self, draw: random.Random) -> str:
        """A random valid answer."""
        return self.kind.guess(draw, self.letters)

    def score(self, answer: str | None) -> float | None:
        """The score of an answer, 0 to 1 (0 for None); None without a ground truth, or if it needs a judge."""
        if self.ground_truth is None or self.kind.needs_judge:
            return None
        return self.kind.score(answer, self.ground_truth)

    def more_scores(self, answer: str | None) -> dict[str, float]:
        """Further scores of an answer by name; none without a ground truth."""
        return {} if self.ground_truth is None else self.kind.more_scores(answer, self.ground_truth)


def _letters(options: Iterable[str]) -> tuple[str, ...]:
    found = (LETTERED_OPTION.match(option) for option in options)
    return tuple(match[1] for match in found if match)


class _Undeclared:
    """The kind of a question whose type has not been looked up in its benchmark yet."""

    def __repr__(self) -> str:
        return "undeclared"

    def __reduce__(self) -> str:
        """The one object of this class, also after a copy or a pickle."""
        return "UNDECLARED"

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # what copy and pickle look for
            raise AttributeError(attribute)
        raise QuestionError(
            "this Question has no kind of answer yet: look up its type with `roomscout.data.questions.with_kind`, or "
            "pass `kind`"
        )


UNDECLARED: Any = _Undeclared()


def with_kind(question: Question, benchmark: Benchmark) -> Question:
    """The question with the kind of answer of its type; raises QuestionError for an unknown type.

    A kind that the question has already is kept, and must be that of the type if the type is known.
    """
    known = benchmark.type_of(question.question_type)
    if question.kind is UNDECLARED:
        if known is None:
            raise QuestionError(
                f"unknown question_type {question.question_type!r}; the types of {benchmark.title} are "
                f"{listed(benchmark.by_name)}; for a type of your own, declare its answers in the columns answer_kind "
                "and unit"
            )
        return replace(question, kind=known.kind)
    if question.question_type in RESERVED:
        raise QuestionError(f"question_type cannot be {question.question_type}: summaries use that name")
    if known is None:
        return replace(question, declares_kind=True)
    if known.kind != question.kind:
        raise QuestionError(
            f"question_type {question.question_type} has answers of kind {_kind_in_words(known.kind)}, not "
            f"{_kind_in_words(question.kind)}: leave out answer_kind and unit, or rename the type"
        )
    return question


def _kind_in_words(kind: AnswerKind) -> str:
    return f"{kind.name} in {kind.unit}" if kind.unit else kind.name


@dataclass(frozen=True)
class QuestionSource:
    """All questions of a file, a dataset or a list; `as_given` has the ids of those asked even if their type is not.

    `of_benchmark` says that the benchmark itself has them, in its own source or folder.
    """

    name: str
    questions: Sequence[Question]
    as_given: frozenset[str] = frozenset()
    of_benchmark: bool = False

    @classmethod
    def read(cls, path: Path | None, benchmark: Benchmark) -> Self:
        """Read a file, or with None the benchmark's own source; raises QuestionError."""
        of_benchmark = path is None
        if path is not None:
            read = file_rows(path, benchmark.all_columns, benchmark.read_json)
            name, rows = str(path), list(_with_scans_beside(path, read))
        elif benchmark.folder is not None:
            path, name = questions_file(benchmark.folder()), benchmark.name
            rows = list(_with_scans_beside(path, file_rows(path, benchmark.all_columns)))
        elif benchmark.source is not None:
            name, rows = benchmark.source.repository, list(hub_rows(benchmark.source, benchmark.all_columns))
        else:
            origin, how = benchmark.questions_from, f"give its questions with {named(questions='FILE')}"
            if origin is not None:
                how = (
                    f"get {origin.file or 'its questions'} from {origin.url}, and pass the file with "
                    f"{named(questions='FILE')}"
                )
            raise QuestionError(f"{benchmark.title} has no source to download: {how}")
        rows = list(_rows_asked(rows, name, benchmark))
        questions = _parse_all(rows, name, benchmark)
        given = (question.id for question, (_, row) in zip(questions, rows, strict=True) if _is_as_given(row))
        return cls(name, questions, frozenset(given), of_benchmark)

    def choose(
        self,
        benchmark: Benchmark,
        *,
        datasets: Sequence[str] = (),
        question_types: Sequence[str] = (),
        scenes: Sequence[str] = (),
        ids: Sequence[str] = (),
        num_questions: int | None = None,
    ) -> list[Question]:
        """The questions that pass all filters, as `load_questions` returns them; raises QuestionError."""
        if num_questions is not None and num_questions < 1:
            raise QuestionError(f"{named('num_questions')} must be at least 1, got {num_questions}")
        kept = list(self.questions)
        for flag, wanted, column in (
            (named("datasets"), datasets, "dataset"),
            (named("question_types"), question_types, "question_type"),
            (named("scenes"), scenes, "scene_name"),
            (named("ids"), ids, "id"),
        ):
            if wanted:
                _require_present(self.questions, flag, wanted, column, self.name)
                chosen = frozenset(wanted)
                kept = [question for question in kept if getattr(question, column) in chosen]
        kept = _without_excluded(kept, question_types, self.as_given, benchmark)
        if not kept:
            excluded = ", ".join(sorted(benchmark.excluded))
            unless = f" ({excluded} is excluded unless {named('question_types')} names it)" if excluded else ""
            filters = f"{named('datasets')}, {named('question_types')}, {named('scenes')} and {named('ids')}"
            raise QuestionError(f"{self.name}: no question passes all of {filters}{unless}; relax a filter")
        return kept[:num_questions]


def load_questions(
    source: Path | None,
    benchmark: Benchmark | None = None,
    *,
    datasets: Sequence[str] = (),
    question_types: Sequence[str] = (),
    scenes: Sequence[str] = (),
    ids: Sequence[str] = (),
    num_questions: int | None = None,
) -> list[Question]:
    """Load and filter the questions of `source`, in its order.

    `source` is a .jsonl, .json, .csv, .tsv or .parquet file with the benchmark's columns (ignores others), or None for
    the benchmark's own source. The default benchmark is VSI-Bench. Questions must pass all filters; an empty filter
    passes everything. Leaves out the types that the benchmark excludes unless `question_types` names them or the row is
    AS_GIVEN. Returns the first `num_questions` of the remaining questions.

    The columns `id` and `options` are optional: the id defaults to the row number, the options to none. The type of a
    row that declares its kind of answer in the columns `answer_kind` and `unit` may be any name. Messages count rows
    from 1: lines in a .jsonl file, else records without the header.

    Raises QuestionError if the source cannot be read, a filter value does not occur in it, no question remains, or rows
    are bad (missing column, unknown type, duplicate id, empty question, options or ground truth that do not fit the
    type). One message lists all bad rows.
    """
    benchmark = benchmark or find_benchmark(DEFAULT)
    return QuestionSource.read(source and Path(source), benchmark).choose(
        benchmark,
        datasets=datasets,
        question_types=question_types,
        scenes=scenes,
        ids=ids,
        num_questions=num_questions,
    )


def _rows_asked(rows: Iterable[NumberedRow], name: str, benchmark: Benchmark) -> Iterator[NumberedRow]:
    """The rows that the benchmark asks, those that it cannot judge as an error, and those that are bad anyway."""
    for number, row in rows:
        if isinstance(row, QuestionError) or _is_as_given(row) or not set(benchmark.columns) <= row.keys():
            yield number, row
            continue
        try:
            if benchmark.asks(row):
                yield number, row
        except ValueError as error:
            yield number, QuestionError(f"{name}, row {number}: {error}")
        except Exception as error:  # noqa: BLE001 (the function is not ours)
            yield number, QuestionError(f"{name}, row {number}: the asks of {benchmark.title} failed ({error!r})")


def _with_scans_beside(source: Path, rows: Iterable[NumberedRow]) -> Iterator[NumberedRow]:
    """The rows of a file. A scan that exists relative to the file's folder is named by its absolute path."""
    for number, row in rows:
        scan = None if isinstance(row, QuestionError) else row.get(SCAN_COLUMN)
        scan = scan_path(scan) if isinstance(scan, str) else None
        beside = source.absolute().parent / scan if scan else None
        if beside is not None and not isinstance(row, QuestionError) and on_disk(beside).is_file():
            name = row.get("scene_name") or str(Path(str(scan)).with_suffix(""))
            row = {**row, "scene_name": name, SCAN_COLUMN: str(beside)}
        yield number, row


def normalized(questions: Iterable[Question], benchmark: Benchmark | None = None) -> list[Question]:
    """Question objects as `load_questions` would return them from the file of `saved`, all of them and in order.

    Ids, names and types become text without blanks around it, as does a ground truth, and options a tuple.

    Raises QuestionError for no questions at all, for other objects, and for what `load_questions` refuses in a row that
    is AS_GIVEN. One message lists all bad questions, counted from 1, with their ids.
    """
    rows = ((number, _row_of(question, number)) for number, question in enumerate(questions, start=1))
    return _parse_all(rows, LIST, benchmark or find_benchmark(DEFAULT), "question")


def saved(questions: Iterable[Question]) -> str:
    """The contents of a .jsonl file with every column of these questions, their kinds of answers and their scans.

    `load_saved` reads them exactly as they are. The file is also one for `load_questions`.
    """
    return "".join(json.dumps(_saved_row(question)) + "\n" for question in questions)


def _saved_row(question: Question) -> dict[str, Any]:
    kind = {"answer_kind": question.kind.name, "unit": question.kind.unit}
    scan = {SCAN_COLUMN: question.scan} if question.scan else {}
    return {**question.row, **kind, **scan, AS_GIVEN: True}


def load_saved(path: Path, benchmark: Benchmark) -> list[Question]:
    """The questions of a file that `saved` wrote, exactly as they were; raises QuestionError if it is damaged."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
    except (OSError, ValueError) as error:
        raise QuestionError(f"{path} cannot be read ({error}); restore it, or start a new run") from None
    questions = []
    for number, line in enumerate(lines, start=1):
        try:
            questions.append(_restored(json.loads(line), benchmark))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            why = f"missing {error}" if isinstance(error, KeyError) else error
            raise QuestionError(f"{path}, line {number} is damaged ({why}); restore it, or start a new run") from None
    return questions


def _restored(row: dict[str, Any], benchmark: Benchmark) -> Question:
    """The question of a row that `saved` wrote; its kind is that of its type in the benchmark if both are equal."""
    lists = [row["options"], row.get(EXTRA_ANSWERS, [])]
    texts = [row[name] for name in (*COLUMNS, "answer_kind", "unit") if name not in ("options", "ground_truth")]
    texts += [row.get(SCAN_COLUMN, ""), "" if row["ground_truth"] is None else row["ground_truth"]]
    if not all(isinstance(each, list) for each in lists):
        raise ValueError("its options and extra answers must be lists")
    if not all(isinstance(each, str) for each in (*texts, *lists[0], *lists[1])):
        raise ValueError("its columns must be texts")
    kind, known = _kind_of(row["answer_kind"], row["unit"], row["question_type"], benchmark)
    if row["ground_truth"] is not None and (wrong := kind.wrong_truth(row["ground_truth"], _letters(row["options"]))):
        raise ValueError(f"its ground truth {row['ground_truth']!r} is {wrong}")
    columns = {name: row[name] for name in COLUMNS} | {"options": tuple(row["options"])}
    start = Start.read(row.get(START_COLUMN))
    frame = ScanFrame.read(row.get(SCALE_COLUMN), row.get(UP_AXIS_COLUMN))
    return Question(
        **columns,
        kind=kind,
        declares_kind=not known,
        scan=row.get(SCAN_COLUMN, ""),
        start=start,
        extra_answers=tuple(row.get(EXTRA_ANSWERS, ())),
        scale=frame.scale,
        up_axis=frame.up_axis,
    )


def _kind_of(name: str, unit: str, question_type: str, benchmark: Benchmark) -> tuple[AnswerKind, bool]:
    """The kind of this name and unit, and whether it is that of the type in the benchmark; raises ValueError."""
    known = benchmark.type_of(question_type)
    if known is not None and (known.kind.name, known.kind.unit) == (name, unit):
        return known.kind, True
    return kind_named(name, unit), False


class Asked(NamedTuple):
    """The questions of a run, and the source that they were chosen from."""

    questions: Sequence[Question]
    source: QuestionSource

    @classmethod
    def all_of(cls, questions: Sequence[Question]) -> Self:
        """All questions of a list."""
        return cls(questions, QuestionSource(LIST, questions))


def questions_asked(settings: Mapping[str, Any], benchmark: Benchmark) -> Asked:
    """The questions that the settings of a run ask for, by the names of RunConfig; raises QuestionError.

    They come from `questions`, a file, or else the benchmark, and pass the filters; `ply` has just one `question`.
    """
    if settings["ply"] is not None and settings["question"] is not None:
        scene, own = Path(settings["ply"]).stem, ("options", "question_type", "ground_truth")
        values = {name: settings[name] for name in own}
        return Asked.all_of([ask_one(settings["question"], scene, **values, benchmark=benchmark)])
    filters = {name: settings[name] for name in ("datasets", "question_types", "scenes", "ids", "num_questions")}
    path = settings["questions"]
    source = QuestionSource.read(None if path is None else Path(path), benchmark)
    return Asked(source.choose(benchmark, **filters), source)


def ask_one(
    question: str,
    scene_name: str,
    options: Sequence[str] = (),
    question_type: str | None = None,
    ground_truth: str | None = None,
    benchmark: Benchmark | None = None,
) -> Question:
    """Make a question from the user's own text about a scan. The default benchmark is VSI-Bench.

    If `question_type` is None, a question in the benchmark's wording gets the matching type, provided that it has
    options if and only if answers of that type are letters. Any other question is "open_choice" with options, "open"
    without. If no option has a letter, they get A, B, ... `ground_truth` may be an option's text instead of its letter.

    Raises QuestionError if question, type, options and ground truth do not fit together.
    """
    benchmark = benchmark or find_benchmark(DEFAULT)
    read = _options(options, named("options"))
    lettered = read.lettered
    name = question_type or benchmark.type_of_wording(question, bool(lettered)).name
    known = benchmark.type_of(name)
    if known is None:
        raise QuestionError(f"{named('question_type')} {name!r} is unknown: the types are {listed(benchmark.by_name)}")
    asked = Question("asked", "asked", scene_name, name, question, lettered, None, known.kind)
    if asked.kind.takes_options and len(lettered) < 2:
        raise QuestionError(f"{named('options')}: a multiple-choice question needs at least two, got {len(lettered)}")
    if lettered and not asked.kind.takes_options:
        raise QuestionError(f"{named('options')}: a question of type {name} takes none")
    _check_content(asked, named("options") if lettered and question.strip() else named("question"))
    if ground_truth is None:
        return asked
    try:
        truth = asked.kind.read_truth(ground_truth, read)
    except ValueError as error:
        raise QuestionError(f"{named('ground_truth')} {ground_truth!r} is {error}") from None
    if wrong := asked.kind.wrong_truth(truth, asked.letters):
        raise QuestionError(f"{named('ground_truth')} {ground_truth!r} is {wrong}; a question of type {name} needs it")
    if truth.upper() != ground_truth.strip().upper():
        logger.info("Ground truth %r is %s%s", ground_truth, "option " if lettered else "", truth)
    return replace(asked, ground_truth=truth)


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 (64 hex digits) of all columns of all questions, in order."""
    content = json.dumps([question.row for question in questions], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


# Filters


def _require_present(questions: Sequence[Question], flag: str, wanted: Sequence[str], column: str, name: str) -> None:
    existing = dict.fromkeys(getattr(question, column) for question in questions)
    absent = [value for value in wanted if value not in existing]
    for value in absent:
        if {*value.split(",")} <= existing.keys():
            raise QuestionError(f"{flag} {value}: separate several by spaces, as in {flag} {value.replace(',', ' ')}")
    if absent:
        raise QuestionError(f"{flag}: {name} has no {listed(absent)}; it has {listed(existing)}")


def _without_excluded(
    questions: list[Question], question_types: Sequence[str], as_given: Container[str], benchmark: Benchmark
) -> list[Question]:
    """Leaves out excluded types, unless `question_types` names them or the question's id is in `as_given`."""
    for name, reason in benchmark.excluded.items():
        if name not in question_types:
            kept = [each for each in questions if each.question_type != name or each.id in as_given]
            if len(kept) < len(questions):
                logger.info(
                    "Excluded all %s questions (%d): %s; to include them, name the type with %s",
                    name,
                    len(questions) - len(kept),
                    reason,
                    named("question_types"),
                )
            questions = kept
    return questions


# From rows to questions


LIST = "the list of questions"
"""The name of a source that is a list."""


def _row_of(question: object, number: int) -> Row | QuestionError:
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


def _is_as_given(row: Row | QuestionError) -> bool:
    return not isinstance(row, QuestionError) and row.get(AS_GIVEN) is True


def _parse_all(rows: Iterable[NumberedRow], name: str, benchmark: Benchmark, noun: str = "row") -> list[Question]:
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
    if isinstance(row, QuestionError) or _is_as_given(row):
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
        ours = benchmark.read_row(row)
    except QuestionError as error:
        raise QuestionError(f"{place}: {error}") from None
    except Exception as error:  # the function is not ours
        raise QuestionError(f"{place}: the read_row of {benchmark.title} failed ({error!r})") from error
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
    frame = _frame(row, place)
    text, options = row["question"], _options(row.get("options"), place)
    question = Question(
        id=question_id,
        dataset=_name(row["dataset"], "dataset", place),
        scene_name=_name(row["scene_name"], "scene_name", place),
        question_type=_name(row["question_type"], "question_type", place),
        question=text if isinstance(text, str) else "",
        options=options.lettered,
        kind=_declared_kind(row, place, benchmark),
        scan=scan,
        start=_start(row.get(START_COLUMN), place),
        extra_answers=_extra_answers(row.get(EXTRA_ANSWERS), place),
        scale=frame.scale,
        up_axis=frame.up_axis,
    )
    try:
        question = with_kind(question, benchmark)
    except QuestionError as error:
        raise QuestionError(f"{place}: {error}") from None
    _check_content(question, place)
    truth = row["ground_truth"]
    if _is_missing(truth):
        if truth == "" or not _is_as_given(row):
            _refuse_truth(question, truth, "missing; fix it or remove the question", place)
        return question
    options = replace(options, counted_from=counted_from)
    try:
        read = question.kind.read_truth(truth, options)
    except ValueError as error:
        _refuse_truth(question, truth, str(error), place)
    question = replace(question, ground_truth=read)
    _check_unicode(read, place)
    if wrong := question.kind.wrong_truth(read, question.letters):
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


def _start(value: object, place: str) -> Start | None:
    try:
        return Start.read(value)
    except ValueError as error:
        raise QuestionError(f"{place}: {error}") from None


def _frame(row: Row, place: str) -> ScanFrame:
    try:
        return ScanFrame.read(row.get(SCALE_COLUMN), row.get(UP_AXIS_COLUMN))
    except ValueError as error:
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
    try:
        return _kind_of(kind, unit, str(row["question_type"]).strip(), benchmark)[0]
    except ValueError as error:
        raise QuestionError(f"{place}: {error}") from None


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


def _options(value: object, place: str) -> Options:
    try:
        return read_options(written_options(value))
    except ValueError as error:
        raise QuestionError(f"{place}: {error}") from None


def _check_content(question: Question, place: str) -> None:
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
