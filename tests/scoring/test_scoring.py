"""Scores equal an independent implementation of the benchmark's description, and overalls are labelled."""

import json
from dataclasses import replace
from functools import partial

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_rows import result_row

from roomscout.data.benchmarks import vsi_bench
from roomscout.scoring import summary as scoring
from roomscout.scoring.scores import ResultRow, Scores, TypeScores

BENCHMARK = replace(vsi_bench.BENCHMARK, sizes={})
QUESTION_TYPES = BENCHMARK.by_name
SCAN_TYPES = BENCHMARK.scan_types
CHOICE_TYPES = [name for name, each in QUESTION_TYPES.items() if each.kind.takes_options]
NUMERIC_TYPES = [name for name in QUESTION_TYPES if name not in CHOICE_TYPES]
aggregate = partial(scoring.aggregate, benchmark=BENCHMARK)
format_summary = partial(scoring.format_summary, benchmark=BENCHMARK)

summarize = partial(scoring.summarize, benchmark=BENCHMARK)


def score_answer(question_type: str, answer: str | float | None, truth: str) -> float:
    return QUESTION_TYPES[question_type].kind.score(answer, truth)


def official_score(question_type: str, prediction: str, truth: str) -> float:
    """The benchmark's rule as described: first word without trailing periods; a letter, or ten error margins."""
    first, _, _ = prediction.partition(" ")
    while first.endswith("."):
        first = first[:-1]
    first = first.strip()
    if question_type in CHOICE_TYPES:
        return 1.0 if first.lower() == truth.lower() else 0.0
    try:
        error = abs(float(first) - float(truth)) / float(truth)
    except ValueError:
        return 0.0
    step = (0.95 - 0.5) / 9
    margins = [1 - (0.5 + k * step) for k in range(9)] + [1 - 0.95]  # how linspace computes its points
    return sum(error <= margin for margin in margins) / 10


numbers = st.one_of(
    st.integers(0, 40).map(str),
    st.integers(0, 4000).map(lambda hundredths: str(hundredths / 100)),
    st.floats(allow_nan=True, allow_infinity=True).map(str),
)
truths = st.one_of(st.integers(1, 40).map(str), st.integers(1, 4000).map(lambda hundredths: str(hundredths / 100)))
tails = st.sampled_from(["", ".", "..", " ", " m", ". It is", "\n", ".\n", " 3", ","])
words = st.one_of(numbers, st.sampled_from("ABCDabcd"), st.text(max_size=6))
answers = st.builds(lambda lead, word, tail: lead + word + tail, st.sampled_from(["", "", "", " "]), words, tails)


@given(st.sampled_from(sorted(NUMERIC_TYPES)), answers, truths)
def test_numbers_score_like_the_official_scorer(question_type: str, answer: str, truth: str) -> None:
    assert score_answer(question_type, answer, truth) == official_score(question_type, answer, truth)


@given(st.sampled_from(sorted(CHOICE_TYPES)), answers, st.sampled_from("ABCD"))
def test_letters_score_like_the_official_scorer(question_type: str, answer: str, truth: str) -> None:
    assert score_answer(question_type, answer, truth) == official_score(question_type, answer, truth)


@pytest.mark.parametrize(
    ("question_type", "answer", "truth", "score"),
    [
        ("object_counting", "3", "4", 0.6),
        ("object_counting", "1.5", "1", 0.1),
        ("object_counting", "1.05", "1", 1.0),
        ("object_counting", "2", "4", 0.1),
        ("object_counting", "4 chairs", "4", 1.0),
        ("object_counting", " 4", "4", 0.0),
        ("object_counting", "nan", "4", 0.0),
        ("object_counting", 4, "4", 1.0),
        ("object_counting", None, "4", 0.0),
        ("route_planning", "b. left", "B", 1.0),
        ("route_planning", "B.\n", "B", 0.0),
        ("route_planning", "(B)", "B", 0.0),
        ("route_planning", None, "B", 0.0),
        ("route_planning", 2.0, "B", 0.0),
    ],
)
def test_scores_of_ties_and_unusual_answers(
    question_type: str, answer: str | float | None, truth: str, score: float
) -> None:
    assert score_answer(question_type, answer, truth) == score


@pytest.mark.parametrize("truth", ["0", "-1", "nan", "inf"])
def test_a_ground_truth_that_relative_accuracy_cannot_use_is_refused(truth: str) -> None:
    with pytest.raises(ValueError, match="finite number above 0"):
        score_answer("object_counting", "1", truth)


