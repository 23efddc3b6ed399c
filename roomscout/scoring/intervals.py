"""Confidence intervals of scores, and of differences between runs, by resampling scenes.

Questions about one scene share its objects, its scan and its blind spots, so their scores are not independent, and
intervals that treat them so are too narrow (E. Miller, "Adding Error Bars to Evals", arXiv:2411.00640, section 2.2).
Here a resample draws whole scenes with replacement, with all their answers, and the benchmark's own `aggregate`
combines them. Several scans of one room count as one scene, as `Benchmark.room_of` says.

Intervals are bias-corrected and accelerated (B. Efron, JASA 82, 1987; `scipy.stats.bootstrap`). A bootstrap of few
units is too narrow, so for n scenes the nominal level is raised to that of a t-interval with n - 1 degrees of freedom
times sqrt(n / (n - 1)) (T. Hesterberg, The American Statistician 69, 2015, section 3.3).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import ceil, floor, log2
from typing import Any

import numpy as np

from roomscout.data.benchmark import Benchmark, BenchmarkError, mean_over_questions, mean_over_tasks
from roomscout.scoring.scene_scores import SceneScores
from roomscout.scoring.scores import Intervals, ResultRow
from roomscout.scoring.summary import AggregateError, aggregate, rounded

Interval = tuple[float, float]
Statistic = Callable[[np.ndarray], np.ndarray]  # scores, (scores, ...), from the weights of rooms, (..., rooms)

LEVEL = 0.95
INTERVAL = f"{round(100 * LEVEL)} % interval"  # the head of a column of intervals
FEWEST_SCENES = 10  # a score over fewer scenes has no interval
RESAMPLES = 9999
RESAMPLES_OF_OWN = 999  # resamples for a benchmark that brings its own `aggregate`, which is called for each
SEED = 0
DECIMALS = 9
"""Percents are rounded to these before they are compared. BCa counts how many resamples equal the score itself, and
sums in another order, as on another processor, would differ in the last bits: that moved edges by up to a point."""
POWER = 0.8
LARGE_SHARE = 0.15  # a scene with this share of the questions, or three times the mean, makes intervals too narrow
NO_SPREAD = "resampling scenes shows no spread: all have the same value"


@dataclass(frozen=True)
class Estimate:
    """A score or a difference with its interval."""

    name: str  # of a task, a type or "overall"
    percent: float  # the score, or the difference in percentage points
    scenes: int  # how many have a question about it
    interval: Interval | None = None  # low and high, in percent; None if it is unknown
    error: float | None = None  # the standard error, in percent; None if it is unknown
    missing: str = ""  # why there is no interval


@dataclass(frozen=True)
class Difference(Estimate):
    """A second run's score minus the first's."""

    first: float = 0.0  # the first run's score, in percent
    second: float = 0.0  # the second run's score, in percent
    p_value: float = 1.0  # of a permutation test that exchanges the runs scene by scene; assumes no distribution
    unlike: int = 0  # in how many scenes the runs differ in this score
    p_holm: float | None = None  # adjusted for the number of differences that are tested beside it, see `holm`

    @property
    def contradicts(self) -> bool:
        """Whether the interval says that runs differ at the 5 % level and the p-value does not, or the other way round.
        `differences` extends intervals to 0 where p is not below 5 %, so what remains are scores with a small p."""
        if self.interval is None:
            return False
        return (self.interval[0] > 0 or self.interval[1] < 0) != (self.p_value < 1 - LEVEL)

    def cannot_show(self, tested: int) -> str:
        """Why these scenes cannot show a difference, as a sentence, if `tested` differences are tested together; empty
        if they can. Exchanging n unlike scenes gives p = 2^(1 - n) at least, and an interval takes FEWEST_SCENES."""
        smallest = min(1.0, tested * 2.0 ** (1 - self.unlike))
        needed = floor(log2(tested / (1 - LEVEL))) + 2
        number = min(self.unlike, self.scenes)
        if self.scenes < FEWEST_SCENES:
            number = self.scenes
            needed = max(needed, FEWEST_SCENES)
        elif smallest < 1 - LEVEL:
            return ""
        some = f"{number} of {self.scenes} scenes differ, and " if number < self.scenes else ""
        words = f"{number} scene{'' if number == 1 else 's'} cannot show a difference"
        return f"{some}{words}: p cannot be below {smallest:.3f}, and an interval and p below 0.05 take {needed} scenes"

    @property
    def scenes_needed(self) -> int | None:
        """How many scenes a study needs to detect a true difference of this size with 80 % power, two-sided at 5 %. n =
        (z_0.975 + z_0.8)^2 s^2 / d^2 with the variance s^2 of one scene's contribution (arXiv:2411.00640, section 5),
        taken from the standard error found here. None without one or without a difference."""
        if not self.error or not round(self.percent, 9):
            return None
        return max(2, ceil(self.scenes * (_z() * self.error / self.percent) ** 2))

    @property
    def detectable(self) -> float | None:
        """The smallest true difference that these scenes detect with 80 % power, in percentage points."""
        return _z() * self.error if self.error else None


def _z() -> float:
    from scipy.stats import norm

    return float(norm.ppf(0.5 + LEVEL / 2) + norm.ppf(POWER))


def estimates(rows: Iterable[ResultRow], benchmark: Benchmark) -> list[Estimate]:
    """The percent of each task, of each type that is not one, and the "overall" last, with their intervals. Ignores
    rows without a score. Each of several answers to a question counts like a question, and the scene remains the unit.
    A type that a resample lacks is left out of it, as `aggregate` does, and a score without any of its types keeps its
    value; FEWEST_SCENES makes both rare. [] if nothing is scored. Raises BenchmarkError as `aggregate` does."""
    table = SceneScores.of(rows, benchmark)
    if not table.names:
        return []
    intervals = _bootstrapped(table, table.percents)
    percents = table.percents(np.ones(table.scenes))
    return [
        Estimate(name, rounded(float(percent)), scenes, *interval)
        for name, percent, scenes, interval in zip(table.names, percents, table.scenes_of, intervals, strict=True)
    ]


def intervals_of(rows: Iterable[ResultRow], benchmark: Benchmark) -> Intervals | None:
    """`estimates` for summary.json; None if nothing is scored."""
    scores = estimates(rows, benchmark)
    if not scores:
        return None
    return Intervals(
        level=round(100 * LEVEL),
        method=f"BCa bootstrap over scenes, {_resamples(benchmark)} resamples, seed {SEED}",
        scenes={score.name: score.scenes for score in scores},
        percent={score.name: in_percent(score.interval) for score in scores if score.interval},
        missing={score.name: score.missing for score in scores if score.missing},
    )


def scored_alone(rows: Sequence[ResultRow], benchmark: Benchmark) -> tuple[dict[str, float], Intervals | None]:
    """`aggregate`, rounded, and `intervals_of` a part of a run; {} and None if an aggregate lacks types it needs."""
    try:
        percents = {name: rounded(percent) for name, percent in aggregate(rows, benchmark).items()}
        return percents, intervals_of(rows, benchmark)
    except AggregateError:
        return {}, None


def in_percent(interval: Interval) -> Interval:
    """The edges of an interval, rounded for summary.json."""
    return round(interval[0], 4), round(interval[1], 4)


def differences(first: Iterable[ResultRow], second: Iterable[ResultRow], benchmark: Benchmark) -> list[Difference]:
    """The differences between two runs over the same questions: `second` minus `first`, named as by `estimates`. A
    resample draws the same scenes for both runs, so what makes a scene hard for both cancels. Raises ValueError if the
    runs differ in their scenes or types, and as `estimates` does."""
    tables = [SceneScores.of(rows, benchmark) for rows in (first, second)]
    if tables[0].rooms != tables[1].rooms or tables[0].names != tables[1].names:
        raise ValueError("the runs are not about the same questions: their scenes or types differ")
    both = SceneScores.stacked(*tables)
    count = tables[0].scenes
    if not both.names:
        return []
    intervals = _bootstrapped(tables[0], lambda weights: tables[1].percents(weights) - tables[0].percents(weights))
    flips = np.random.default_rng(SEED).integers(2, size=(_resamples(benchmark), count)).astype(float)
    mixed = both.percents(np.concatenate([flips, 1 - flips], -1))
    exchanged = mixed - both.percents(np.concatenate([1 - flips, flips], -1))
    of_first = tables[0].percents(np.ones(count))
    of_second = tables[1].percents(np.ones(count))
    change = of_second - of_first
    more_extreme = (np.abs(exchanged) >= np.abs(change)[:, None] - 1e-9).sum(-1)
    p_values = (1 + more_extreme) / (1 + len(flips))
    return [
        Difference(
            *(name, rounded(float(gained)), scenes, _with_zero(interval, p), error, why),
            *(float(before), float(after), p, unlike),
        )
        for name, gained, scenes, (interval, error, why), before, after, p, unlike in zip(
            *(both.names, change, tables[0].scenes_of, intervals, of_first, of_second, p_values.tolist()),
            tables[0].scenes_unlike(tables[1]),
            strict=True,
        )
    ]


def _with_zero(interval: Interval | None, p_value: float) -> Interval | None:
    """The interval of a difference, extended to 0 if the permutation test does not reject 0 at the 5 % level. A
    bootstrap of few changed answers is too narrow: with 5 % of answers changed and no true difference, 8 % of intervals
    over 30 scenes excluded 0, and 11 % over 12 scenes. The test rejected 0 in 2 % and 1 %."""
    if interval is None or p_value < 1 - LEVEL:
        return interval
    return min(interval[0], 0.0), max(interval[1], 0.0)


def uneven_scenes(rows: Iterable[ResultRow], benchmark: Benchmark) -> str:
    """Why intervals over scenes are too narrow if few scenes have most of the questions, as a sentence; else empty.
    Scenes with n_i questions tell as much as (sum n_i)^2 / sum n_i^2 equal ones (L. Kish, Survey Sampling, 1965). With
    30 scenes, some of which have twelve times the questions of others, intervals covered the truth 88 times in 100."""
    table = SceneScores.of(rows, benchmark)
    counts = table.counts.sum(axis=1)
    if table.scenes < FEWEST_SCENES:
        return ""
    largest = int(counts.argmax())
    effective = float(counts.sum() ** 2 / np.square(counts).sum())
    share = float(counts[largest] / counts.sum())
    if effective >= table.scenes / 2 and share < max(LARGE_SHARE, 3 / table.scenes):
        return ""
    return (
        f"The questions are unevenly spread: {table.rooms[largest][1]} has {100 * share:.0f} % of them, and the "
        f"{table.scenes} scenes tell as much as {effective:.0f} equal ones, so intervals are probably too narrow"
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number (S. Holm, Scandinavian Journal of Statistics 6, 1979)."""
    adjusted = [0.0] * len(p_values)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


