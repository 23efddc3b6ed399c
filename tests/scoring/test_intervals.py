"""Intervals of scores and of differences, against hand-computed cases and the benchmark's own aggregates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from result_rows import result_row
from scipy import stats

from roomscout.data.benchmark import Benchmark, mean_over_questions
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.scoring.intervals import (
    NO_SPREAD,
    Difference,
    Estimate,
    differences,
    estimates,
    holm,
    intervals_of,
    uneven_scenes,
)
from roomscout.scoring.scores import ResultRow
from roomscout.scoring.summary import aggregate

COUNTING, SIZE = "object_counting", "room_size_estimation"
EASY, HARD = "object_rel_direction_easy", "object_rel_direction_hard"


def row(scene: int | str, score: float, kind: str = COUNTING, dataset: str = "mine") -> ResultRow:
    return result_row(kind, score, dataset=dataset, scene_name=str(scene), id=f"{scene} {kind}")


def one_each(values: Sequence[float], kind: str = COUNTING) -> list[ResultRow]:
    """One question in each of as many scenes."""
    return [row(scene, score, kind) for scene, score in enumerate(values)]


def some_rows(scenes: int = 24, seed: int = 0) -> list[ResultRow]:
    """One to four questions of each of three tasks in each scene, with random scores."""
    rng = np.random.default_rng(seed)
    return [
        row(scene, float(rng.integers(11)) / 10, kind)
        for kind in (COUNTING, SIZE, EASY, HARD)
        for scene in range(scenes)
        for _ in range(rng.integers(1, 5))
    ]


def named(found: Sequence[Estimate]) -> dict[str, Estimate]:
    return {each.name: each for each in found}


def weighted_halves(benchmark: Benchmark, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """An aggregate of a benchmark of one's own: counting is worth three quarters of the overall."""
    percents = {"counts": 100 * float(np.mean(scores[COUNTING])), "sizes": 100 * float(np.mean(scores[SIZE]))}
    return percents | {"overall": 0.75 * percents["counts"] + 0.25 * percents["sizes"]}


OWN = replace(BENCHMARK, name="own", title="Own", aggregate=weighted_halves)


@pytest.mark.parametrize("benchmark", [BENCHMARK, replace(BENCHMARK, aggregate=mean_over_questions), OWN])
def test_scores_are_those_of_the_benchmarks_aggregate(benchmark: Benchmark):
    rows, found = some_rows(), {}
    for each in estimates(rows, benchmark):
        found[each.name] = each.percent
    expected = aggregate(rows, benchmark)
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_an_interval_of_one_question_per_scene_is_that_of_a_mean():
    values = np.random.default_rng(1).random(60)
    (task, overall) = estimates(one_each(values.tolist()), BENCHMARK)
    expected = stats.ttest_1samp(100 * values, 0).confidence_interval(0.95)
    assert task.interval == overall.interval
    assert task.interval == pytest.approx((expected.low, expected.high), abs=0.6)


def test_answers_in_one_scene_do_not_count_as_independent():
    values = np.random.default_rng(2).random(30).tolist()
    once, four_times = (estimates(one_each(values) * times, BENCHMARK)[0] for times in (1, 4))
    assert four_times.interval == pytest.approx(once.interval)


def test_scans_of_one_room_are_one_scene():
    rows = [row(f"scene{number:04d}_{scan:02d}", 0.5, dataset="scannet") for number in range(9) for scan in range(3)]
    (task, _) = estimates(rows, BENCHMARK)
    assert (task.scenes, task.missing) == (9, "9 scenes, and an interval needs at least 10")


def test_a_type_in_few_scenes_takes_the_interval_of_its_task_and_of_the_overall():
    rows = one_each([0.0, 1.0] * 6) + one_each([0.0, 1.0] * 6, EASY) + one_each([0.0, 1.0, 1.0], HARD)
    found = named(estimates(rows, BENCHMARK))
    why = f"{HARD} is asked in 3 scenes of 12, and an interval needs at least 10"
    assert {name: each.missing for name, each in found.items()} == {
        COUNTING: "", "object_rel_direction": why, EASY: "", HARD: why, "overall": why,
    }  # fmt: skip


def test_a_type_that_some_resamples_lack_has_an_interval():
    rows = one_each([0.0, 1.0] * 60) + one_each([0.0, 1.0] * 5, SIZE)
    found = named(estimates(rows, BENCHMARK))
    assert found[SIZE].interval is not None
    assert np.isfinite([edge for each in found.values() for edge in each.interval or (0,)]).all()