tenths = st.integers(0, 10).map(lambda k: k / 10)


@given(st.lists(st.tuples(st.sampled_from(sorted(QUESTION_TYPES)), tenths), max_size=80))
def test_aggregation_equals_the_official_one_to_the_last_digit(extra: list[tuple[str, float]]) -> None:
    scored = [(name, 0.3) for name in QUESTION_TYPES] + extra
    table = pd.DataFrame(scored, columns=["type", "score"])
    means = {name: table["score"][table["type"] == name].mean() for name in sorted(QUESTION_TYPES)}
    directions = [means.pop(f"object_rel_direction_{level}") for level in ("easy", "medium", "hard")]
    means["object_rel_direction"] = sum(directions) / 3
    expected = {task: 100 * mean for task, mean in means.items()}
    expected["overall"] = 100 * (sum(means.values()) / len(means))
    assert aggregate(result_row(*pair) for pair in scored) == expected


def test_direction_is_the_mean_of_the_levels_present() -> None:
    rows = [result_row("object_rel_direction_easy", 1.0)] * 3 + [result_row("object_rel_direction_hard", 0.0)]
    assert aggregate(rows) == {"object_rel_direction": 50.0, "overall": 50.0}


@pytest.mark.parametrize(("failed_part", "with_scan"), [("scan", 100.0), ("model", 50.0)])
def test_a_failure_scores_0_and_only_a_missing_scan_is_excluded_with_scan(failed_part: str, with_scan: float) -> None:
    rows = [result_row(name, 1.0) for name in SCAN_TYPES]
    rows += [result_row(name, 0.0, status="failed", failed_part=failed_part, turns=0) for name in SCAN_TYPES]
    summary = summarize(rows)
    assert (summary.asked.overall, summary.with_scan.overall) == (50.0, with_scan)


def test_the_summary_counts_each_type() -> None:
    rows = [result_row("route_planning", 1.0, turns=2), result_row("route_planning", 0.0, status="exhausted", turns=9)]
    rows += [result_row("route_planning", 0.0, status="failed", failed_part="scan", turns=0)]
    assert summarize(rows).types["route_planning"] == TypeScores(
        questions=3, answered=1, exhausted=1, failed=1, without_scan=1, mean_turns=5.5, scored=3, percent=33.3333333333
    )


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [result_row("open", None), result_row("open_choice", 1.0), result_row("object_counting", 0.5)],
        [result_row("route_planning", 0.0, status="failed", failed_part="scan", turns=0)],
        [result_row(name, 0.6) for name in SCAN_TYPES],
    ],
)
def test_every_summary_survives_json_and_can_be_printed(rows: list[ResultRow]) -> None:
    summary = summarize(rows, pending=1)
    saved = json.loads(json.dumps(summary.to_json(), allow_nan=False))
    assert Scores.from_json(saved) == summary
    assert summary.asked.label is None or saved["asked"][saved["asked"]["overall_label"]] == summary.asked.overall
    assert all("\n" not in line for line in format_summary(summary))


def test_the_users_own_scored_questions_do_not_count_towards_the_overall() -> None:
    mixed = summarize([result_row("open_choice", 1.0), result_row("open", None), result_row("object_counting", 0.5)])
    assert (mixed.asked.scored, mixed.asked.scored_own) == (2, 1)
    assert mixed.asked.tasks == {"object_counting": 50.0}
    assert mixed.types["open_choice"].percent == 100.0
    assert format_summary(mixed)[-2].endswith("over 1 question without open_choice")
    assert format_summary(mixed)[-1] == "open_choice, beside the overall: 100.0 % over 1 answer"


def test_questions_in_types_of_ones_own_alone_have_their_mean_as_overall() -> None:
    scored = (("open_choice", 1.0), ("open_choice", 0.0), ("open_number", 0.3), ("open", None))
    rows = [result_row(*each) for each in scored]
    asked = summarize(rows).asked
    assert (asked.scored, asked.scored_own, str(asked.label)) == (3, 0, "overall_over_questions")
    assert asked.tasks == {"open_choice": 50.0, "open_number": 30.0}
    assert asked.overall == pytest.approx(130 / 3)
    label = "mean over questions in open_choice, open_number"
    assert format_summary(summarize(rows))[-1] == f"{label}: 43.3 % over 3 questions"
