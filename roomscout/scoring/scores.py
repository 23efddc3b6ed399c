"""What a run scored, as records: each answer in results.jsonl, a judge's marks beside them in marks.jsonl, and all in
summary.json, see docs/run-folder.md."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

from pydantic import SerializerFunctionWrapHandler, model_serializer

from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record
from roomscout.data.benchmark import Benchmark
from roomscout.data.judged import score_of_mark
from roomscout.data.question import in_words

Edges = tuple[float, float]  # an interval in percent, low and high


class EpisodeId(NamedTuple):
    """Which answer (`sample`) to which question (its place in the run, `number`); both count from 1."""

    number: int
    sample: int = 1

    def __str__(self) -> str:
        """The name of its folder: "q001", and "q001_s2" for the second answer."""
        return f"q{self.number:03d}" + (f"_s{self.sample}" if self.sample > 1 else "")

    @property
    def label(self) -> str:
        """Its name in the log: "Q001", and "Q001 sample 2" for the second answer."""
        return f"Q{self.number:03d}" + (f" sample {self.sample}" if self.sample > 1 else "")

    @classmethod
    def parse(cls, folder: str) -> Self | None:
        """The episode of a folder's name; None for any other name."""
        match = re.fullmatch(r"q([0-9]{1,9})(?:_s([0-9]{1,9}))?", folder)
        return cls(int(match[1]), int(match[2] or 1)) if match else None


@dataclass(frozen=True)
class ResultRow(Record):
    """A line of results.jsonl: the outcome of an answer; docs/run-folder.md describes each key."""

    number: int  # of the question in the run, from 1
    id: str  # of the question
    sample: int = field(default=1, kw_only=True)  # of the answer, from 1
    dataset: str  # of the question's scan
    scene_name: str  # of the question's scan
    question_type: str  # of the benchmark, or of the user's own
    question: str  # its text
    ground_truth: str | None  # None if unknown
    answer: str | None  # None if there is none
    score: float | None  # 0 to 1, which benchmarks count alone; None without a truth, or before a judge's mark
    status: str  # "answered", "exhausted" (no turns left, no answer) or "failed"
    failed_part: str | None  # whose error it was, such as "scan"; None unless it failed
    error: str | None  # in a sentence; None unless it failed
    turns: int  # how many were recorded
    parse_errors: int  # how many replies could not be read
    seconds: float  # with the whole of each batched call
    seconds_share: OmittedIfEmpty[float] = field(default=0.0, kw_only=True)  # with its share: these add up over a run
    scores: OmittedIfEmpty[dict[str, float]] = field(default_factory=dict)  # further ones by name
    options: OmittedIfEmpty[tuple[str, ...]] = ()  # of the question
    answer_text: OmittedIfEmpty[str] = ""  # of the chosen option, or how people read the answer, unless as it is
    ground_truth_text: OmittedIfEmpty[str] = ""  # likewise of the ground truth
    folder: OmittedIfEmpty[str] = ""  # of the episode, in the run folder
    measurements: OmittedIfEmpty[int] = 0  # distances that the model measured in the scan
    person: str | None = field(default=None, kw_only=True)  # who answered, of a run of people by name

    def __post_init__(self) -> None:
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"its score is {self.score!r}, not between 0 and 1")

    @property
    def episode(self) -> EpisodeId:
        """Which answer to which question this is."""
        return EpisodeId(self.number, self.sample)

    @property
    def answer_in_words(self) -> str:
        """The answer as people read it; empty without one."""
        return in_words(self.answer, self.answer_text, bool(self.options))

    @property
    def truth_in_words(self) -> str:
        """The ground truth as people read it; empty without one."""
        return in_words(self.ground_truth, self.ground_truth_text, bool(self.options))

    @property
    def failed(self) -> bool:
        """Whether an error of the scan, the renderer or the model ended the question."""
        return self.status == "failed"


def scores_of(rows: Iterable[ResultRow]) -> list[float]:
    """The scores of the rows that have one."""
    return [row.score for row in rows if row.score is not None]


