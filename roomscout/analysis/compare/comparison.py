"""What runs over the same questions have in common, and how their scores differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from roomscout.analysis.compare.answers import Answers, QuestionKey
from roomscout.analysis.compare.conditions import PROTOCOL, QUESTIONS, SCANS, Differing, differing, in_words
from roomscout.runs import RunError
from roomscout.scoring.intervals import Difference, differences, holm, uneven_scenes
from roomscout.scoring.rows import ResultRow, scores_of
from roomscout.scoring.scores import Label
from roomscout.scoring.summary import aggregate, label_of, rounded

PASSING = 0.5
"""A question flips if its score is below this in one run and not in the other."""


@dataclass(frozen=True)
class Flip:
    """A question whose score crossed PASSING, with the mean score and the first row of both runs."""

    key: QuestionKey
    before: float
    after: float
    first: ResultRow
    second: ResultRow


@dataclass(frozen=True)
class Pair:
    """A run against the first one: differences in percentage points over `questions` that both finished, about
    `scenes`, with Holm's `adjusted` p-values for all tasks of all pairs, and for the overalls, by name. `failed` counts
    questions that ended in an error, by run, and `as_wrong` has the overalls if these score 0. `uneven` says why
    intervals are too narrow, `differs` which conditions are unlike."""

    first: Answers
    second: Answers
    differs: Differing
    tasks: tuple[Difference, ...]
    overall: Difference | None
    adjusted: Mapping[str, float]
    gained: tuple[Flip, ...]
    lost: tuple[Flip, ...]
    questions: int
    scenes: int
    label: Label
    failed: tuple[int, int]
    as_wrong: tuple[float, float] | None
    uneven: str

    @property
    def partial(self) -> str:
        """The overall in words if it does not cover all tasks of the benchmark; else empty."""
        benchmark = self.first.benchmark
        known = {each.task for each in benchmark.types}
        tasks = [each.name for each in self.tasks if each.name in known] or [each.name for each in self.tasks]
        words = self.label.in_words(tasks, benchmark)
        return "" if words == str(self.label) else words

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The tasks, then the overall."""
        return (*self.tasks, *([self.overall] if self.overall else []))


@dataclass(frozen=True)
class Comparison:
    """Runs compared with the first one, which all have `questions` questions about `scenes` scenes. `left_out` counts
    the questions that only some of the runs have. `failed_as_wrong` says that failed questions count as wrong answers;
    else each pair leaves out those that failed in one of its runs."""

    runs: tuple[Answers, ...]
    pairs: tuple[Pair, ...]
    questions: int
    scenes: int
    left_out: int
    failed_as_wrong: bool = False


def compare(runs: Sequence[Answers], even_if: Iterable[str] = (), failed_as_wrong: bool = False) -> Comparison:
    """Compare each run with the first one, over the questions that both finished.

    An error of the scan, the renderer or the server says nothing of the model. With `failed_as_wrong`, failed questions
    count as wrong answers all the same, as in the scores of runs.

    Raises RunError naming what differs, unless it is in `even_if`: names of settings, "protocol" for all of them, and
    "questions". With the latter, compares the questions that all runs have scored. Raises it also if no question
    remains.
    """
    may_differ = {name.lstrip("-").replace("-", "_") for name in even_if}
    may_differ |= {SCANS} if QUESTIONS in may_differ else set()
    first, *others = runs
    differs = [_conditions(first, other, may_differ) for other in others]
    common = _common_questions(runs, may_differ)
    kept = [common if failed_as_wrong else _finished(first, other, common) for other in others]
    found = [
        differences(_rows(first, asked), _rows(other, asked), first.benchmark)
        for other, asked in zip(others, kept, strict=True)
    ]
    some_types = {each.name for each in first.benchmark.types if each.task != each.name}  # of tasks with several
    tasks = [tuple(each for each in pair if each.name not in {"overall", *some_types}) for pair in found]
    overalls = [next((each for each in pair if each.name == "overall"), None) for pair in found]
    adjusted = _adjusted(tasks, overalls)
    pairs = []
    for place, other in enumerate(others):
        asked = kept[place]
        flips = _flips(first, other, kept[place])
        of_benchmark = Counter(key.dataset for key in asked if key.question_type in first.benchmark.by_name)
        label = label_of(dict.fromkeys(key.question_type for key in asked), first.benchmark, of_benchmark)
        failed = [len(run.failed.intersection(common)) for run in (first, other)]
        before, after = (rounded(aggregate(_rows(run, common), first.benchmark)["overall"]) for run in (first, other))
        as_wrong = (before, after) if any(failed) else None
        pairs.append(
            Pair(
                first, other, differs[place], tasks[place], overalls[place], adjusted[place], *flips,
                len(asked), _scenes(first, asked), label, (failed[0], failed[1]), as_wrong,
                uneven_scenes(_rows(first, asked), first.benchmark),
            )
        )  # fmt: skip
    every = set().union(*(each.by_question for each in runs))
    return Comparison(
        tuple(runs), tuple(pairs), len(common), _scenes(first, common), len(every) - len(common), failed_as_wrong
    )


