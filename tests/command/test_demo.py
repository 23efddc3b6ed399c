"""The demo: what it compares and what it says at its end, for a random policy and few questions."""

from pathlib import Path

import pytest

from roomscout.command.demo import demo_settings, run_demo
from roomscout.edge.flags import Given
from roomscout.runs.reader import RunReader, run_folders


def test_the_demo_compares_with_other_rooms_and_says_what_to_try(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO", "roomscout")
    few = {"policy": "random", "steps": 1, "image_size": (64, 48), "num_questions": 2}
    assert run_demo(demo_settings(Given({"log_root": tmp_path, "renderer": "raycast", **few}, {}, {})))[-1].status == 0
    (overall,) = (line for line in caplog.messages if line.startswith("Overall: "))
    summary = RunReader(run_folders(tmp_path)[-1]).summary.to_json()
    assert summary is not None
    frequent = summary["baselines"]["most_frequent"]["overall"]
    assert overall.endswith(f" % blind, {frequent:.1f} % always giving the most frequent answer in other rooms")
