"""Pairs of questions about twin rooms: both members must be right, and answers should follow what differs."""

import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from result_rows import result_row

from roomscout.agent.progress import Progress
from roomscout.analysis.compare.answers import Answers
from roomscout.analysis.compare.comparison import compare
from roomscout.data.answers import LETTER_KIND, Number
from roomscout.data.benchmark import Benchmark, QuestionType
from roomscout.data.questions import Question, Selection
from roomscout.runs import RunError
from roomscout.runs.summary import Summary
from roomscout.scoring.agreement import by_annotator
from roomscout.scoring.baselines import frequency_baseline, frequent_guesses
from roomscout.scoring.by_dataset import scores_by_dataset
from roomscout.scoring.intervals import estimates
from roomscout.scoring.pairs import below_full, in_pairs, scores_in_pairs, sensitivity
from roomscout.scoring.samples import summarize_samples
from roomscout.scoring.scores import ResultRow, Scores, Sensitivity
from roomscout.scoring.summary import aggregate, format_summary, summarize

COUNT = Number("objects")
TYPES = (QuestionType("side", LETTER_KIND), QuestionType("count", COUNT))
TWINS = Benchmark("twins", "Twins", TYPES, pairs=r"(\d+)[ab]", rescans={"mine": r"(\w+)_[ab]"})
ALONE = replace(TWINS, pairs="")


def answered(id: str, answer: str | None, truth: str, **changes: Any) -> ResultRow:
    """An answer about the room of the pair: a letter or a number, as the truth is."""
    kind = QuestionType("count", COUNT) if truth.isdigit() else QuestionType("side", LETTER_KIND)
    scene = f"room{id[:-1]}_{id[-1]}"
    own = {"id": id, "answer": answer, "ground_truth": truth, "scene_name": scene, "number": 1 + int(id, 16)}
    return result_row(kind.name, kind.kind.score(answer, truth), **{**own, **changes})


def percents(*rows: ResultRow) -> dict[str, float]:
    return aggregate(rows, TWINS)


BOTH = (answered("1a", "A", "A"), answered("1b", "B", "B"))
ONE = (answered("2a", "A", "A"), answered("2b", "A", "B"))
NUMBERS = (answered("3a", "3", "3"), answered("3b", "3", "4"))
FAILED = (answered("4a", "A", "A"), answered("4b", None, "B", status="failed", failed_part="model"))


def test_a_pair_scores_the_smaller_of_its_two_scores():
    assert [row.score for row in in_pairs((*BOTH, *ONE, *NUMBERS), TWINS)] == [1, 1, 0, 0, 0.6, 0.6]
    assert percents(*BOTH, *ONE) == {"side": 50.0, "overall": 50.0}
    assert percents(*BOTH, *ONE, *NUMBERS) == pytest.approx({"side": 50.0, "count": 60.0, "overall": 55.0})
    assert percents(*FAILED) == {"side": 0.0, "overall": 0.0}


def test_a_question_without_a_scored_twin_does_not_count():
    awaiting = replace(BOTH[1], score=None)
    for rows in (BOTH[:1], (BOTH[0], awaiting), (BOTH[0], ONE[0]), (replace(BOTH[0], id="own"),)):
        assert in_pairs(rows, TWINS) == [] and percents(*rows) == {}
    assert in_pairs((BOTH[0], replace(BOTH[1], sample=2)), TWINS) == [], "of the same sample"
    assert percents(*BOTH, ONE[1]) == {"side": 100.0, "overall": 100.0}


def test_a_pair_is_below_full_score_once_with_its_worse_answer():
    rows = (*NUMBERS, *BOTH, *ONE, *FAILED)
    below, in_words = below_full(rows, TWINS)
    assert [[row.id for row in answers] for answers in below] == [["2b", "2a"], ["3b", "3a"]]
    assert in_words == "Wrong: 1 of 4, partly right: 1", "of the failed pair one answer is left"
    assert len(below_full((FAILED[1], FAILED[0], *ONE), TWINS)[0]) == 1, "a failed answer is none"
    below, in_words = below_full(rows, ALONE)
    assert [[row.id for row in answers] for answers in below] == [["2b"], ["3b"]]
    assert in_words == "Wrong: 1 of 7, partly right: 1"


def test_a_summary_without_a_pair_says_what_is_missing():
    assert "no scored questions with their twin" in format_summary(summarize([BOTH[0]], TWINS, pending=0), TWINS)


