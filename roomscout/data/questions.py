"""Questions about scans: from a benchmark's source, a file, the command line or Python."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypedDict, Unpack

from roomscout.base.text import json_in, listed
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.data.options import read_options
from roomscout.data.pictures import MADE
from roomscout.data.question import Question
from roomscout.data.question_files import NumberedRow, QuestionError, file_rows, hub_rows, questions_file
from roomscout.data.question_rows import LIST, at, check_content, is_as_given, parse_all, restored, row_of, with_truth

logger = logging.getLogger(__name__)


class Filters(TypedDict, total=False):
    """Which questions of a source are asked: those with one of the values in each filter, and the first of these."""

    datasets: Sequence[str]  # names of datasets
    question_types: Sequence[str]  # names of types; only these may be types that are left out by default
    scenes: Sequence[str]  # names of scenes
    ids: Sequence[str]  # ids of questions
    num_questions: int | None  # how many of those that pass the others; None for all


FILTERED = {"datasets": "dataset", "question_types": "question_type", "scenes": "scene_name", "ids": "id"}  # columns


@dataclass(frozen=True)
class QuestionSource:
    """All questions of a file, a dataset or a list."""

    name: str
    questions: Sequence[Question]
    as_given: frozenset[str] = frozenset()  # the ids of those asked even if their type is not
    of_benchmark: bool = False  # whether the benchmark itself has them, in its own source or folder

    @classmethod
    def read(cls, path: Path | None, benchmark: Benchmark) -> Self:
        """Read a file, or with None the benchmark's own source; raises QuestionError."""
        file = path
        reader = benchmark.read_json
        if path is None and benchmark.folder is not None:
            file = questions_file(benchmark.folder())
            reader = None
        columns = (*benchmark.columns, *benchmark.more_columns)
        if file is not None:
            name = benchmark.name if path is None else str(path)
            rows = file_rows(file, columns, reader)
        elif benchmark.source is not None:
            name = benchmark.source.repository
            rows = hub_rows(benchmark.source, columns)
        else:
            origin = benchmark.questions_from
            get = f"get {origin.file or 'its questions'} from {origin.url}, and " if origin else ""
            raise QuestionError(f"{benchmark.title} has no source to download: {get}name a file", setting="questions")
        numbered = list(rows)
        questions = parse_all(numbered, name, benchmark, source=file or Path())
        draws = path is None and benchmark.make_pictures is not None
        pictures = [picture for question in questions for picture in question.images]
        if not draws and (made := [picture.file for picture in pictures if picture.sha256 == MADE]):
            raise QuestionError(f"{name}: images {made[0]} cannot have the sha256 {MADE!r}: leave it out")
        if lost := [picture.file for picture in pictures if not picture.sha256]:
            logger.warning("Pictures that are not there: %d, such as %s; their questions will fail", len(lost), lost[0])
        as_given = frozenset(str(row.get("id")) for _, row in numbered if is_as_given(row))
        return cls(name, questions, as_given, of_benchmark=path is None)

    def choose(self, benchmark: Benchmark, **filters: Unpack[Filters]) -> list[Question]:
        """The questions that pass all filters, as `load_questions` returns them; raises QuestionError."""
        kept = list(self.questions)
        by_setting: Mapping[str, Any] = filters
        for setting, column in FILTERED.items():
            wanted = by_setting.get(setting, ())
            existing = dict.fromkeys(getattr(question, column) for question in self.questions)
            if absent := [value for value in wanted if value not in existing]:
                why = f"{self.name} has no {column} {listed(absent)}; it has {listed(existing)}"
                raise QuestionError(why, setting=setting)
            if wanted:
                kept = [question for question in kept if getattr(question, column) in wanted]
        types = filters.get("question_types", ())
        apart = dict.fromkeys(benchmark.apart_by_name, "its scores are apart from the overall")
        for name, reason in {**benchmark.excluded, **apart}.items():
            excluded = {question.id for question in kept if question.question_type == name} - self.as_given
            if excluded and name not in types:
                how = "to include them, name the type as one of the question types"
                if name not in apart or filters.get("ids") or not self.of_benchmark:  # else nobody asked for them
                    logger.info("Excluded all %s questions (%d): %s; %s", name, len(excluded), reason, how)
                kept = [question for question in kept if question.id not in excluded]
        if not kept:
            only_named = listed((*benchmark.excluded, *apart))
            unless = f"; {only_named} is asked only if the question types name it" if only_named else ""
            raise QuestionError(f"{self.name}: no question passes all filters{unless}")
        chosen = kept[: filters.get("num_questions")]
        pairs = Counter(benchmark.pair_of(question.id) for question in chosen)
        if alone := [pair for pair, number in pairs.items() if pair is not None and number == 1]:
            logger.warning(
                "Questions without their twin, which do not count: %d, such as of pair %s", len(alone), alone[0]
            )
        return chosen


