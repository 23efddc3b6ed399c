"""Rescoring a run: nothing changes with the parser that answered it, and what changes is named."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RoomScans, run_in_process, scripted

from roomscout.agent.policies.replies import LOOK_AROUND, ParsedAction, parse_action
from roomscout.analysis.rescore import main
from roomscout.data.questions import Question
from roomscout.envs.actions import CameraAction
from roomscout.runs.reader import RunReader


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a scripted model that often replies badly."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("run"), steps=4), scripted(3))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_parser_that_answered_a_run_gives_its_rows_again(run: Path, tmp_path: Path, caplog):
    caplog.set_level("INFO")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main([str(run), "--out", str(tmp_path / "new.csv")], parse_action) == 0
    assert "0 of 8 answers change" in caplog.text
    assert table(tmp_path / "new.csv") == table(run / "results.csv")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def with_last_reply(run: Path, copy: Path, reply: Callable[[Question], str]) -> tuple[Path, int]:
    """A copy of a run in which the first answered question ended with another reply; and that question's number."""
    shutil.copytree(run, copy)
    reader = RunReader(copy)
    row = next(row for row in reader.rows if row.status == "answered")
    path = copy / str(row.episode) / "turns.jsonl"
    turns = [json.loads(line) for line in path.read_text().splitlines()]
    turns[-1]["reply"]["text"] = reply(reader.questions[row.number - 1])
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return copy, row.number


def test_an_answer_that_is_read_differently_is_named_and_scored(run: Path, tmp_path: Path, caplog):
    caplog.set_level("INFO")
    copy, number = with_last_reply(
        run, tmp_path / "run", lambda question: json.dumps({"answer": question.ground_truth, "done": True})
    )
    assert main([str(copy), "--out", str(tmp_path / "new.csv")], parse_action) == 0
    row = RunReader(copy).rows[number - 1]
    assert f"q{number:03d}, {row.question_type}: answer {row.answer} -> {row.ground_truth}" in caplog.text
    assert table(tmp_path / "new.csv")[number - 1]["score"] == "1.0"
    assert "1 of 8 answers change" in caplog.text


def test_a_question_that_would_go_on_has_no_answer(run: Path, tmp_path: Path, caplog):
    caplog.set_level("INFO")
    folder = shutil.copytree(run, tmp_path / "run")
    assert main([str(folder)], lambda text, question, last: ParsedAction(CameraAction())) == 0
    assert "today's parser would go on after turn" in caplog.text
    assert all(line.split()[-1] == "0.0" for line in caplog.messages if line.startswith("object_"))


def test_a_parser_that_ends_earlier_is_noted(run: Path, caplog):
    caplog.set_level("INFO")

    def at_once(text: str, question: Question, last: bool) -> ParsedAction:
        return ParsedAction(CameraAction(answer=question.ground_truth, done=True))

    assert main([str(run)], at_once) == 0
    assert "today's parser ends at turn 0" in caplog.text
    assert all(line.split()[-1] == "100.0" for line in caplog.messages if line.startswith("object_"))


def test_an_action_that_differs_is_noted(run: Path, caplog):
    caplog.set_level("INFO")

    def refusing(text: str, question: Question, last: bool) -> ParsedAction:
        parsed = parse_action(text, question, last)
        return parsed if last or parsed.action.done else ParsedAction(LOOK_AROUND, error="refused")

    assert main([str(run)], refusing) == 0
    assert "0 of 8 answers change" in caplog.text
    assert "would act differently, so later views would be others" in caplog.text


def test_a_policy_without_a_model_keeps_its_answers(rooms: RoomScans, tmp_path: Path, caplog):
    folder = run_in_process(rooms.config(tmp_path, model=None, policy="random", num_questions=2))
    caplog.set_level("INFO")
    assert main([str(folder)], parse_action) == 0
    assert "2 of 2 answers have no replies: their recorded actions are kept" in caplog.text
    assert "0 of 2 answers change" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["{tmp}"], "is not a run folder: it has no run.json"),
        (["{run}", "--out", "{run}/new.csv"], "is in the run folder"),
        (["{run}", "--out", "{tmp}/absent/new.csv"], "cannot be written"),
        (["{damaged}"], "results.jsonl, line 1 is damaged"),
    ],
    ids=["no run", "in the run", "no folder", "a damaged line"],
)
def test_bad_input_is_refused_in_one_sentence(arguments: list[str], says: str, run: Path, tmp_path: Path, capsys):
    damaged = shutil.copytree(run, tmp_path / "damaged")
    (damaged / "results.jsonl").write_text("{}\n")
    assert main([each.format(run=run, tmp=tmp_path, damaged=damaged) for each in arguments], parse_action) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line
