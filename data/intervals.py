"""Confidence intervals of scores, and of differences between runs, by resampling scenes.

Questions about one scene share its objects, its scan and its blind spots, so their scores are not independent, and
intervals that treat them so are too narrow (E. Miller, "Adding Error Bars to Evals", arXiv:2411.00640, section 2.2).
Here a resample draws whole scenes with replacement, with all their answers, and the benchmark's own `aggregate`
combines them. Several scans of one room count as one scene, as `Benchmark.room_of` says.

Intervals are bias-corrected and accelerated (B. Efron, JASA 82, 1987; `scipy.stats.bootstrap`). A bootstrap of few
units is too narrow, so for n scenes the nominal level is raised to that of a t-interval with n - 1 degrees of freedom
times sqrt(n / (n - 1)) (T. Hesterberg, The American Statistician 69, 2015, section 3.3).
`python -m roomscout.benchmarks.intervals` measures how often they contain a known truth.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Any, Self

import numpy as np

from roomscout.data.benchmarks import Benchmark, BenchmarkError, mean_over_questions, mean_over_tasks
from roomscout.data.scoring import Row, combined, rounded, score_of

Interval = tuple[float, float]

LEVEL = 0.95
FEWEST_SCENES = 10
"""A score over fewer scenes has no interval."""
RESAMPLES = 9999
RESAMPLES_OF_OWN = 999
"""Resamples for a benchmark with an `aggregate` of its own, which is called for each."""
SEED = 0
POWER = 0.8
NO_SPREAD = "resampling scenes shows no spread: all have the same value"


@dataclass(frozen=True)
class Estimate:
    """A score or a difference in percent, with its interval and standard error; None if they are unknown.

    `scenes` is how many scenes have a question about it. `missing` says why there is no interval.
    """

    name: str
    percent: float
    scenes: int
    interval: Interval | None = None
    error: float | None = None
    missing: str = ""


@dataclass(frozen=True)
class Difference(Estimate):
    """A second run's score minus the first's, in percentage points.

    `p_value` is that of a permutation test that exchanges the two runs scene by scene, so it assumes no distribution.
    """

    first: float = 0.0
    second: float = 0.0
    p_value: float = 1.0

    @property
    def scenes_needed(self) -> int | None:
        """How many scenes a study needs to detect a true difference of this size with 80 % power, two-sided at 5 %.

        n = (z_0.975 + z_0.8)^2 s^2 / d^2 with the variance s^2 of one scene's contribution (arXiv:2411.00640, section
        5), taken from the standard error found here. None without one or without a difference.
        """
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


def estimates(rows: Iterable[Row], benchmark: Benchmark, resamples: int | None = None) -> list[Estimate]:
    """The percent of each task, of each type that is not one, and the "overall" last, with their intervals.

    Rows are those of `scoring.summarize` with `dataset` and `scene_name`; those without a ground truth are ignored.
    Each of several answers to a question counts like a question, and the scene remains the unit. A type that a
    resample lacks is left out of it, as `aggregate` does, and a score without any of its types keeps its value; both
    are rare, since a score has an interval only if each of its types is asked in FEWEST_SCENES scenes or more. Returns
    [] if nothing is scored. Raises ValueError and BenchmarkError as `aggregate` does.
    """
    table = _Table.of(rows, benchmark)
    if not table.names:
        return []
    found = _bootstrapped(table, table.percents, table.scenes, resamples)
    percents = table.percents(table.ones)
    return [
        Estimate(name, rounded(float(percent)), scenes, *each)
        for name, percent, scenes, each in zip(table.names, percents, table.scenes_of, found, strict=True)
    ]


def intervals_of(rows: Iterable[Row], benchmark: Benchmark) -> dict[str, Any]:
    """`estimates` as JSON values, for summary.json; {} if nothing is scored.

    "percent" has the interval, low and high, by the name of the task, the type, or "overall"; "missing" the reason why
    others have none.
    """
    if not (found := estimates(rows, benchmark)):
        return {}
    return {
        "level": round(100 * LEVEL),
        "method": f"BCa bootstrap over scenes, {_resamples(benchmark)} resamples, seed {SEED}",
        "scenes": {each.name: each.scenes for each in found},
        "percent": {each.name: [round(edge, 4) for edge in each.interval] for each in found if each.interval},
        "missing": {each.name: each.missing for each in found if each.missing},
    }


def differences(
    first: Iterable[Row], second: Iterable[Row], benchmark: Benchmark, resamples: int | None = None
) -> list[Difference]:
    """The differences between two runs over the same questions: `second` minus `first`, named as by `estimates`.

    A resample draws the same scenes for both runs, so what makes a scene hard for both cancels. Raises ValueError if
    the runs differ in their scenes or types, and as `estimates` does.
    """
    tables = [_Table.of(rows, benchmark) for rows in (first, second)]
    if tables[0].rooms != tables[1].rooms or tables[0].names != tables[1].names:
        raise ValueError("the runs are not about the same questions: their scenes or types differ")
    both, count = _Table.stacked(*tables), tables[0].scenes
    if not both.names:
        return []
    rng = np.random.default_rng(SEED)

    def gain(of_first: np.ndarray, of_second: np.ndarray) -> np.ndarray:
        """The score of the answers of one choice of runs minus that of another, by the weights of the scenes."""
        none = np.zeros_like(of_first)
        chosen = np.concatenate([none, of_second], -1), np.concatenate([of_first, none], -1)
        return both.percents(chosen[0]) - both.percents(chosen[1])

    found = _bootstrapped(tables[0], lambda weights: gain(weights, weights), count, resamples)
    flips = rng.integers(2, size=(resamples or _resamples(benchmark), count)).astype(float)
    mixed = both.percents(np.concatenate([flips, 1 - flips], -1))
    exchanged = mixed - both.percents(np.concatenate([1 - flips, flips], -1))
    of_first, of_second = (table.percents(table.ones) for table in tables)
    change = of_second - of_first
    more_extreme = (np.abs(exchanged) >= np.abs(change)[:, None] - 1e-9).sum(-1)
    p_values = (1 + more_extreme) / (1 + len(flips))
    return [
        Difference(name, rounded(float(gained)), scenes, *each, float(before), float(after), float(p_value))
        for name, gained, scenes, each, before, after, p_value in zip(
            both.names, change, tables[0].scenes_of, found, of_first, of_second, p_values, strict=True
        )
    ]


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values adjusted for their number: reject those below 5 %, and any false rejection has at most that chance.

    S. Holm, Scandinavian Journal of Statistics 6 (1979).
    """
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted


@dataclass(frozen=True, eq=False)
class _Table:
    """Sums and counts of scores by room and type, (rooms, types), and each score with its room for an own aggregate."""

    benchmark: Benchmark
    rooms: tuple[tuple[str, str], ...]
    types: tuple[str, ...]
    sums: np.ndarray
    counts: np.ndarray
    scores: tuple[np.ndarray, ...]
    places: tuple[np.ndarray, ...]

    @classmethod
    def of(cls, rows: Iterable[Row], benchmark: Benchmark) -> Self:
        """The table of scored rows; rooms by name, types in the order of the benchmark, own types last."""
        scored = [(row["question_type"], benchmark.room_of(row["dataset"], row["scene_name"]), score_of(row))
                  for row in rows if row["ground_truth"] is not None]  # fmt: skip
        rooms = tuple(sorted({room for _, room, _ in scored}))
        present = dict.fromkeys(name for name, _, _ in scored)
        types = tuple(name for name in dict.fromkeys([*benchmark.by_name, *present]) if name in present)
        place_of = {room: place for place, room in enumerate(rooms)}
        of_type: dict[str, list[tuple[int, float]]] = {name: [] for name in types}
        for name, room, score in scored:
            of_type[name].append((place_of[room], score))
        places = tuple(np.array([place for place, _ in of_type[name]], int) for name in types)
        scores = tuple(np.array([score for _, score in of_type[name]], float) for name in types)
        shape = len(rooms), len(types)
        sums, counts = np.zeros(shape), np.zeros(shape)
        for column, (where, values) in enumerate(zip(places, scores, strict=True)):
            sums[:, column] = np.bincount(where, values, len(rooms))
            counts[:, column] = np.bincount(where, minlength=len(rooms))
        return cls(benchmark, rooms, types, sums, counts, scores, places)

    @classmethod
    def stacked(cls, first: Self, second: Self) -> Self:
        """One table whose first rooms are those of `first`, followed by those of `second`."""
        return cls(
            first.benchmark,
            (*first.rooms, *second.rooms),
            first.types,
            np.concatenate([first.sums, second.sums]),
            np.concatenate([first.counts, second.counts]),
            tuple(map(np.concatenate, zip(first.scores, second.scores, strict=True))),
            tuple(
                np.concatenate([before, after + first.scenes])
                for before, after in zip(first.places, second.places, strict=True)
            ),
        )

    @property
    def scenes(self) -> int:
        """The number of rooms."""
        return len(self.rooms)

    @property
    def ones(self) -> np.ndarray:
        """The weights of the sample itself."""
        return np.ones(self.scenes)

    @property
    def in_overall(self) -> list[str]:
        """The types that count in the overall."""
        return [name for name in self.types if name in self.benchmark.by_name]

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """The benchmark's types that are present, by task, as `aggregate` names the tasks."""
        found: dict[str, list[str]] = {}
        for name in self.in_overall:
            found.setdefault(self.task_of(name), []).append(name)
        if not found or self.benchmark.aggregate in (mean_over_tasks, mean_over_questions):
            return found
        return {name: found.get(name, self.in_overall) for name in self._own_percents(self.ones) if name != "overall"}

    @cached_property
    def names(self) -> list[str]:
        """The names of the scores: tasks, types that are not one, and "overall" if a type of the benchmark is there."""
        others = [name for name in self.types if name not in self.tasks]
        return [*self.tasks, *others, *(["overall"] if self.in_overall else [])]

    @cached_property
    def types_of(self) -> list[list[str]]:
        """The types that each score covers, in the order of `names`."""
        return [self.in_overall if name == "overall" else self.tasks.get(name, [name]) for name in self.names]

    @property
    def scenes_of(self) -> list[int]:
        """How many scenes have a question that counts in each score."""
        return [int((self.counts[:, self._columns(names)] > 0).any(axis=1).sum()) for names in self.types_of]

    def scenes_with(self, name: str) -> int:
        """How many scenes have a question of a type."""
        return int((self.counts[:, self.types.index(name)] > 0).sum())

    @property
    def pools_questions(self) -> bool:
        """Whether a score is a mean over questions, whatever their type."""
        return self.benchmark.aggregate is mean_over_questions

    def _columns(self, names: Sequence[str]) -> list[int]:
        return [self.types.index(name) for name in names]

    @property
    def freedom_of(self) -> list[float]:
        """The degrees of freedom of each score: of one type, those of its scenes.

        Of a mean of types, those of Welch's test as if types were independent and equally variable (F. Satterthwaite,
        Biometrics Bulletin 2, 1946), and at most those of all scenes: one scarce type may decide how variable it is.
        """
        found = []
        for names, all_scenes in zip(self.types_of, self.scenes_of, strict=True):
            scenes = np.array([self.scenes_with(name) for name in names])
            if self.pools_questions or scenes.min() < FEWEST_SCENES:
                found.append(all_scenes - 1.0)
                continue
            in_task = [sum(self.task_of(other) == self.task_of(name) for other in names) for name in names]
            variances = 1 / (scenes * np.square(in_task))
            found.append(min(all_scenes - 1.0, float(variances.sum() ** 2 / (variances**2 / (scenes - 1)).sum())))
        return found

    def task_of(self, name: str) -> str:
        """The task of a type; of one of one's own, the type itself."""
        known = self.benchmark.by_name.get(name)
        return known.task if known else name

    def percents(self, weights: np.ndarray) -> np.ndarray:
        """Percent by name, (names, ...), if each room counts as often as its weight, (..., rooms); nan without one."""
        if self.in_overall and self.benchmark.aggregate not in (mean_over_tasks, mean_over_questions):
            return self._each_by_own_aggregate(weights)
        sums, counts = weights @ self.sums, weights @ self.counts

        def of_types(names: Sequence[str]) -> Any:
            columns = self._columns(names)
            if self.pools_questions:
                return _ratio(sums[..., columns].sum(-1), counts[..., columns].sum(-1))
            return _mean([_ratio(sums[..., column], counts[..., column]) for column in columns])

        found = [of_types(names) for name, names in zip(self.names, self.types_of, strict=True) if name != "overall"]
        if self.in_overall:
            overall = of_types(self.types_of[-1]) if self.pools_questions else _mean(found[: len(self.tasks)])
            found.append(overall)
        return 100 * np.stack(found)

    def _each_by_own_aggregate(self, weights: np.ndarray) -> np.ndarray:
        drawn = weights.reshape(-1, weights.shape[-1])
        rows = []
        for each in drawn:
            percents = self._own_percents(each)
            counts = each @ self.counts
            types = dict(zip(self.types, 100 * _ratio(each @ self.sums, counts), strict=True))
            rows.append([percents.get(name, types.get(name, np.nan)) for name in self.names])
        return np.array(rows).T.reshape(len(self.names), *weights.shape[:-1])

    def _own_percents(self, weights: np.ndarray) -> Mapping[str, float]:
        """What the benchmark's own aggregate makes of the scores; raises BenchmarkError."""
        times = weights.astype(int)
        drawn = {
            name: np.repeat(scores, times[places]).tolist()
            for name, scores, places in zip(self.types, self.scores, self.places, strict=True)
            if name in self.benchmark.by_name
        }
        return combined(self.benchmark, {name: scores for name, scores in drawn.items() if scores})