def _finished(first: Answers, other: Answers, common: Sequence[QuestionKey]) -> list[QuestionKey]:
    """The questions that ended in an error in neither run; raises RunError if none remains."""
    kept = [key for key in common if key not in first.failed and key not in other.failed]
    if not kept:
        failed = " and ".join(
            f"{len(run.failed.intersection(common)):,} of {len(common):,} failed in {run.path}"
            for run in (first, other)
            if run.failed.intersection(common)
        )
        raise RunError(
            f"no question is finished in both runs: {failed}; retry them with roomscout resume RUN --retry-failed, or "
            "count them as wrong with --failed-as-wrong"
        )
    return kept


def _scenes(first: Answers, asked: Iterable[QuestionKey]) -> int:
    return len({first.benchmark.room_of(key.dataset, key.scene_name) for key in asked})


def _conditions(first: Answers, other: Answers, may_differ: set[str]) -> Differing:
    """The conditions in which a run differs from the first; raises RunError unless they may differ."""
    if first.conditions is None or other.conditions is None:
        if PROTOCOL not in may_differ:
            unknown = first if first.conditions is None else other
            raise RunError(
                f"{unknown.path} is the file of another tool, which answered under other conditions: add --even-if "
                f"{PROTOCOL} to compare all the same"
            )
        return {PROTOCOL: (first.protocol, other.protocol)}
    found = differing(first.conditions, other.conditions)
    refused = {} if PROTOCOL in may_differ else {name: each for name, each in found.items() if name not in may_differ}
    if refused:
        raise RunError(
            f"{first.path} and {other.path} differ in {in_words(refused)}, so their scores are not comparable; to "
            f"compare all the same, add --even-if {' '.join(refused)}"
        )
    return found


def _common_questions(runs: Sequence[Answers], may_differ: set[str]) -> list[QuestionKey]:
    """The questions that all runs have scored, in the order of the first; raises RunError unless that is all of them,
    or they may differ."""
    first = runs[0]
    common = [key for key in first.by_question if all(key in each.by_question for each in runs)]
    if QUESTIONS not in may_differ:
        how = f"add --even-if {QUESTIONS} to compare those that all have"
        for each in runs:
            if each.pending:
                raise RunError(
                    f"{each.path} has {each.pending:,} pending answers: finish it with roomscout resume, or {how}"
                )
        for other in runs[1:]:
            if first.by_question.keys() != other.by_question.keys():
                shared = len(first.by_question.keys() & other.by_question.keys())
                raise RunError(
                    f"{first.path} and {other.path} have other questions: {shared:,} in both, "
                    f"{len(first.by_question) - shared:,} and {len(other.by_question) - shared:,} in one alone"
                    + (f"; {how}" if shared else "")
                )
    if not common:
        raise RunError(f"{', '.join(str(each.path) for each in runs)} have no scored question in common")
    return common


def _rows(run: Answers, asked: Iterable[QuestionKey]) -> list[ResultRow]:
    """A row for each question, with the mean score of its answers: a question weighs the same in both runs."""
    return [replace(rows[0], score=fmean(scores_of(rows))) for rows in (run.by_question[key] for key in asked)]


def _adjusted(tasks: Sequence[Sequence[Difference]], overalls: Sequence[Difference | None]) -> list[dict[str, float]]:
    """Adjusted p-values by name, for each pair. All tasks of all pairs are one family, the overalls another."""
    places = [(pair, each) for pair, of_pair in enumerate(tasks) for each in of_pair]
    families = [places, [(pair, each) for pair, each in enumerate(overalls) if each is not None]]
    found: list[dict[str, float]] = [{} for _ in tasks]
    for family in families:
        for (pair, each), value in zip(family, holm([each.p_value for _, each in family]), strict=True):
            found[pair][each.name] = value
    return found


def _flips(first: Answers, second: Answers, common: Iterable[QuestionKey]) -> tuple[tuple[Flip, ...], tuple[Flip, ...]]:
    """The questions whose score rose above PASSING, and those whose score fell below it; largest changes first."""
    gained: list[Flip] = []
    lost: list[Flip] = []
    for key in common:
        rows = first.by_question[key], second.by_question[key]
        before, after = (fmean(scores_of(of_run)) for of_run in rows)
        if (before >= PASSING) != (after >= PASSING):
            (gained if after > before else lost).append(Flip(key, before, after, rows[0][0], rows[1][0]))

    def by_size(flip: Flip) -> float:
        return -abs(flip.after - flip.before)

    return tuple(sorted(gained, key=by_size)), tuple(sorted(lost, key=by_size))