def _bootstrapped(table: SceneScores, statistic: Statistic) -> list[tuple[Interval | None, float | None, str]]:
    """The interval and the standard error of each row of a statistic of the rooms' weights, or why it has none."""
    missing = [_too_few(table, place) for place in range(len(table.names))]
    if all(missing):
        return [(None, None, why) for why in missing]
    try:
        without_one = statistic(np.ones((table.scenes, table.scenes)) - np.eye(table.scenes))
        spread = np.ptp(np.where(np.isnan(without_one), np.inf, without_one), axis=1)
        missing = [why or ("" if width > 1e-9 else NO_SPREAD) for why, width in zip(missing, spread, strict=True)]
        kept = [place for place, why in enumerate(missing) if not why]
        drawn = _resampled(table, statistic, kept)
    except BenchmarkError as error:
        return [(None, None, why or f"not every resample can be scored: {error}") for why in missing]
    return [(*drawn[place], "") if place in drawn else (None, None, why) for place, why in enumerate(missing)]


def _resampled(table: SceneScores, statistic: Statistic, kept: Sequence[int]) -> dict[int, tuple[Interval, float]]:
    if not kept:
        return {}
    from scipy.stats import bootstrap

    count = table.scenes
    whole = statistic(np.ones(count))[kept]

    def of_places(places: np.ndarray, axis: int = -1) -> np.ndarray:
        """The rows of the statistic for drawn rooms, (..., draws)."""
        drawn = places.reshape(-1, places.shape[-1])
        flat = (drawn + count * np.arange(len(drawn))[:, None]).ravel()
        weights = np.bincount(flat, minlength=len(drawn) * count).astype(float)
        scores = statistic(weights.reshape(*places.shape[:-1], count))[kept]
        scores = np.where(np.isnan(scores), whole.reshape(-1, *[1] * (scores.ndim - 1)), scores)
        return np.round(scores, DECIMALS)

    intervals: dict[int, tuple[Interval, float]] = {}
    result: Any = None
    freedom_of = {place: _freedom(table, place) for place in kept}
    for freedom in sorted(set(freedom_of.values())):
        result = bootstrap(
            (np.arange(count),),
            of_places,
            n_resamples=_resamples(table.benchmark) if result is None else 0,
            batch=1000,
            vectorized=True,
            confidence_level=_raised(LEVEL, freedom),
            method="BCa",
            bootstrap_result=result,
            rng=SEED,
        )
        low, high = result.confidence_interval
        for row, place in enumerate(kept):
            if freedom_of[place] == freedom:
                interval = (float(low[row]), float(high[row]))
                intervals[place] = (interval, float(result.standard_error[row]))
    return intervals


