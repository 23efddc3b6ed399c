"""The scores of a run by scene, so that many resamples of scenes can be scored at once."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from roomscout.base.grouping import grouped
from roomscout.data.benchmark import Benchmark, mean_over_questions, mean_over_tasks
from roomscout.scoring.pairs import in_pairs
from roomscout.scoring.scores import ResultRow
from roomscout.scoring.summary import combined


@dataclass(frozen=True, eq=False)
class SceneScores:
    """The scores of a run by room and type, which add up with weights of rooms."""

    benchmark: Benchmark  # that combines the scores
    rooms: tuple[tuple[str, str], ...]  # dataset and name
    types: tuple[str, ...]  # those that have a score
    sums: np.ndarray  # of scores, (rooms, types)
    counts: np.ndarray  # of scores, (rooms, types)
    scores: tuple[np.ndarray, ...]  # of each type, for a benchmark with an aggregate of its own
    places: tuple[np.ndarray, ...]  # the room of each of these scores, as a place in `rooms`

    @classmethod
    def of(cls, rows: Iterable[ResultRow], benchmark: Benchmark) -> Self:
        """The table of rows `in_pairs`; rooms by name, types in the order of the benchmark, own types last."""
        scored = [
            (row.question_type, benchmark.room_of(row.dataset, row.scene_name), row.score)
            for row in in_pairs(rows, benchmark)
            if row.score is not None
        ]
        rooms = tuple(sorted({room for _, room, _ in scored}))
        place_of = {room: place for place, room in enumerate(rooms)}
        of_type = grouped((name, (place_of[room], score)) for name, room, score in scored)
        types = tuple(name for name in dict.fromkeys([*benchmark.by_name, *of_type]) if name in of_type)
        places = tuple(np.array([place for place, _ in of_type[name]], int) for name in types)
        scores = tuple(np.array([score for _, score in of_type[name]], float) for name in types)
        shape = len(rooms), len(types)
        sums = np.zeros(shape)
        counts = np.zeros(shape)
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
    def of_own(self) -> bool:
        """Whether no type is the benchmark's, so that the overall is the mean over questions."""
        return not any(name in self.benchmark.by_name for name in self.types)

    @property
    def in_overall(self) -> list[str]:
        """The types that count in the overall."""
        return self.benchmark.in_overall(self.types)

    @cached_property
    def tasks(self) -> dict[str, list[str]]:
        """The types that count in the overall, by task, as `aggregate` names the tasks."""
        by_task = grouped((self.benchmark.task_of(name), name) for name in self.in_overall)
        if self.of_own or self.benchmark.aggregate in (mean_over_tasks, mean_over_questions):
            return by_task
        names = [name for name in self._own_percents(np.ones(self.scenes)) if name != "overall"]
        return {name: by_task.get(name, self.in_overall) for name in names}

    @cached_property
    def names(self) -> list[str]:
        """The names of the scores: tasks, types that are not one, and "overall" if anything is scored."""
        others = [name for name in self.types if name not in self.tasks]
        overall = ["overall"] if self.in_overall else []
        return [*self.tasks, *others, *overall]

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

    def scenes_unlike(self, other: Self) -> list[int]:
        """In how many scenes another run over the same questions differs in what counts in each score: exchanging the
        runs in the others changes nothing. All scenes for a benchmark with an aggregate of its own."""
        if self.benchmark.aggregate not in (mean_over_tasks, mean_over_questions) and not self.of_own:
            return self.scenes_of
        unlike = np.abs(self.sums - other.sums) > 1e-9
        return [int(unlike[:, self._columns(names)].any(axis=1).sum()) for names in self.types_of]

    @property
    def pools_questions(self) -> bool:
        """Whether a score is a mean over questions, whatever their type."""
        return self.of_own or self.benchmark.aggregate is mean_over_questions

    def _columns(self, names: Sequence[str]) -> list[int]:
        return [self.types.index(name) for name in names]

    def percents(self, weights: np.ndarray) -> np.ndarray:
        """Percent by name, (names, ...), if each room counts as often as its weight, (..., rooms); nan without one."""
        if not self.of_own and self.benchmark.aggregate not in (mean_over_tasks, mean_over_questions):
            return self._each_by_own_aggregate(weights)
        sums = weights @ self.sums
        counts = weights @ self.counts

        def of_types(names: Sequence[str]) -> Any:
            columns = self._columns(names)
            if self.pools_questions:
                return _ratio(sums[..., columns].sum(-1), counts[..., columns].sum(-1))
            return _mean([_ratio(sums[..., column], counts[..., column]) for column in columns])

        scores = [of_types(names) for name, names in zip(self.names, self.types_of, strict=True) if name != "overall"]
        if self.in_overall:
            overall = of_types(self.types_of[-1]) if self.pools_questions else _mean(scores[: len(self.tasks)])
            scores.append(overall)
        return 100 * np.stack(scores)

    def _each_by_own_aggregate(self, weights: np.ndarray) -> np.ndarray:
        rows = []
        for drawn in weights.reshape(-1, weights.shape[-1]):
            percents = self._own_percents(drawn)
            types = dict(zip(self.types, 100 * _ratio(drawn @ self.sums, drawn @ self.counts), strict=True))
            rows.append([percents.get(name, types.get(name, np.nan)) for name in self.names])
        return np.array(rows).T.reshape(len(self.names), *weights.shape[:-1])

    def _own_percents(self, weights: np.ndarray) -> Mapping[str, float]:
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
    stacked = np.stack(parts)
    there = ~np.isnan(stacked)
    return _ratio(np.where(there, stacked, 0).sum(0), there.sum(0))