@dataclass(frozen=True)
class Mark(Record):
    """A line of marks.jsonl: the mark of an answer."""

    id: str  # of the question
    answer: str  # its text
    mark: int  # 1 to 5
    judge: str  # the model that gave it
    prompts_sha256: str  # the beginning of the hash of how the judge was asked
    tokens: OmittedIfEmpty[tuple[int, int, int]] = (0, 0, 0)  # that the judge read, of these the cached, and wrote


@dataclass(frozen=True)
class Marks:
    """All marks of a run, which are those of one judge."""

    judge: str
    prompts_sha256: str
    lines: Sequence[Mark]  # as recorded

    @cached_property
    def by_answer(self) -> dict[tuple[str, str], int]:
        """The marks by question id and answer."""
        return {(line.id, line.answer): line.mark for line in self.lines}

    @property
    def tokens(self) -> list[int]:
        """The tokens that the judge read, of these the cached, and those that it wrote."""
        return [sum(counts) for counts in zip(*(line.tokens for line in self.lines), strict=True)]

    def scored(self, row: ResultRow) -> ResultRow:
        """The row with the score of its mark; 0 without an answer. A row without a mark stays as it is."""
        if row.score is not None or row.ground_truth is None:
            return row
        if row.answer is None:
            return replace(row, score=0.0)
        mark = self.by_answer.get((row.id, row.answer))
        return row if mark is None else replace(row, score=score_of_mark(mark), scores=row.scores | {"mark": mark})


@dataclass(frozen=True, kw_only=True)
class Label(Record):
    """What an overall covers. Overalls are comparable only if their labels, as text, and their questions are equal."""

    benchmark: str  # the word of its labels
    tasks: int | None  # how many; None for a mean over questions of the user's own types
    part: str = ""  # of a divided run, such as "part_2_of_8"
    unfinished: bool = False  # whether answers are pending
    partly_judged: bool = False  # whether answers await a judge
    measured: bool = False  # whether the model measured in a scan
    told: tuple[str, ...] = ()  # what the conditions gave of the truth
    partial: bool = False  # whether it lacks tasks, types or questions of the benchmark
    questions: int | None = None  # how many; None for all
    datasets: tuple[str, ...] = ()  # whose questions it covers; empty for all
    without: tuple[str, ...] = ()  # the tasks, or types, that it lacks
    extra: tuple[str, ...] = ()  # its types that the benchmark excludes by default

    @property
    def some(self) -> dict[str, Any]:
        """The `questions` and `datasets` that are known, as in summary.json."""
        named = {"questions": self.questions, "datasets": list(self.datasets) or None}
        return {name: value for name, value in named.items() if value is not None}

    @property
    def _prefixes(self) -> list[str]:
        named = {"unfinished": self.unfinished, "partly_judged": self.partly_judged, "measured": self.measured}
        return [*filter(None, [self.part]), *(name for name, holds in named.items() if holds), *self.told]

    def __str__(self) -> str:
        """The key of the overall in summary.json. For VSI-Bench, "overall_7_task" covers the nine types that a scan can
        answer: all but the order in the video. "overall_8_task" covers all ten types and is the benchmark's published
        overall. Any other overall is not a benchmark number: "partial_rooms_overall_7_task_of_1800_questions_in_bare".
        Questions that are not the benchmark's own have the name of their file: "few_overall_over_questions"."""
        words = self._prefixes
        if self.partial:
            words.append("partial")
        words.append(self.benchmark)
        if self.tasks is not None:
            words.append(f"{self.tasks}_task")
        if self.questions is not None:
            words.append(f"of_{self.questions}_questions")
        elif self.tasks is None:
            words.append("over_questions")
        named = {"in": self.datasets, "without": self.without, "with": self.extra}
        return "_".join([*words, *(f"{word}_{'+'.join(names)}" for word, names in named.items() if names)])

    def in_words(self, tasks: Sequence[str], benchmark: Benchmark) -> str:
        """The label; of a partial overall the tasks and questions that it covers, of other questions their file."""
        counted = f"{len(tasks)} task{'s' * (len(tasks) > 1)}"
        listed = ", ".join(task + self._missing_of(task, benchmark) for task in tasks)
        if benchmark.scored_as or self.tasks is None:
            prefix = "".join(f"{word.replace('_', ' ')} " for word in self._prefixes)
            types = f" in {listed}" if self.tasks is None and tasks else ""
            of = types + (f" of {benchmark.title}" if benchmark.scored_as else "")
            of = of if self.benchmark == benchmark.label else f" of {str(self).removesuffix('_over_questions')}"
            judge = benchmark.label.partition("_judged_by_")[2]
            of += f", judged by {judge.replace('_', ' ')}" if judge else ""
            named = f" ({listed})" if self.without else ""
            over = "over questions" if self.tasks is None else f"of {counted}{named}"
            return f"{prefix}mean {over}{of}"
        if not self.partial or self.benchmark != benchmark.label:
            return str(self)
        prefix = "".join(f"{word}_" for word in self._prefixes)
        words = f"{prefix}partial {benchmark.label.replace('_', ' ')} of {counted}"
        words += f" ({listed})" if not self.some or self.without else ""
        words += "" if self.questions is None else f" and {self.questions} questions"
        return words + (f" in {', '.join(self.datasets)}" if self.datasets else "")

    def _missing_of(self, task: str, benchmark: Benchmark) -> str:
        """The types of a task that a partial overall lacks, such as " without easy and hard"."""
        of_task = [kind.name for kind in benchmark.types if kind.task == task != kind.name]
        missing = [name.removeprefix(f"{task}_") for name in of_task if name in self.without]
        return f" without {' and '.join(missing)}" if missing else ""


