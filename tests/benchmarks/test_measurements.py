"""The measurements run, and compare what they claim; nothing here depends on timing."""

import json

import pytest

from benchmarks import renderers, turns


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a measurement with arguments; returns its output."""

    def run(measurement, arguments):
        monkeypatch.setattr("sys.argv", ["measurement", *arguments.split()])
        measurement.main()
        return capsys.readouterr().out

    return run


@pytest.mark.usefixtures("one_thread")
def test_all_schedules_give_the_same_replies(command, tmp_path):
    out = tmp_path / "turns.json"
    printed = command(turns, f"--shape tiny --questions 2 --turns 4 --tokens 4 --device cpu --json {out}")
    schedules = json.loads(out.read_text())["schedules"]
    assert len(schedules) == 4 and all(name in printed for name in schedules)
    assert {schedule["equal"] for schedule in schedules.values()} == {1.0}
    one_by_one, last = schedules["one at a time, re-encoding"], schedules["all turns batched, KV reuse"]
    assert last["images_encoded"] == 2 * 4 and one_by_one["images_encoded"] == 2 * (1 + 2 + 3 + 4)
    assert last["tokens_computed"] + last["tokens_reused"] == one_by_one["tokens_computed"]


@pytest.mark.slow
def test_renderers_are_measured(command, tmp_path):
    out = tmp_path / "renderers.json"
    command(renderers, f"--faces 1000 --views 2 --size 64 48 --json {out}")
    rows = json.loads(out.read_text())["rows"]
    assert "raycast" in {row["renderer"] for row in rows} and all(row["view_ms"] > 0 for row in rows)
