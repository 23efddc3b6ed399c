"""The simulation of many workers, on few questions; nothing here depends on timing."""

from benchmarks import scale
from tests.conftest import vsi_question

ENGINE = scale.Engine(batch_size=8, turns=5)
LIKE = vsi_question("0", "scannet", "s", "object_counting", "How many?")


def test_questions_are_on_scenes_of_unequal_size():
    questions = scale.questions_on_scenes(5130, 288, LIKE)
    sizes = [sum(each.scene == scene for each in questions) for scene in {each.scene for each in questions}]
    assert len({question.id for question in questions}) == 5130
    assert (len(sizes), min(sizes), max(sizes)) == (288, 2, 71)


def test_a_simulated_run_is_the_same_each_time_and_never_faster_than_the_best_worker():
    questions = scale.questions_on_scenes(160, 16, LIKE)
    rows = scale.simulate(questions, (1, 2, 8), ENGINE)
    assert rows == scale.simulate(questions, (1, 2, 8), ENGINE)
    assert [row["workers"] for row in rows] == [1, 2, 8]
    for row in rows:
        assert 0 < row["efficiency_with_startup"] < row["efficiency"] < 1 < row["unlike"] and row["failure"] > 1
    alone = scale.Engine(batch_size=1, turns=5)
    calls = list(scale.calls_of(scale.scheduler_of(alone, questions[:3]), alone))
    assert len(calls) == sum(map(alone.turns_of, questions[:3])) and scale.best_alone(questions[:3], ENGINE)[0] <= sum(
        calls
    )


def test_a_slower_worker_takes_fewer_questions():
    questions, ready = scale.questions_on_scenes(160, 16, LIKE), [0.0, 0.0]
    even = scale.ends_of(questions, ENGINE, ready, [1.0, 1.0])
    uneven = scale.ends_of(questions, ENGINE, ready, [0.5, 1.0])
    assert max(even) < max(uneven) < 1.15 * sum(even) / 1.5
