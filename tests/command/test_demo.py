"""The demo: what it compares and what it says at its end, for a random policy and few questions."""

import logging
from pathlib import Path

import pytest

from roomscout.command.demo import demo_settings, run_demo
from roomscout.edge.flags import Given
from roomscout.runs.reader import RunReader, run_folders


class Lines(logging.Handler):
    """Keeps the lines that are logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@pytest.fixture(scope="module")
def demonstrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The log root of a demo, and the lines that it logged."""
    log_root, handler = tmp_path_factory.mktemp("demo"), Lines()
    few = {"policy": "random", "steps": 1, "image_size": (64, 48), "num_questions": 2}
    given = Given({"log_root": log_root, "renderer": "raycast", **few})
    logging.getLogger("roomscout").addHandler(handler)
    assert run_demo(demo_settings(given))[-1].status == 0
    logging.getLogger("roomscout").removeHandler(handler)
    return log_root, handler.lines


def test_the_demo_compares_with_other_rooms_also_for_few_questions(demonstrated: tuple[Path, list[str]]):
    log_root, lines = demonstrated
    (overall,) = (line for line in lines if line.startswith("Overall: "))
    summary = RunReader(run_folders(log_root)[-1]).summary.to_json()
    assert summary is not None
    frequent = summary["baselines"]["most_frequent"]["overall"]
    assert overall.endswith(f" % blind, {frequent:.1f} % always giving the most frequent answer in other rooms")
