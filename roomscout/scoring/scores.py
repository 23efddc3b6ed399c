"""The scores of a run as records: what summary.json says of them, see docs/run-folder.md."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import SerializerFunctionWrapHandler, model_serializer

from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record
from roomscout.data.benchmark import Benchmark

Edges = tuple[float, float]
"""An interval in percent, low and high."""


@dataclass(frozen=True, kw_only=True)
class Label(Record):
    """What an overall covers. Overalls are comparable only if their labels, as text, and their questions are equal.
    `tasks` is None for a mean over questions of the user's own types. A `partial` one lacks the tasks (or types)
    `without`, or questions; `extra` has types that the benchmark excludes, `datasets` and `part` what is not all of it,
    `measured` says that the model measured in a scan, and `told` has what its conditions gave of the truth."""

    benchmark: str
    tasks: int | None
    part: str = ""
    unfinished: bool = False
    partly_judged: bool = False
    measured: bool = False
    told: tuple[str, ...] = ()
    partial: bool = False
    questions: int | None = None
    datasets: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def some(self) -> dict[str, Any]:
        """The `questions` and `datasets` that are known, as in summary.json."""
        return ({} if self.questions is None else {"questions": self.questions}) | (
            {"datasets": list(self.datasets)} if self.datasets else {}
        )

    @property
    def _prefixes(self) -> list[str]:
        named = {"unfinished": self.unfinished, "partly_judged": self.partly_judged, "measured": self.measured}
        return [*filter(None, [self.part]), *(name for name, holds in named.items() if holds), *self.told]

    def __str__(self) -> str:
        """The key of the overall in summary.json. For VSI-Bench, "overall_7_task" covers the nine types that a scan can
        answer: all but the order in the video. "overall_8_task" covers all ten types and is the benchmark's published
        overall. Any other overall is not a benchmark number: "partial_rooms_overall_7_task_of_1800_questions_in_bare".
        Questions that are not the benchmark's own have the name of their file: "few_overall_7_task",
        "few_overall_over_questions"."""
        words = [*self._prefixes, *(["partial"] if self.partial else []), self.benchmark]
        if self.tasks is None:
            return "_".join([*words, "over_questions" if self.questions is None else f"of_{self.questions}_questions"])
        words.append(f"{self.tasks}_task")
        words += [] if self.questions is None else [f"of_{self.questions}_questions"]
        named = {"in": self.datasets, "without": self.without, "with": self.extra}
        return "_".join([*words, *(f"{word}_{'+'.join(names)}" for word, names in named.items() if names)])

    def in_words(self, tasks: Sequence[str], benchmark: Benchmark) -> str:
        """The label; of a partial overall the tasks and questions that it covers, of other questions their file."""
        counted = f"{len(tasks)} task{'s' * (len(tasks) > 1)}"
        listed = ", ".join(task + self._missing_of(task, benchmark) for task in tasks)
        if benchmark.scored_as or self.tasks is None:
            prefix = "".join(f"{each.replace('_', ' ')} " for each in self._prefixes)
            of = f" of {benchmark.title}" if benchmark.scored_as else " in types of your own"
            of = of if self.benchmark == benchmark.label else f" of {str(self).removesuffix('_over_questions')}"
            judge = benchmark.label.partition("_judged_by_")[2]
            of += f", judged by {judge.replace('_', ' ')}" if judge else ""
            named = f" ({listed})" if self.without else ""
            return f"{prefix}mean {'over questions' if self.tasks is None else f'of {counted}{named}'}{of}"
        if not self.partial or self.benchmark != benchmark.label:
            return str(self)
        prefix = "".join(f"{each}_" for each in self._prefixes)
        words = f"{prefix}partial {benchmark.label.replace('_', ' ')} of {counted}"
        words += f" ({listed})" if not self.some or self.without else ""
        words += "" if self.questions is None else f" and {self.questions} questions"
        return words + (f" in {', '.join(self.datasets)}" if self.datasets else "")

    def _missing_of(self, task: str, benchmark: Benchmark) -> str:
        """The types of a task that a partial overall lacks, such as " without easy and hard"."""
        of_task = [each.name for each in benchmark.types if each.task == task != each.name]
        missing = [name.removeprefix(f"{task}_") for name in of_task if name in self.without]
        return f" without {' and '.join(missing)}" if missing else ""


@dataclass(frozen=True, kw_only=True)
class Percentages(Record):
    """The scores of all questions of a run, or of some, in percent: per task and `overall`, which `label` names.
    `scored_own` of the `scored` questions are outside the benchmark, with the mean `own_percent` (0 if all are);
    `failed` ones count in the overall, and `awaiting_judge` are not marked yet."""

    questions: int = 0
    scored: int = 0
    scored_own: int = 0
    failed: OmittedIfEmpty[int] = 0
    own_percent: OmittedIfNone[float | None] = None
    label: Label | None = None
    overall: float | None = None
    tasks: dict[str, float] = field(default_factory=dict)
    awaiting_judge: OmittedIfEmpty[int] = 0
    shown: OmittedIfEmpty[str] = ""

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
    """Counts of questions by outcome, and the percent of those of a type; None if none was scored. `mean_turns` is over
    the questions that did not fail; None if all did. `scores` has the means of further scores over the questions that
    have them. `measurements` counts the distances that the model measured in scans."""

    questions: int = 0
    answered: int = 0
    exhausted: int = 0
    failed: int = 0
    without_scan: int = 0
    mean_turns: float | None = None
    measurements: OmittedIfEmpty[int] = 0
    percent: float | None = None
    scores: OmittedIfEmpty[dict[str, float]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Intervals(Record):
    """The intervals of scores in percent, by the name of a task, a type or "overall"; `missing` says why others lack
    one. `scenes` counts the scenes of each."""

    level: int
    method: str
    scenes: dict[str, int]
    percent: dict[str, Edges]
    missing: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class DatasetScores(Record):
    """A dataset's scores in percent over `questions`, of which `failed` score 0; None where none counts."""

    questions: int
    scored: int
    failed: OmittedIfEmpty[int] = 0
    tasks: dict[str, float]
    overall: float | None
    intervals: OmittedIfNone[Intervals | None] = None

    @property
    def interval(self) -> Edges | None:
        """The interval of the overall; None if unknown."""
        return self.intervals.percent.get("overall") if self.intervals else None