@dataclass(frozen=True, kw_only=True)
class Percentages(Record):
    """The scores of all questions of a run, or of some, in percent."""

    questions: int = 0  # how many
    scored: int = 0  # how many of them have a score
    scored_own: int = 0  # how many of those are outside the benchmark; 0 if all are
    failed: OmittedIfEmpty[int] = 0  # how many that count in the overall failed
    label: Label | None = None  # names the overall; None if nothing is scored
    overall: float | None = None  # None if nothing is scored
    single: OmittedIfNone[float | None] = None  # the overall of the same answers, each by itself; None without pairs
    tasks: dict[str, float] = field(default_factory=dict)  # percent by task
    awaiting_judge: OmittedIfEmpty[int] = 0  # how many are not marked yet
    shown: OmittedIfEmpty[str] = ""  # what a video protocol showed

    @property
    def counted(self) -> int:
        """How many questions count in the overall."""
        return self.scored - self.scored_own

    @model_serializer(mode="wrap")
    def _with_label(self, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Also has the overall under its label, and which questions of the benchmark it covers."""
        record: dict[str, Any] = serialized(self)
        if self.label is None:
            return record | {"overall_label": None}
        some = {"some": self.label.some} if self.label.some else {}
        return record | {"overall_label": str(self.label), str(self.label): self.overall} | some


@dataclass(frozen=True, kw_only=True)
class TypeScores(Record):
    """Counts of the questions of a type by outcome, and their scores."""

    questions: int = 0  # all of them
    answered: int = 0  # with a final answer
    exhausted: int = 0  # no turns left, no answer
    failed: int = 0  # by an error of the scan, the renderer or the model
    without_scan: int = 0  # failed, since their scan was not found
    mean_turns: float | None = None  # of those that did not fail; None if all did
    measurements: OmittedIfEmpty[int] = 0  # distances that the model measured in scans
    scored: OmittedIfEmpty[int] = 0  # with a score
    percent: float | None = None  # None if none was scored
    scores: OmittedIfEmpty[dict[str, float]] = field(default_factory=dict)  # means of further ones, by name


@dataclass(frozen=True, kw_only=True)
class Intervals(Record):
    """The intervals of scores, by the name of a task, a type or "overall"."""

    level: int  # percent
    method: str  # how they were computed
    scenes: dict[str, int]  # how many each score has
    percent: dict[str, Edges]  # of scores that have an interval
    missing: dict[str, str]  # why the others have none


@dataclass(frozen=True, kw_only=True)
class DatasetScores(Record):
    """A dataset's scores in percent."""

    questions: int  # how many
    scored: int  # how many of them have a score
    failed: OmittedIfEmpty[int] = 0  # how many failed and score 0
    tasks: dict[str, float]  # percent by task
    overall: float | None  # None if nothing counts
    intervals: OmittedIfNone[Intervals | None] = None  # None if nothing is scored

    @property
    def interval(self) -> Edges | None:
        """The interval of the overall; None if unknown."""
        return self.intervals.percent.get("overall") if self.intervals else None


@dataclass(frozen=True, kw_only=True)
class SampleScores(Record):
    """What several answers to each question score together, in percent: "mean", "pass@k" and "majority"."""

    of_each: int  # answers to a question
    questions: int  # with all answers
    types: dict[str, dict[str, float]]  # by type and score
    tasks: dict[str, dict[str, float]]  # by task and score
    overall: dict[str, float] | None  # by score; None if no question counts


@dataclass(frozen=True, kw_only=True)
class Agreement(Record):
    """How far the answers of different people (or samples) to a question agree."""

    questions: int  # those with two answers or more
    missing: OmittedIfEmpty[int] = 0  # answers that are in neither figure
    percent: float  # the mean agreement of pairs
    alpha: OmittedIfNone[float | None] = None  # Krippendorff's; None where it is not defined
    interval: OmittedIfNone[Edges | None] = None  # of alpha; None for few scenes


@dataclass(frozen=True, kw_only=True)
class PersonScores(Record):
    """What a person scores."""

    answers: int  # how many the person gave
    failed: int  # questions that failed and score 0
    percent: float | None  # the overall; None if the benchmark's aggregate fails on these answers alone
    interval: OmittedIfNone[Edges | None] = None  # of the overall
    seconds: float  # the median of an answer
    by_type: dict[str, tuple[int, float | None]] = field(default_factory=dict)  # scored answers of each, and percent
    covers: OmittedIfEmpty[list[str]] = field(default_factory=list)  # the types whose mean is the overall


@dataclass(frozen=True, kw_only=True)
class Baseline(Record):
    """The scores of a baseline in percent."""

    source: str  # in words
    questions: int  # with an answer
    tasks: dict[str, float]  # without those that have a question without an answer
    overall: OmittedIfNone[float | None] = None  # None if a task is left out


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Record):
    """How the answers to pairs of questions follow what differs between their two rooms."""

    pairs: int  # with two answers and unlike truths
    changed: int  # of these, whose answers differ
    right_way: int  # of these, whose answers differ as the truths do