def test_an_aggregate_of_ones_own_has_intervals():
    found = named(estimates(some_rows(), OWN))
    assert list(found) == ["counts", "sizes", COUNTING, SIZE, EASY, HARD, "overall"]
    assert found["counts"].interval == pytest.approx(found[COUNTING].interval, abs=0.1)


def test_an_aggregate_that_fails_on_a_resample_says_so():
    def strict(benchmark: Benchmark, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
        if sum(map(len, scores.values())) != 12 * 2:
            raise ValueError("some answers are missing")
        return {"overall": 100 * float(np.mean(scores[COUNTING]))}

    rows = [row(scene, (scene + place) % 3 / 2) for scene in range(12) for place in range(1 + 2 * (scene % 2))]
    overall = estimates(rows, replace(BENCHMARK, title="Strict", aggregate=strict))[-1]
    assert overall.missing.startswith("not every resample can be scored: the aggregate of Strict failed (ValueError")


@pytest.mark.parametrize(
    ("sizes", "warns"),
    [([1] * 12, False), ([1, 2, 3] * 5, False), ([12, 12, *[1] * 28], True), ([10, *[1] * 30], True), ([9, 1], False)],
)
def test_scenes_with_most_of_the_questions_are_warned_of(sizes: list[int], warns: bool):
    rows = [row(scene, 1.0) for scene, count in enumerate(sizes) for _ in range(count)]
    assert bool(uneven_scenes(rows, BENCHMARK)) == warns


def test_the_interval_of_a_few_changed_answers_includes_0_unless_the_test_rejects_it():
    first = [row(scene, float(scene % 2)) for scene in range(30)]
    for changed, rejected in ((5, False), (7, True)):  # p is 2 / 2^5 and 2 / 2^7
        second = [replace(each, score=1.0) if place < 2 * changed else each for place, each in enumerate(first)]
        found = differences(first, second, BENCHMARK)[-1]
        assert found.interval is not None and (found.p_value < 0.05) == rejected
        assert (found.interval[0] > 0) == rejected


def test_types_of_ones_own_have_intervals_and_their_mean_as_overall():
    found = estimates(one_each([0.0, 1.0] * 6, "open"), BENCHMARK)
    assert [each.name for each in found] == ["open", "overall"]
    assert found[0].interval is not None and found[0].interval == found[1].interval
    pooled = one_each([0.0] * 12, "open") + one_each([1.0] * 4, "open_number")
    assert estimates(pooled, BENCHMARK)[-1].percent == 25.0


def test_the_intervals_of_a_summary_are_percentages_by_name():
    found = intervals_of(one_each([0.0, 1.0] * 20) + one_each([0.5], SIZE), BENCHMARK)
    low, high = found.percent[COUNTING]
    assert 30 < low < 50 < high < 70
    assert found.missing[SIZE] == f"{SIZE} is asked in 1 scene of 40, and an interval needs at least 10"
    assert (found.level, found.scenes) == (95, {COUNTING: 40, SIZE: 1, "overall": 40})


def difference(first: Sequence[ResultRow], second: Sequence[ResultRow]) -> Difference:
    return differences(first, second, BENCHMARK)[-1]


def test_equal_runs_do_not_differ():
    found = difference(some_rows(), some_rows())
    assert (found.percent, found.p_value, found.interval, found.missing) == (0, 1, None, NO_SPREAD)
    assert found.scenes_needed is None


def test_a_difference_is_paired_by_scene():
    hard = np.random.default_rng(3).integers(2, size=40)
    first = one_each([0.5 * each for each in hard])
    second = one_each([0.5 * each + 0.25 + 0.05 * (place % 2) for place, each in enumerate(hard)])
    found, alone = difference(first, second), estimates(second, BENCHMARK)[-1]
    assert found.percent == pytest.approx(27.5)
    assert found.interval is not None and alone.interval is not None
    assert found.interval[1] - found.interval[0] < 0.2 * (alone.interval[1] - alone.interval[0])


def test_the_p_value_is_the_share_of_exchanges_that_differ_as_much():
    first, second = one_each([0.0] * 10), one_each([1.0] * 9 + [0.5])
    assert difference(first, second).p_value == pytest.approx(2 / 2**10, abs=0.002)


def test_a_difference_of_macro_means_weighs_tasks_equally():
    first = one_each([0.0] * 40) + one_each([0.5] * 10, SIZE)
    second = one_each([0.0] * 40) + one_each([1.0] * 5 + [0.9] * 5, SIZE)
    assert difference(first, second).percent == pytest.approx((0 + 45) / 2)


def test_runs_over_other_scenes_are_refused():
    with pytest.raises(ValueError, match="not about the same questions"):
        differences(one_each([0.0] * 10), one_each([0.0] * 11), BENCHMARK)


def test_holms_adjustment():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