@dataclass(frozen=True, kw_only=True)
class SampleScores(Record):
    """What several answers to each question score together, in percent: "mean", "pass@k" and "majority" per type, task
    and `overall`, over the `questions` with all answers, which are `of_each`."""

    of_each: int
    questions: int
    types: dict[str, dict[str, float]]
    tasks: dict[str, dict[str, float]]
    overall: dict[str, float] | None


@dataclass(frozen=True, kw_only=True)
class Agreement(Record):
    """How far the answers of different people (or samples) to a question agree, over the `questions` with two or more:
    the mean `percent` of pairs, and Krippendorff's `alpha` with its `interval`. `missing` answers are in neither."""

    questions: int
    missing: OmittedIfEmpty[int] = 0
    percent: float
    alpha: OmittedIfNone[float | None] = None
    interval: OmittedIfNone[Edges | None] = None


@dataclass(frozen=True, kw_only=True)
class PersonScores(Record):
    """What a person scores over the `types` asked, which may not be `every_type` of the run: the overall in percent,
    None if the benchmark's aggregate fails on these answers alone. `failed` counts the questions that failed and score
    0, and `seconds` is the median of an answer."""

    answers: int
    types: OmittedIfEmpty[list[str]] = field(default_factory=list)
    every_type: bool = True
    failed: int
    percent: float | None
    interval: OmittedIfNone[Edges | None] = None
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Baseline(Record):
    """The scores of a baseline in percent, and its `source` in words. A task is left out if any of its questions has no
    guess, and then the overall is None."""

    source: str
    questions: int
    tasks: dict[str, float]
    overall: OmittedIfNone[float | None] = None


@dataclass(frozen=True, kw_only=True)
class Scores(Record):
    """The scores of a run, while `pending` answers are not finished: `asked` of all questions, 0 without a scan,
    `with_scan` of those with one, and `finished` of those without an error of the scan, the renderer or the model, if
    any failed. `types` has counts and scores by type, and for "all"."""

    pending: int
    asked: Percentages = field(default_factory=Percentages)
    with_scan: Percentages = field(default_factory=Percentages)
    finished: OmittedIfNone[Percentages | None] = None
    types: dict[str, TypeScores] = field(default_factory=dict)
    intervals: OmittedIfNone[Intervals | None] = None
    datasets: OmittedIfEmpty[dict[str, DatasetScores]] = field(default_factory=dict)
    samples: OmittedIfNone[SampleScores | None] = None
    agreement: OmittedIfEmpty[dict[str, Agreement]] = field(default_factory=dict)
    annotators: OmittedIfEmpty[dict[str, PersonScores]] = field(default_factory=dict)
    baselines: OmittedIfEmpty[dict[str, Baseline]] = field(default_factory=dict)

    def interval(self, name: str) -> Edges | None:
        """The interval of a task's, a type's or the "overall" score; None if it has none."""
        return self.intervals.percent.get(name) if self.intervals else None
