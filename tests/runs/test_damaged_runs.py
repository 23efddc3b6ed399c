"""Tests that a damaged file of a run is named in one sentence, by the reader and by the verbs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import RoomScans, run_in_process, run_main, scripted

from roomscout.runs import RunError
from roomscout.runs.reader import RunReader


@pytest.fixture(scope="module")
def small_run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three questions with everything that a run folder may have."""
    config = rooms.config(tmp_path_factory.mktemp("damaged"), num_questions=3, steps=2, anytime=True)
    run = run_in_process(config, scripted())
    assert run_main(["failures", str(run)]).returncode == 0
    mark = {"id": "x", "answer": "y", "mark": 3, "judge": "j", "prompts_sha256": "0"}
    (run / "marks.jsonl").write_text(json.dumps(mark) + "\n")
    return run


@pytest.fixture
def run(small_run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small_run, tmp_path / "run"))


def every_file(run: Path) -> None:
    reader = RunReader(run)
    _ = reader.facts, reader.summary, reader.guesses, reader.sights, reader.rows, reader.questions
    for episode in reader.begun:
        _ = reader.turns(episode), reader.messages(episode)


DAMAGE: tuple[tuple[str, Callable[[Any], object], str], ...] = (
    ("run.json", lambda run: run.update(resumed=[{"packages": 3}]), "run.json is damaged .*packages"),
    ("summary.json", lambda found: found.update(asked=[]), "summary.json is damaged .*asked"),
    ("baselines.json", lambda found: found["most_frequent"].update(answers=3), "baselines.json is damaged .*answers"),
    ("q001/messages.json", lambda talk: talk[1].update(image="../../../mine.png"), "messages.json is damaged .*image"),
    ("q001/turns.jsonl", lambda turn: turn.pop("pose"), "turns.jsonl, line 1 is damaged .*missing keys: pose"),
    ("q001/turns.jsonl", lambda turn: turn["pose"].update(x_m="left"), "turns.jsonl, line 1 is damaged .*pose.x_m"),
    ("q001/turns.jsonl", lambda turn: turn["action"].update(left_meters=9.0), "left_meters is 9.0: it must be from"),
    ("marks.jsonl", lambda mark: mark.update(mark="x"), "marks.jsonl, line 1 is damaged .*mark"),
    ("seen.jsonl", lambda seen: seen.update(surface=3), "seen.jsonl, line 1 is damaged .*surface"),
    ("questions.jsonl", lambda row: row.pop("question"), "questions.jsonl is damaged"),
    ("results.jsonl", lambda row: row.update(score=2), "results.jsonl, line 1 is damaged .*between 0 and 1"),
)


@pytest.mark.parametrize(("name", "change", "says"), DAMAGE)
def test_a_damaged_value_is_named_with_its_file(run: Path, name: str, change: Callable[[Any], object], says: str):
    path = run / name
    first, *others = path.read_text().splitlines() if name.endswith("l") else [path.read_text()]
    value = json.loads(first)
    change(value)
    path.write_text("\n".join([json.dumps(value), *others]) + "\n")
    with pytest.raises(RunError, match=says):
        every_file(run)


def test_a_run_of_another_version_is_refused(run: Path):
    facts = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(facts | {"schema": 1}))
    with pytest.raises(RunError, match=r"has schema 1, but this version writes 2"):
        _ = RunReader(run).facts


def test_a_verb_refuses_a_damaged_run_with_status_2(run: Path):
    (run / "run.json").write_text("{}")
    for verb in (["report", str(run)], ["wrong", str(run)], ["leaderboard", str(run)], ["replay", str(run), "1"]):
        ended = run_main(verb)
        assert ended.returncode == 2
        assert ended.stderr.count("\n") == 1
