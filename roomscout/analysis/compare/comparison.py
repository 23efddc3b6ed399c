"""What runs over the same questions have in common, and how their scores differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from roomscout.analysis.compare.answers import Answers, QuestionKey, key_of
from roomscout.analysis.compare.conditions import PROTOCOL, QUESTIONS, SCANS, Differing, differing, in_words, refused_in
from roomscout.base.grouping import grouped
from roomscout.data.benchmark import Benchmark
from roomscout.runs import RunError
from roomscout.scoring.headline import leaving_out
from roomscout.scoring.intervals import Difference, differences, holm, uneven_scenes
from roomscout.scoring.pairs import in_pairs
from roomscout.scoring.scores import Label, ResultRow, scores_of
from roomscout.scoring.summary import aggregate, label_of, rounded

PASSING = 0.5  # a question flips if its score is below this in one run and not in the other


@dataclass(frozen=True)
class Flip:
    """A question whose score crossed PASSING."""

    key: QuestionKey  # of the question
    before: float  # the mean score of its answers in the first run
    after: float  # and in the second one
    first: ResultRow  # its first row in the first run
    second: ResultRow  # and in the second one


@dataclass(frozen=True)
class Pair:
    """A run against the first one. Differences are in percentage points, over the questions that both finished."""

    first: Answers  # run A
    second: Answers  # that it is compared with
    letter: str  # the short name of the second run
    differs: Differing  # the conditions that are unlike
    tasks: tuple[Difference, ...]  # and types that are not part of one
    overall: Difference | None  # None if it is not scored
    gained: tuple[Flip, ...]  # questions that rose above PASSING, the largest changes first
    lost: tuple[Flip, ...]  # those that fell below it
    questions: int  # that are compared
    scenes: int  # of these questions
    label: Label  # of the overall
    left_out: tuple[str, ...]  # the types that the overall leaves out
    failed: tuple[int, int]  # how many questions ended in an error, by run
    as_wrong: tuple[float, float] | None  # the overalls if these score 0; None if none failed
    uneven: str  # why intervals are too narrow; empty if they are not
    powerless: str = ""  # why the overall cannot show a difference; empty if it can

    @property
    def partial(self) -> str:
        """The overall in words if it does not cover all tasks of the benchmark; else empty."""
        tasks = [score.name for score in self.tasks if score.name not in self.left_out]
        return partial_in_words(self.label, tasks, self.first.benchmark)

    @property
    def without(self) -> str:
        """See `leaving_out`."""
        return leaving_out(self.left_out)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The tasks, then the overall."""
        return self.tasks if self.overall is None else (*self.tasks, self.overall)


@dataclass(frozen=True)
class Comparison:
    """Runs compared with the first one."""

    runs: tuple[Answers, ...]  # in the order of the command
    pairs: tuple[Pair, ...]  # of the first run and each other
    questions: int  # that all runs have
    scenes: int  # of these questions
    left_out: int  # how many questions only some of the runs have
    failed_as_wrong: bool  # else each pair leaves out the questions that failed in one of its runs


def letter_of(place: int) -> str:
    """The short name of a run by its place: A, B, C."""
    return chr(ord("A") + place) if place < 26 else f"run {place + 1}"


def partial_in_words(label: Label, tasks: Sequence[str], benchmark: Benchmark) -> str:
    """An overall in words if it does not cover all tasks of the benchmark; else empty."""
    words = label.in_words(tasks, benchmark)
    return "" if words == str(label) else words


def protocols_of(runs: Mapping[str, Answers], all_of_them: str) -> list[tuple[str, str]]:
    """The protocols of runs by name, in pairs of a name and a text: what all have in common, then the rest of each."""
    parts = {name: run.protocol.split(", ") for name, run in runs.items()}
    first, *others = parts.values()
    common = [part for part in first if all(part in other for other in others)]
    own = {name: ", ".join(part for part in of_run if part not in common) for name, of_run in parts.items()}
    return [(all_of_them, ", ".join(common)), *((name, text) for name, text in own.items() if text)]


def compare(runs: Sequence[Answers], even_if: Iterable[str] = (), failed_as_wrong: bool = False) -> Comparison:
    """Compare each run with the first one, over the questions that both finished.

    An error of the scan, the renderer or the server says nothing of the model. With `failed_as_wrong`, failed questions
    count as wrong answers all the same, as in the scores of runs.

    Raises RunError naming what differs, unless it is in `even_if`: names of settings, "protocol" for all of them, and
    "questions". With the latter, compares the questions that all runs have scored. Raises it also if no question
    remains.
    """
    may_differ = {name.lstrip("-").replace("-", "_") for name in even_if}
    if QUESTIONS in may_differ:
        may_differ.add(SCANS)
    first, *others = runs
    differing_in = [_conditions(first, other, may_differ) for other in others]
    common = _common_questions(runs, may_differ)
    pairs = []
    for place, other in enumerate(others):
        questions = common if failed_as_wrong else _finished(first, other, common)
        pairs.append(_pair(first, other, letter_of(place + 1), differing_in[place], common, questions))
    some = set().union(*(run.by_question for run in runs))
    left_out = sum(any(key not in run.by_question for run in runs) for key in some)
    return Comparison(
        tuple(runs), tuple(_adjusted(pairs)), len(common), _scenes(first, common), left_out, failed_as_wrong
    )


