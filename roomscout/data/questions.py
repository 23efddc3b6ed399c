"""Questions about scans: from a benchmark's source, a file, the command line or Python."""

import hashlib
import json
import logging
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from roomscout.base.loading import code_of_others
from roomscout.base.text import on_disk
from roomscout.base.wording import named
from roomscout.data.benchmarks import DEFAULT, Benchmark, find_benchmark
from roomscout.data.options import letters_of, read_options, written_options
from roomscout.data.question import Question, why_no_truth, with_kind
from roomscout.data.question_files import (
    AS_GIVEN,
    COLUMNS,
    EXTRA_ANSWERS,
    SCALE_COLUMN,
    SCAN_COLUMN,
    START_COLUMN,
    UP_AXIS_COLUMN,
    NumberedRow,
    QuestionError,
    file_rows,
    hub_rows,
    listed,
    questions_file,
)
from roomscout.data.question_rows import LIST, at, check_content, is_as_given, kind_of_columns, parse_all, row_of
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
        questions = parse_all(rows, name, benchmark)
        given = (question.id for question, (_, row) in zip(questions, rows, strict=True) if is_as_given(row))
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
        benchmark, datasets=datasets, question_types=question_types, scenes=scenes, ids=ids, num_questions=num_questions
    )


def _rows_asked(rows: Iterable[NumberedRow], name: str, benchmark: Benchmark) -> Iterator[NumberedRow]:
    """The rows that the benchmark asks, those that it cannot judge as an error, and those that are bad anyway."""
    for number, row in rows:
        if isinstance(row, QuestionError) or is_as_given(row) or not set(benchmark.columns) <= row.keys():
            yield number, row
            continue
        try:
            with code_of_others(f"the asks of {benchmark.title}", QuestionError, ValueError):
                asked = benchmark.asks(row)
        except (QuestionError, ValueError) as error:
            yield number, QuestionError(f"{name}, row {number}: {error}")
        else:
            if asked:
                yield number, row


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
    rows = ((number, row_of(question, number)) for number, question in enumerate(questions, start=1))
    return parse_all(rows, LIST, benchmark or find_benchmark(DEFAULT), "question")


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
    kind, known = kind_of_columns(row["answer_kind"], row["unit"], row["question_type"], benchmark)
    if row["ground_truth"] is not None and (wrong := kind.wrong_truth(row["ground_truth"], letters_of(row["options"]))):
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
    with at(named("options")):
        read = read_options(written_options(options))
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
    check_content(asked, named("options") if lettered and question.strip() else named("question"))
    if ground_truth is None:
        return asked
    try:
        with asked.kind_code("read_truth"):
            truth = asked.kind.read_truth(ground_truth, read)
    except ValueError as error:
        raise QuestionError(f"{named('ground_truth')} {ground_truth!r} is {error}") from None
    if wrong := why_no_truth(replace(asked, ground_truth=truth)):
        raise QuestionError(f"{named('ground_truth')} {ground_truth!r} is {wrong}; a question of type {name} needs it")
    if truth.upper() != ground_truth.strip().upper():
        logger.info("Ground truth %r is %s%s", ground_truth, "option " if lettered else "", truth)
    return replace(asked, ground_truth=truth)


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 (64 hex digits) of all columns of all questions, in order."""
    content = json.dumps([question.row for question in questions], sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()


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