def test_a_summary_counts_pairs_and_all_questions():
    found = summarize([*BOTH, *ONE, *FAILED, NUMBERS[0]], TWINS, pending=1)
    assert (found.asked.questions, found.asked.scored, found.asked.counted, found.asked.failed) == (7, 6, 6, 1)
    assert found.asked.overall == found.types["side"].percent == pytest.approx(100 / 3)
    assert found.asked.single == pytest.approx(100 * 4 / 6)
    assert (found.types["count"].questions, found.types["count"].percent, found.types["side"].scored) == (1, None, 6)
    assert found.finished is not None and (found.finished.counted, found.finished.overall) == (4, 50.0)
    assert str(found.asked.label) == "unfinished_partial_twins_overall_1_task_without_count"
    lines = format_summary(found, TWINS)
    assert any(line.endswith("1 of 6 failed and score 0, 50.0 % over the 4 that finished") for line in lines)
    assert lines[-2:] == [
        "single answers: 66.7 %, pairs: 33.3 %",
        "sensitivity: of 2 pairs, the answer changes in 1 (50.0 %), in the right direction in 1 (50.0 %)",
    ]
    assert Scores.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(BOTH, Sensitivity(pairs=1, changed=1, right_way=1), id="both letters right"),
        pytest.param(ONE, Sensitivity(pairs=1, changed=0, right_way=0), id="the same letter twice"),
        pytest.param(
            (answered("5a", "B", "A"), answered("5b", "A", "B")), Sensitivity(pairs=1, changed=1, right_way=0),
            id="both letters wrong",
        ),
        pytest.param(NUMBERS, Sensitivity(pairs=1, changed=0, right_way=0), id="the same number twice"),
        pytest.param(
            (answered("6a", "7", "3"), answered("6b", "9", "4")), Sensitivity(pairs=1, changed=1, right_way=1),
            id="numbers that rise as the truths do",
        ),
        pytest.param(
            (answered("6a", "10", "3"), answered("6b", "9", "4")), Sensitivity(pairs=1, changed=1, right_way=0),
            id="numbers, which are not compared as text",
        ),
        pytest.param(
            (answered("6a", "3.0", "3"), answered("6b", "3", "4")), Sensitivity(pairs=1, changed=0, right_way=0),
            id="equal numbers in two spellings",
        ),
        pytest.param(FAILED, None, id="an answer is missing"),
        pytest.param((answered("7a", "3", "4"), answered("7b", "5", "4")), None, id="equal truths"),
        pytest.param(BOTH[:1], None, id="a twin is missing"),
        pytest.param((*BOTH, *ONE, *NUMBERS, *FAILED), Sensitivity(pairs=3, changed=1, right_way=1), id="all"),
    ],
)  # fmt: skip
def test_how_answers_follow_what_differs(rows: tuple[ResultRow, ...], expected: Sensitivity | None):
    assert sensitivity(rows, TWINS) == expected
    assert sensitivity(rows, ALONE) is None


def test_options_in_another_order_are_compared_by_their_text():
    more = {"options": ("A. left", "B. right")}
    first = answered("1a", "A", "A", answer_text="left", ground_truth_text="left", **more)
    moved = answered("1b", "A", "A", answer_text="right", ground_truth_text="right", options=("A. right", "B. left"))
    assert sensitivity((first, moved), TWINS) == Sensitivity(pairs=1, changed=1, right_way=1)


def test_each_sample_of_a_pair_has_a_score_and_the_majority_must_be_right_in_both_rooms():
    letters = {"1a": "AAB", "1b": "BAB", "2a": "AAA", "2b": "AAA"}  # pairs right: yes no no, and never
    rows = [
        answered(id, letter, "A" if id.endswith("a") else "B", sample=sample)
        for id, said in letters.items()
        for sample, letter in enumerate(said, start=1)
    ]
    found = summarize_samples(rows, dict.fromkeys(letters, LETTER_KIND), TWINS, 3)
    assert found.questions == 4
    assert found.overall == pytest.approx({"mean": 100 / 6, "pass@2": 100 / 3, "pass@3": 50.0, "majority": 50.0})
    assert found.overall is not None and summarize(rows, TWINS).asked.overall == pytest.approx(found.overall["mean"])
    unfinished = summarize_samples(rows[1:], dict.fromkeys(letters, LETTER_KIND), TWINS, 3)
    assert (unfinished.questions, unfinished.types["side"]["mean"]) == (2, 0.0)


def many_pairs(right: Mapping[int, str]) -> list[ResultRow]:
    """Pairs 10, 11, ... of which the first or both (a, ab) are right, or none."""
    truths = {"a": "A", "b": "B"}
    return [
        answered(f"{number}{end}", truth if end in ends else "C", truth)
        for number, ends in right.items()
        for end, truth in truths.items()
    ]


FIRST = many_pairs({number: "ab" if number % 2 else "a" for number in range(10, 34)})
SECOND = many_pairs({number: "ab" if number % 2 or number < 26 else "a" for number in range(10, 34)})


def test_intervals_are_over_rooms_which_both_twins_share():
    (task, overall) = estimates(FIRST, TWINS)
    assert (task.name, task.scenes, task.percent, overall.percent) == ("side", 24, 50.0, 50.0)
    once = [replace(row, id=f"{row.id} alone") for row in in_pairs(FIRST, TWINS) if row.id.endswith("a")]
    assert task.interval == estimates(once, ALONE)[0].interval