def load_questions(
    source: Path | None, benchmark: Benchmark | None = None, **filters: Unpack[Filters]
) -> list[Question]:
    """Load and filter the questions of `source`, in its order.

    `source` is a .jsonl, .json, .csv, .tsv or .parquet file with the benchmark's columns (ignores others), or None for
    the benchmark's own source. The default benchmark is VSI-Bench. Questions must pass all filters; an empty filter
    passes everything. Leaves out the types that the benchmark excludes unless `question_types` names them or the row is
    AS_GIVEN. The id defaults to the row number, the options to none. The type of a row that declares its kind of answer
    in the columns `answer_kind` and `unit` may be any name. Raises one QuestionError if the source cannot be read, a
    filter value does not occur in it, no question remains, or for all bad rows, numbered as by `file_rows`."""
    return list(select_questions(source and Path(source), benchmark or find_benchmark(DEFAULT), **filters).questions)


def normalized(questions: Iterable[Question], benchmark: Benchmark | None = None) -> list[Question]:
    """Question objects as `load_questions` would return them from the file of `saved`, all of them and in order. Ids,
    names, types and ground truths become text without blanks around it, and options a tuple. Raises one QuestionError
    for no questions, other objects, and all that `load_questions` refuses in rows that are AS_GIVEN."""
    rows = list[NumberedRow]()
    for number, question in enumerate(questions, start=1):
        if not isinstance(question, Question):
            raise QuestionError(f"{LIST}, question {number}: {repr(question)[:80]} is not a Question")
        rows.append((number, row_of(question)))
    return parse_all(rows, LIST, benchmark or find_benchmark(DEFAULT), "question")


def saved(questions: Iterable[Question]) -> str:
    """A .jsonl file with every column of these questions, their kinds and scans, which `load_saved` reads exactly."""
    return "".join(json.dumps(row_of(question)) + "\n" for question in questions)


def load_saved(path: Path, benchmark: Benchmark) -> list[Question]:
    """The questions of a file that `saved` wrote, exactly as they were; raises QuestionError if it is damaged."""
    try:
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        return [restored(json_in(line), benchmark) for line in lines]
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise QuestionError(f"{path} is damaged ({error!r}); restore it, or start a new run") from None


class Selection(NamedTuple):
    """The questions of a run, and the source that they were chosen from."""

    questions: Sequence[Question]
    source: QuestionSource

    @classmethod
    def all_of(cls, questions: Sequence[Question]) -> Self:
        """All questions of a list."""
        return cls(questions, QuestionSource(LIST, questions))


def select_questions(path: Path | None, benchmark: Benchmark, **filters: Unpack[Filters]) -> Selection:
    """The questions of a file, or with None of the benchmark's own source, as `load_questions` returns them."""
    source = QuestionSource.read(path, benchmark)
    return Selection(source.choose(benchmark, **filters), source)


def ask_one(
    question: str,
    scene_name: str,
    options: Sequence[str] = (),
    question_type: str | None = None,
    ground_truth: str | None = None,
    benchmark: Benchmark | None = None,
) -> Question:
    """Make a question from the user's own text about a scan. The default benchmark is VSI-Bench. If `question_type` is
    None, a question in the benchmark's wording gets the matching type, provided that it has options if and only if
    answers of that type are letters. Any other question is "open_choice" with options, "open" without. If no option has
    a letter, they get A, B, ... `ground_truth` may be an option's text. QuestionError if these do not fit together."""
    benchmark = benchmark or find_benchmark(DEFAULT)
    with at(setting="options"):
        choices = read_options(options)
    name = question_type or benchmark.type_of_wording(question, bool(choices.lettered)).name
    own = benchmark.type_of(name)
    if own is None:
        raise QuestionError(f"question_type {name!r} is unknown: the types are {listed(benchmark.by_name)}")
    unscored = Question("asked", "asked", scene_name, name, question, choices.lettered, None, own.kind)
    with at(repr(question), setting="question"):
        check_content(unscored)
    if ground_truth is None:
        return unscored
    with at(setting="ground_truth"):
        scored = with_truth(unscored, ground_truth, choices)
    if str(scored.ground_truth).upper() != ground_truth.strip().upper():
        option = "option " if choices.lettered else ""
        logger.info("Ground truth %r is %s%s", ground_truth, option, scored.ground_truth)
    return scored


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 (64 hex digits) of all columns of all questions, in order; of pictures that of their bytes counts."""
    rows = []
    for question in questions:
        row = question.row
        if question.images:
            row["images"] = [
                Path(image.file).name if image.sha256 in ("", MADE) else image.sha256 for image in question.images
            ]
        rows.append(row)
    content = json.dumps(rows, sort_keys=True)
    return hashlib.sha256(content.encode()).hexdigest()
