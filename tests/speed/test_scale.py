"""The simulation of many workers and the soak, on few questions; nothing here depends on timing."""

import json
from dataclasses import replace

import pytest

from roomscout.agent.timing import PACES, ConversationSize
from roomscout.models.roofline import Rates, Work
from roomscout.speed import scale, soak
from tests.conftest import vsi_question

ENGINE = scale.Engine(
    Work(7_568_405_504, 453_361_456, 2, 147_456, 36, 27),
    Rates(3e12, 790e12),
    PACES["cuda", False],
    ConversationSize(500, 160, image_tokens=300, reply_tokens=512, turns=5),
    batch_size=8,
)
LIKE = vsi_question("0", "scannet", "s", "object_counting", "How many?")


def test_questions_are_on_scenes_of_unequal_size():
    questions = scale.questions_on_scenes(5130, 288, LIKE)
    sizes = [sum(each.scene == scene for each in questions) for scene in {each.scene for each in questions}]
    assert len({question.id for question in questions}) == 5130
    assert (len(sizes), min(sizes), max(sizes)) == (288, 2, 71)


def test_a_simulated_run_is_the_same_each_time_and_never_faster_than_its_calls():
    questions = scale.questions_on_scenes(160, 16, LIKE)
    rows = scale.simulate(questions, (1, 2, 8), ENGINE)
    assert all(sum(number for number, _ in scale.parts_of(questions, workers, ENGINE)) == 160 for workers in (1, 2, 8))
    assert rows == scale.simulate(questions, (1, 2, 8), ENGINE)
    assert [row["workers"] for row in rows] == [1, 2, 8] and rows[0]["efficiency"] == 1
    for row in rows:
        assert 0 < row["efficiency_with_startup"] < row["efficiency"] + 1e-9 < 1.1
        assert row["seconds"] > scale.part_seconds(questions[:1], ENGINE)


def test_a_part_lasts_as_long_as_the_longest_reply_of_each_batch():
    (question,) = scale.questions_on_scenes(1, 1, LIKE)
    alone = scale.part_seconds([question], ENGINE)
    twice = scale.part_seconds([question, replace(question)], ENGINE)
    assert alone < twice < 1.1 * alone


def test_workers_take_the_next_part_when_they_are_free_and_parts_are_merged_one_after_another():
    merged = scale.MERGE_S * 10
    assert scale.ended([(10, 5.0), (10, 3.0), (10, 1.0)], [0.0, 1.0]) == (
        pytest.approx(5 + 2 * merged + scale.EXPORT_S * 30),
        [5.0, 5.0],
    )


def test_figures_and_a_plot_are_written(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(scale, "on_h100", lambda questions: ENGINE)
    out, picture = tmp_path / "scale.json", tmp_path / "scale.png"
    arguments = f"--questions 60 --scenes 6 --workers 1 2 --json {out} --plot {picture}"
    monkeypatch.setattr("sys.argv", ["scale", *arguments.split()])
    scale.main()
    found = json.loads(out.read_text())
    assert found["simulated"] is True and [row["workers"] for row in found["workers"]] == [1, 2]
    assert all({"efficiency", "efficiency_with_startup"} <= row.keys() for row in found["workers"])
    assert capsys.readouterr().out.startswith("SIMULATED: 60 questions on 6 scenes")
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ("--questions 3", "--questions takes a number that is not below --scenes"),
        ("--workers 0", "--workers numbers from"),
    ],
)
def test_sizes_that_cannot_be_are_refused(monkeypatch, capsys, arguments, error):
    monkeypatch.setattr("sys.argv", ["scale", *arguments.split()])
    with pytest.raises(SystemExit):
        scale.main()
    assert error in capsys.readouterr().err


def test_a_long_run_is_measured_resumed_and_merged(tmp_path):
    samples = soak.soak(tmp_path, 120)
    assert [row["questions"] for row in samples.rows] == list(range(12, 121, 12))
    assert list(samples.steps) == ["resume", "export", "report", "merge"]
    files = [row["open_files"] for row in samples.rows]
    assert max(files) <= files[0] + 10  # some are being written; one for each question would be 108 more