def test_datasets_score_pairs_and_people_their_answers():
    rows = [*FIRST, *(replace(row, dataset="other") for row in SECOND[:3])]
    found = scores_by_dataset(rows, TWINS)
    assert [(each.questions, each.scored, each.overall) for each in found.values()] == [(48, 48, 50.0), (3, 2, 100.0)]
    dealt = [("anna" if row.id.endswith("a") else "bert", row) for row in FIRST]
    people = by_annotator(dealt, TWINS)
    assert {name: (each.percent, each.by_type) for name, each in people.items()} == {
        "anna": (100.0, {"side": (24, 100.0)}),
        "bert": (50.0, {"side": (24, 50.0)}),
    }, "single answers, since the two of a pair are of different people"


def of_run(rows: list[ResultRow], name: str) -> Answers:
    return Answers(name, name, Path(name), TWINS, tuple(rows), 0, {}, {}, "", Summary(pending=0))


def test_runs_are_compared_by_pairs_and_flips_by_answers():
    (pair,) = compare([of_run(FIRST, "first"), of_run(SECOND, "second")], ("protocol",)).pairs
    assert pair.overall is not None and (pair.questions, pair.overall.scenes) == (48, 24)
    assert (pair.overall.first, pair.overall.second) == pytest.approx((50.0, 100 * 20 / 24))
    assert len(pair.gained) == 8 and {flip.key.id[-1] for flip in pair.gained} == {"b"}
    failed = [replace(SECOND[0], status="failed", score=0.0), *SECOND[1:]]
    (pair,) = compare([of_run(FIRST, "first"), of_run(failed, "second")], ("protocol",)).pairs
    assert (pair.questions, pair.scenes, pair.failed) == (46, 23, (0, 1)), "its twin is left out, too"
    assert pair.as_wrong == pytest.approx((50.0, 100 * 19 / 24))
    with pytest.raises(RunError, match="no scored question in common"):
        compare([of_run(FIRST[:1], "first"), of_run(FIRST[:1], "second")], ("protocol",))


def test_questions_that_all_runs_have_without_their_twin_are_not_left_out():
    compared = compare([of_run(FIRST[:5], "first"), of_run(FIRST[:5], "second")], ("protocol",))
    assert (compared.pairs[0].questions, compared.left_out) == (4, 0)
    compared = compare([of_run(FIRST[:5], "first"), of_run(FIRST[:4], "second")], ("protocol", "questions"))
    assert (compared.pairs[0].questions, compared.left_out) == (4, 1)
    second_samples = [replace(row, sample=2) if row.id.endswith("b") else row for row in FIRST[:4]]
    with pytest.raises(RunError, match="no scored question in common"):
        compare([of_run(FIRST[:4], "first"), of_run(second_samples, "second")], ("protocol", "questions"))


def test_a_constant_answer_gets_no_pair_of_letters_right():
    rows = [*many_pairs({10: "", 11: "", 12: ""}), *NUMBERS, answered("8a", "3", "3"), answered("8b", "3", "4")]
    questions = [
        Question(row.id, row.dataset, row.scene_name, row.question_type, "?", (), row.ground_truth, kind)
        for row in rows
        for kind in [TWINS.by_name[row.question_type].kind]
    ]
    guesses = frequent_guesses(questions, Selection.all_of(questions), TWINS)
    found = frequency_baseline(guesses, questions, TWINS)
    assert found is not None and (found.questions, found.tasks) == (10, {"side": 0.0, "count": 60.0})
    alone = frequency_baseline(guesses, questions, ALONE)
    assert alone is not None and alone.tasks == {"side": 50.0, "count": 80.0}
    assert frequency_baseline(guesses, questions[:1], TWINS) is None


def test_progress_counts_complete_pairs(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    caplog.set_level("INFO", "roomscout")
    times = count(0, 60)
    monkeypatch.setattr(Progress, "clock", staticmethod(lambda: next(times)))
    with Progress(8, (*BOTH, ONE[0]), benchmark=TWINS) as progress:
        progress.tell()
        progress.finished(ONE[1])
        progress.tell()
    lines = [line for line in caplog.messages if "questions" in line]
    assert [line.split(", ")[1] for line in lines] == ["overall 100.0 %", "overall 50.0 %"]


def test_scores_without_pairs_are_those_of_each_answer():
    rows = [*BOTH, *ONE, *NUMBERS, *FAILED, result_row("side", None)]
    assert in_pairs(rows, ALONE) == rows and scores_in_pairs({"x": 0.5}, ALONE) == {"x": 0.5}
    found = summarize(rows, ALONE)
    assert (found.asked.scored, found.asked.overall) == (8, pytest.approx((100 * 4 / 6 + 80) / 2))
    assert found.sensitivity is None and found.asked.single is None
    assert "sensitivity" not in found.to_json() and "single" not in found.to_json()["asked"]
    assert not any("single answers" in line for line in format_summary(found, ALONE))


@pytest.mark.parametrize(
    ("pattern", "why"), [("(", "is not a regular expression"), ("[0-9]+[ab]", "has no group that names the pair")]
)
def test_a_pattern_must_name_the_pair(pattern: str, why: str):
    with pytest.raises(ValueError, match=f"^pairs: .* {why}"):
        replace(TWINS, pairs=pattern)
    assert [TWINS.pair_of(id) for id in ("12a", "12b", "12c", "a12a")] == ["12", "12", None, None]
    assert ALONE.pair_of("12a") is None