def _ratio(sums: Any, counts: Any) -> Any:
    return np.divide(sums, counts, out=np.full(np.shape(sums), np.nan), where=np.asarray(counts) > 0)


def _mean(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of the parts that are there, elementwise."""
    stacked = np.stack(parts)
    there = ~np.isnan(stacked)
    return _ratio(np.where(there, stacked, 0).sum(0), there.sum(0))


def _bootstrapped(
    table: _Table, statistic: Any, count: int, resamples: int | None
) -> list[tuple[Interval | None, float | None, str]]:
    """The interval and the standard error of each row of a statistic of the rooms' weights, or why it has none."""
    missing = [_too_few(table, place) for place in range(len(table.names))]
    if all(missing):
        return [(None, None, why) for why in missing]
    try:
        without_one = statistic(np.ones((count, count)) - np.eye(count))
        spread = np.ptp(np.where(np.isnan(without_one), np.inf, without_one), axis=1)
        missing = [why or ("" if each > 1e-9 else NO_SPREAD) for why, each in zip(missing, spread, strict=True)]
        kept = [place for place, why in enumerate(missing) if not why]
        drawn = _resampled(statistic, kept, table, count, resamples or _resamples(table.benchmark))
    except BenchmarkError as error:
        return [(None, None, why or f"not every resample can be scored: {error}") for why in missing]
    return [(*drawn[place], "") if place in drawn else (None, None, why) for place, why in enumerate(missing)]


def _resampled(
    statistic: Any, kept: Sequence[int], table: _Table, count: int, resamples: int
) -> dict[int, tuple[Interval, float]]:
    """The interval and the standard error of the `kept` rows of the statistic."""
    if not kept:
        return {}
    from scipy.stats import bootstrap

    whole = statistic(np.ones(count))[kept]

    def of_places(places: np.ndarray, axis: int = -1) -> np.ndarray:
        """The rows of the statistic for drawn rooms, (..., draws)."""
        drawn = places.reshape(-1, places.shape[-1])
        flat = (drawn + count * np.arange(len(drawn))[:, None]).ravel()
        weights = np.bincount(flat, minlength=len(drawn) * count).astype(float)
        found = statistic(weights.reshape(*places.shape[:-1], count))[kept]
        return np.where(np.isnan(found), whole.reshape(-1, *[1] * (found.ndim - 1)), found)

    found: dict[int, tuple[Interval, float]] = {}
    result: Any = None
    freedom_of = table.freedom_of
    for freedom in sorted({freedom_of[place] for place in kept}):
        result = bootstrap(
            (np.arange(count),),
            of_places,
            n_resamples=resamples if result is None else 0,
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
                found[place] = (float(low[row]), float(high[row])), float(result.standard_error[row])
    return found


def _raised(level: float, freedom: float) -> float:
    """The level at which a bootstrap of `freedom` + 1 scenes covers the truth about as often as `level` says."""
    from scipy.stats import norm, t

    edge = t.ppf(0.5 + level / 2, freedom) * (1 + 1 / freedom) ** 0.5
    return float(1 - 2 * norm.sf(edge))


def _too_few(table: _Table, place: int) -> str:
    """Why a score has no interval if it, or one of its types, has too few scenes; else empty."""
    names = table.types_of[place]
    scarcest = min(names, key=table.scenes_with)
    by_type = not table.pools_questions and len(names) > 1
    scenes = table.scenes_with(scarcest) if by_type else table.scenes_of[place]
    if scenes >= FEWEST_SCENES:
        return ""
    about = f"{scarcest} has " if by_type and scenes < table.scenes else ""
    return f"{about}{scenes} scene{'' if scenes == 1 else 's'}, and an interval needs at least {FEWEST_SCENES}"


def _resamples(benchmark: Benchmark) -> int:
    return RESAMPLES if benchmark.aggregate in (mean_over_tasks, mean_over_questions) else RESAMPLES_OF_OWN
