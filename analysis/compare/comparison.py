"""What runs over the same questions have in common, and how their scores differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from roomscout.analysis.compare.answers import Answers, QuestionKey
from roomscout.analysis.compare.conditions import PROTOCOL, QUESTIONS, Differing, differing, in_words
from roomscout.data.intervals import Difference, differences, holm
from roomscout.data.scoring import overall_in_words, overall_label, some_of
from roomscout.runs import RunError

PASSING = 0.5
"""A question flips if its score is below this in one run and not in the other."""


@dataclass(frozen=True)
class Flip:
    """A question whose score crossed PASSING, with the mean score and the first row of both runs."""

    key: QuestionKey
    before: float
    after: float
    first: Mapping[str, Any]
    second: Mapping[str, Any]


@dataclass(frozen=True)
class Pair:
    """A run against the first one.

    `tasks` and `overall` are differences in percentage points with p-values as they are; `adjusted` has those that
    Holm's method adjusts for all tasks of all pairs, and for the overalls of all pairs, by name. `differs` has the
    conditions in which they differ.
    """

    first: Answers
    second: Answers
    differs: Differing
    tasks: tuple[Difference, ...]
    overall: Difference | None
    adjusted: Mapping[str, float]
    gained: tuple[Flip, ...]
    lost: tuple[Flip, ...]

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The tasks, then the overall."""
        return (*self.tasks, *([self.overall] if self.overall else []))


@dataclass(frozen=True)
class Comparison:
    """Runs compared with the first one, over `questions` questions about `scenes` scenes.

    `left_out` counts the questions that only some of the runs have. `label` is that of the overall; empty without one.
    `some` says which questions of the benchmark it covers, as `some_of` returns it.
    """

    runs: tuple[Answers, ...]
    pairs: tuple[Pair, ...]
    questions: int
    scenes: int
    left_out: int
    label: str
    some: Mapping[str, Any]

    @property
    def partial(self) -> str:
        """The overall in words if it does not cover all tasks of the benchmark; else empty."""
        benchmark = self.runs[0].benchmark
        known = {each.task for each in benchmark.types}
        tasks = [each.name for each in self.pairs[0].tasks if each.name in known]
        words = overall_in_words(self.label, tasks, benchmark, self.some)
        return "" if words == self.label else words


def compare(runs: Sequence[Answers], even_if: Iterable[str] = ()) -> Comparison:
    """Compare each run with the first one.

    Raises RunError naming what differs, unless it is in `even_if`: names of settings, "protocol" for all of them, and
    "questions". With the latter, compares the questions that all runs have scored.
    """
    may_differ = {name.lstrip("-").replace("-", "_") for name in even_if}
    first, *others = runs
    differs = [_conditions(first, other, may_differ) for other in others]
    common = _common_questions(runs, may_differ)
    labels = dict.fromkeys(key.question_type for key in common)
    of_benchmark = [name for name in labels if name in first.benchmark.by_name]
    some = some_of(of_benchmark, first.benchmark, Counter(key.dataset for key in common)) if of_benchmark else {}
    label = overall_label(of_benchmark, first.benchmark, some) if of_benchmark else ""
    found = [differences(_rows(first, common), _rows(other, common), first.benchmark) for other in others]
    tasks = [tuple(each for each in pair if each.name != "overall" and _is_task(each.name, first)) for pair in found]
    overalls = [next((each for each in pair if each.name == "overall"), None) for pair in found]
    adjusted = _adjusted(tasks, overalls)
    return Comparison(
        tuple(runs),
        tuple(
            Pair(first, other, conditions, of_tasks, overall, values, *_flips(first, other, common))
            for other, conditions, of_tasks, overall, values in zip(
                others, differs, tasks, overalls, adjusted, strict=True
            )
        ),
        len(common),
        len({first.benchmark.room_of(key.dataset, key.scene_name) for key in common}),
        len(set().union(*(each.by_question for each in runs))) - len(common),
        label,
        some,
    )


def _is_task(name: str, first: Answers) -> bool:
    """Whether a score is that of a task, and not of one of several types of a task."""
    known = first.benchmark.by_name.get(name)
    return known is None or known.task == name


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


def _rows(run: Answers, common: Iterable[QuestionKey]) -> list[dict[str, Any]]:
    return [row for key in common for row in run.by_question[key]]


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
        before, after = (fmean(row["score"] for row in of_run) for of_run in rows)
        if (before >= PASSING) != (after >= PASSING):
            (gained if after > before else lost).append(Flip(key, before, after, rows[0][0], rows[1][0]))

    def by_size(flip: Flip) -> float:
        return -abs(flip.after - flip.before)

    return tuple(sorted(gained, key=by_size)), tuple(sorted(lost, key=by_size))