def _pair(
    first: Answers,
    other: Answers,
    letter: str,
    differs: Differing,
    common: Sequence[QuestionKey],
    questions: Sequence[QuestionKey],
) -> Pair:
    """Compare two runs over `questions`; failures are counted among the `common` questions of all runs."""
    benchmark = first.benchmark
    answers = [_answers(run, questions) for run in (first, other)]
    rows, other_rows = (_means(in_pairs(of_run, benchmark)) for of_run in answers)
    scores = differences(rows, other_rows, benchmark)
    types = {kind.name for kind in benchmark.types if kind.task != kind.name}  # of tasks with several types
    of_each = grouped((key.question_type, key.dataset) for key in questions)
    covered = benchmark.in_overall(of_each)
    flips = _flips(questions, *map(_means, answers))
    failed = (len(first.failed.intersection(common)), len(other.failed.intersection(common)))
    as_wrong = None
    if any(failed):
        counted = [_means(in_pairs(_answers(run, common), benchmark)) for run in (first, other)]
        overalls = [rounded(aggregate(of_run, benchmark)["overall"]) for of_run in counted]
        as_wrong = (overalls[0], overalls[1])
    return Pair(
        first,
        other,
        letter,
        differs,
        tasks=tuple(score for score in scores if score.name not in {"overall", *types}),
        overall=next((score for score in scores if score.name == "overall"), None),
        gained=tuple(flip for flip in flips if flip.after > flip.before),
        lost=tuple(flip for flip in flips if flip.after < flip.before),
        questions=len(questions),
        scenes=_scenes(first, questions),
        label=label_of(covered, benchmark, Counter(dataset for name in covered for dataset in of_each[name])),
        left_out=tuple(name for name in of_each if name not in covered),
        failed=failed,
        as_wrong=as_wrong,
        uneven=uneven_scenes(rows, benchmark),
    )


def _finished(first: Answers, other: Answers, common: Sequence[QuestionKey]) -> list[QuestionKey]:
    """The questions that ended in an error in neither run; raises RunError if none remains."""
    both = [key for key in common if key not in first.failed and key not in other.failed]
    kept = with_twins(both, first, other)
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


def _scenes(first: Answers, questions: Iterable[QuestionKey]) -> int:
    return len({first.benchmark.room_of(key.dataset, key.scene_name) for key in questions})


def _conditions(first: Answers, other: Answers, may_differ: set[str]) -> Differing:
    """The conditions in which a run differs from the first; raises RunError unless they may differ."""
    if not first.conditions or not other.conditions:
        if PROTOCOL not in may_differ:
            unknown = other if first.conditions else first
            raise RunError(
                f"{unknown.path} is the file of another tool, which answered under other conditions: add --even-if "
                f"{PROTOCOL} to compare all the same"
            )
        return {PROTOCOL: (first.protocol, other.protocol)}
    if refused := refused_in(first.conditions, other.conditions, may_differ):
        raise RunError(
            f"{first.path} and {other.path} differ in {in_words(refused)}, so their scores are not comparable; to "
            f"compare all the same, add --even-if {' '.join(refused)}"
        )
    return differing(first.conditions, other.conditions)


def _common_questions(runs: Sequence[Answers], may_differ: set[str]) -> list[QuestionKey]:
    """The questions that all have scored, in the order of the first run; RunError if some have others that may not."""
    first = runs[0]
    in_all = [key for key in first.by_question if all(key in run.by_question for run in runs)]
    common = with_twins(in_all, *runs)
    if QUESTIONS not in may_differ:
        how = f"add --even-if {QUESTIONS} to compare those that all have"
        for run in runs:
            if run.pending:
                raise RunError(
                    f"{run.path} has {run.pending:,} pending answers: finish it with roomscout resume, or {how}"
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
        raise RunError(f"{', '.join(str(run.path) for run in runs)} have no scored question in common")
    return common


def with_twins(questions: Iterable[QuestionKey], *runs: Answers) -> list[QuestionKey]:
    """The questions that count in all runs if only these are asked; all of them for a benchmark without pairs."""
    kept = list(questions)
    for run in runs:
        counted = {key_of(row) for row in in_pairs(_answers(run, kept), run.benchmark)}
        kept = [key for key in kept if key in counted]
    return kept


def _answers(run: Answers, questions: Iterable[QuestionKey]) -> list[ResultRow]:
    return [row for key in questions for row in run.by_question[key]]


def _means(answers: Iterable[ResultRow]) -> list[ResultRow]:
    """A row for each question, with the mean score of its answers: a question weighs the same in both runs."""
    by_question = grouped((key_of(row), row) for row in answers).values()
    return [replace(rows[0], score=fmean(scores_of(rows))) for rows in by_question]


def _adjusted(pairs: Sequence[Pair]) -> list[Pair]:
    """The pairs with adjusted p-values. All tasks of all pairs are one family, the overalls another."""
    of_tasks = iter(holm([score.p_value for pair in pairs for score in pair.tasks]))
    overalls = [pair.overall for pair in pairs if pair.overall]
    of_overalls = iter(holm([overall.p_value for overall in overalls]))
    return [
        replace(
            pair,
            tasks=tuple(replace(score, p_holm=next(of_tasks)) for score in pair.tasks),
            overall=replace(pair.overall, p_holm=next(of_overalls)) if pair.overall else None,
            powerless=pair.overall.cannot_show(len(overalls)) if pair.overall else "",
        )
        for pair in pairs
    ]


def _flips(questions: Sequence[QuestionKey], first: Sequence[ResultRow], second: Sequence[ResultRow]) -> list[Flip]:
    """The questions whose score crossed PASSING, of those with these `_means`; largest changes first."""
    scored = zip(questions, scores_of(first), scores_of(second), first, second, strict=True)
    flips = [Flip(*of_question) for of_question in scored]
    crossed = [flip for flip in flips if (flip.before >= PASSING) != (flip.after >= PASSING)]
    return sorted(crossed, key=lambda flip: abs(flip.after - flip.before), reverse=True)
