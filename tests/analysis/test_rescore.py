"""roomscout rescore: nothing changes with the parser that answered a run, and what changes is named."""

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import RoomScans, run_in_process, scripted

from roomscout.command.main import main
from roomscout.data.questions import Question
from roomscout.runs.reader import RunReader


@pytest.fixture(scope="module")
def run(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a scripted model that often replies badly. Nobody may change it."""
    return run_in_process(rooms.config(tmp_path_factory.mktemp("run"), steps=4), scripted(3))


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_parser_that_answered_a_run_gives_its_rows_again(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    assert main(["rescore", str(run), "--out", str(tmp_path / "new.csv")]) == 0
    assert caplog.messages[0] == "0 of 8 answers change: 0 score more, 0 less"
    columns = table(run / "results.csv")[0].keys()
    assert [{name: row[name] for name in columns} for row in table(tmp_path / "new.csv")] == table(run / "results.csv")
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def with_last_reply(run: Path, copy: Path, reply: Callable[[Question], str]) -> tuple[Path, int]:
    """A copy of a run in which the first wrong answer ended with another reply; and that question's number."""
    shutil.copytree(run, copy)
    reader = RunReader(copy)
    row = next(row for row in reader.rows if row.status == "answered" and row.score is not None and row.score < 1)
    path = copy / str(row.episode) / "turns.jsonl"
    turns = [json.loads(line) for line in path.read_text().splitlines()]
    turns[-1]["reply"]["text"] = reply(reader.questions[row.number - 1])
    path.write_text("".join(json.dumps(turn) + "\n" for turn in turns))
    return copy, row.number


def test_an_answer_that_is_parsed_differently_is_named_and_scored(
    run: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("INFO")
    copy, number = with_last_reply(
        run, tmp_path / "run", lambda question: json.dumps({"answer": question.ground_truth, "done": True})
    )
    assert main(["rescore", str(copy), "--out", str(tmp_path / "new.csv")]) == 0
    row, new = RunReader(copy).rows[number - 1], table(tmp_path / "new.csv")[number - 1]
    assert caplog.messages[0] == "1 of 8 answers change: 1 score more, 0 less"
    assert f"  q{number:03d}, {row.question_type}: answer {row.answer} -> {row.ground_truth}" in caplog.text
    assert (new["recorded_score"], new["score"]) == (str(row.score), "1.0")


def test_a_policy_without_a_model_keeps_its_answers(rooms: RoomScans, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    folder = run_in_process(rooms.config(tmp_path, policy="random", num_questions=2))
    caplog.set_level("INFO")
    caplog.clear()
    assert main(["rescore", str(folder)]) == 0
    assert caplog.messages[0] == "0 of 2 answers change: 0 score more, 0 less"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("{tmp}", "is not a run folder: it has no run.json"),
        ("{run} --out {run}/new.csv", "is in the run folder, which stays as it is"),
        ("{run} --out {tmp}/absent/new.csv", "cannot be written (No such file or directory)"),
        ("{run} --out {run}/../mine.csv", "exists: choose another --out, or replace it with --force"),
        ("{empty}", "has no finished question to rescore: resume it"),
    ],
    ids=["no run", "in the run", "no folder", "exists", "nothing finished"],
)
def test_bad_input_is_refused_in_one_sentence(
    arguments: str, says: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    empty = shutil.copytree(run, tmp_path / "empty")
    (empty / "results.jsonl").unlink()
    (run.parent / "mine.csv").write_text("mine")
    assert main(["rescore", *arguments.format(run=run, tmp=tmp_path, empty=empty).split()]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert says in line


@pytest.mark.parametrize(
    "controls",
    [{"moves": "spin"}, {"moves": "spin", "present": "once"}, {"min_turns": 3}, {"translation": False}],
    ids=lambda controls: "_".join(controls),
)
def test_an_answer_that_a_control_did_not_count_is_not_counted_again(
    rooms: RoomScans, tmp_path: Path, caplog: pytest.LogCaptureFixture, controls: dict[str, object]
):
    folder = run_in_process(rooms.config(tmp_path, steps=4, **controls))
    caplog.set_level("INFO")
    caplog.clear()
    assert main(["rescore", str(folder)]) == 0
    assert caplog.messages[0] == "0 of 8 answers change: 0 score more, 0 less"
    assert "new run" not in caplog.text