@dataclass(frozen=True, kw_only=True)
class Scores(Record):
    """The scores of a run."""

    pending: int  # answers that are not finished
    asked: Percentages = field(default_factory=Percentages)  # of all questions, 0 without a scan
    with_scan: Percentages = field(default_factory=Percentages)  # of those with a scan
    finished: OmittedIfNone[Percentages | None] = None  # of those without an error; None if none failed
    types: dict[str, TypeScores] = field(default_factory=dict)  # by type, and for "all"
    intervals: OmittedIfNone[Intervals | None] = None  # None for a single question
    datasets: OmittedIfEmpty[dict[str, DatasetScores]] = field(default_factory=dict)  # by name, if there are several
    sensitivity: OmittedIfNone[Sensitivity | None] = None  # None without pairs of answers
    samples: OmittedIfNone[SampleScores | None] = None  # None with one answer to each question
    agreement: OmittedIfEmpty[dict[str, Agreement]] = field(default_factory=dict)  # by kind of answer
    annotators: OmittedIfEmpty[dict[str, PersonScores]] = field(default_factory=dict)  # by person
    baselines: OmittedIfEmpty[dict[str, Baseline]] = field(default_factory=dict)  # by key of BASELINES

    def interval(self, name: str) -> Edges | None:
        """The interval of a task's, a type's or the "overall" score; None if it has none."""
        return self.intervals.percent.get(name) if self.intervals else None
