"""The simulation of many workers, on few questions; nothing here depends on timing."""

import pytest

from benchmarks import scale
from tests.conftest import vsi_question

ENGINE = scale.Engine(batch_size=8, turns=5)
LIKE = vsi_question("0", "scannet", "s", "object_counting", "How many?")


def test_questions_are_on_scenes_of_unequal_size():
    questions = scale.questions_on_scenes(5130, 288, LIKE)
    sizes = [sum(each.scene == scene for each in questions) for scene in {each.scene for each in questions}]
    assert len({question.id for question in questions}) == 5130
    assert (len(sizes), min(sizes), max(sizes)) == (288, 2, 71)


def test_a_simulated_run_is_the_same_each_time_and_never_faster_than_its_calls():
    questions = scale.questions_on_scenes(160, 16, LIKE)
    rows = scale.simulate(questions, (1, 2, 8), ENGINE)
    assert rows == scale.simulate(questions, (1, 2, 8), ENGINE)
    assert [row["workers"] for row in rows] == [1, 2, 8] and rows[0]["efficiency"] == 1
    for row in rows:
        assert sum(number for number, _ in scale.parts_of(questions, row["workers"], ENGINE)) == 160
        assert 0 < row["efficiency_with_startup"] < row["efficiency"] + 1e-9 < 1.1
        assert row["seconds"] > scale.part_seconds(questions[:1], ENGINE)


def test_workers_take_the_next_part_when_they_are_free_and_parts_are_merged_one_after_another():
    last = pytest.approx(5 + 2 * scale.MERGE_S * 10 + scale.EXPORT_S * 30)
    assert scale.ended([(10, 5.0), (10, 3.0), (10, 1.0)], [0.0, 1.0]) == (last, [5.0, 5.0])
