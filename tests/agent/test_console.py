"""What a command prints: lines of progress where there is no bar, all of run.log, or results alone."""

import re
from pathlib import Path

from roomscout.agent.progress import LINE_EVERY_S, Progress
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.runs.records import ResultRow
from tests.conftest import RoomScans, only_run, run_main


def row(number: int, score: float) -> ResultRow:
    """A result of a question."""
    about = (str(number), "scannet", "s", "object_counting", "How many?", "2")
    return ResultRow(number, *about, "2", score, "answered", None, None, 1, 0, 1.0)


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def lines_of(caplog) -> list[str]:
    """The lines of progress so far, which are then forgotten."""
    found = [each for each in caplog.messages if re.match(r"\d+ of \d+ questions", each)]
    caplog.clear()
    return found


def test_a_line_tells_of_a_share_of_the_questions_or_of_a_minute(caplog, monkeypatch):
    caplog.set_level("INFO", "roomscout")
    clock = Clock()
    monkeypatch.setattr(Progress, "clock", staticmethod(clock))
    with Progress(100, (), benchmark=BENCHMARK) as progress:
        for number in range(1, 5):
            progress.finished(row(number, 1.0))
        progress.tell()
        assert lines_of(caplog) == []
        clock.now += 36
        progress.finished(row(5, 0.5))
        progress.tell()
        assert lines_of(caplog) == ["5 of 100 questions, overall 90.0 %, 500 an hour, 0:11:24 left"]
        clock.now += LINE_EVERY_S
        progress.tell()
        assert len(lines_of(caplog)) == 1, "a minute without an answer has its line"


def test_quiet_prints_results_and_warnings_alone(rooms: RoomScans, tmp_path: Path):
    shown = run_main(
        rooms.flags(tmp_path, "--log-level", "result", "--num-questions", "4", "--steps", "1")
    ).stdout.splitlines()
    assert shown[0].startswith("type") and shown[-1] == f"Run folder: {only_run(tmp_path)}"
    assert not [line for line in shown if re.search(r"Q00|BATCHED|of 4 questions|all with a scan", line)]
    log = (only_run(tmp_path) / "run.log").read_text()
    assert "[Q001] Final answer" in log and "BATCHED TURN" in log, "the file has all"


def test_one_question_prints_each_turn_once_or_the_answer_alone(rooms: RoomScans, tmp_path: Path):
    ply = next(rooms.root.glob("scannet/scans/*/*.ply"))
    asked = ["ask", str(ply), "How many chairs are in this room?", "--policy", "random", "--renderer", "raycast"]
    few = ["--steps", "1", "--image-size", "32", "24", "--no-report"]
    shown = run_main([*asked, *few, "--log-level", "debug", "--log-root", str(tmp_path / "debug")]).stdout
    assert len(re.findall(r"\[Q001\] turn 0: ", shown)) == 1
    quiet = run_main([*asked, *few, "--log-level", "result", "--log-root", str(tmp_path / "quiet")])
    answer, folder = quiet.stdout.splitlines()
    assert re.match(r"\[Q001\] (Final|No) answer", answer) and folder == f"Run folder: {only_run(tmp_path / 'quiet')}"