def _freedom(table: SceneScores, place: int) -> float:
    """The degrees of freedom of a score: scenes - 1 for one type. For a mean over types: Welch-Satterthwaite degrees,
    assuming independent types of equal variance, at most scenes - 1 (F. Satterthwaite, Biometrics Bulletin 2, 1946)."""
    names = table.types_of[place]
    most = table.scenes_of[place] - 1.0
    if table.pools_questions:
        return most
    scenes = np.array([table.scenes_with(name) for name in names])
    tasks = [table.benchmark.task_of(name) for name in names]
    in_task = [tasks.count(task) for task in tasks]
    variances = 1 / (scenes * np.square(in_task))
    return min(most, float(variances.sum() ** 2 / (variances**2 / (scenes - 1)).sum()))


def _raised(level: float, freedom: float) -> float:
    """The level at which a bootstrap of `freedom` + 1 scenes covers the truth about as often as `level` says."""
    from scipy.stats import norm, t

    edge = t.ppf(0.5 + level / 2, freedom) * (1 + 1 / freedom) ** 0.5
    return float(1 - 2 * norm.sf(edge))


def _too_few(table: SceneScores, place: int) -> str:
    """Why a score has no interval if it, or one of its types, has too few scenes; else empty."""
    names = table.types_of[place]
    scenes = table.scenes_of[place]
    about = table.names[place]
    if scenes >= FEWEST_SCENES and not table.pools_questions:
        about = min(names, key=table.scenes_with)
        scenes = table.scenes_with(about)
    if scenes >= FEWEST_SCENES:
        return ""
    counted = f"{scenes} scene{'' if scenes == 1 else 's'}"
    if scenes < table.scenes:  # the run has more, so name what has not
        counted = f"{about} is asked in {counted} of {table.scenes}"
    return f"{counted}, and an interval needs at least {FEWEST_SCENES}"


def _resamples(benchmark: Benchmark) -> int:
    return RESAMPLES if benchmark.aggregate in (mean_over_tasks, mean_over_questions) else RESAMPLES_OF_OWN
