"""What a command prints: lines of progress where there is no bar, all of run.log, or results alone."""

import logging
import re
import sys
from pathlib import Path

import pytest
from planned import run_settings
from scripted_model import ScriptedBackend, random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.progress import LINE_EVERY_S, LINE_REST_S, Progress
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.runs.reader import RunReader
from roomscout.runs.records import ResultRow
from tests.conftest import RoomScans, on_a_terminal, only_run, run_command, run_main

LINE = re.compile(r"(\d+) of (\d+) questions, overall (\d+\.\d) %(, \d+ failed)?, ([\d.]+) an hour, [\d:]+ left")


def row(number: int, score: float, status: str = "answered") -> ResultRow:
    """A result of a question."""
    about = (str(number), "scannet", "s", "object_counting", "How many?", "2")
    part = "model" if status == "failed" else None
    return ResultRow(number, *about, "2", score, status, part, None, 1, 0, 1.0)


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def lines_of(caplog) -> list[str]:
    """The lines of progress so far, which are then forgotten."""
    found = [each for each in caplog.messages if re.match(r"\d+ of \d+ questions", each)]
    caplog.clear()
    return found


def test_a_line_tells_of_a_share_of_the_questions_or_of_a_minute(clock: Clock, caplog):
    caplog.set_level("INFO", "roomscout")
    with Progress(100, (), benchmark=BENCHMARK, clock=clock) as progress:
        for number in range(1, 5):
            progress.finished(row(number, 1.0))
        progress.tell()
        assert lines_of(caplog) == []
        clock.now += 36
        progress.finished(row(5, 0.5))
        progress.tell()
        assert lines_of(caplog) == ["5 of 100 questions, overall 90.0 %, 500 an hour, 0:11:24 left"]
        clock.now += LINE_REST_S - 1
        for number in range(6, 20):
            progress.finished(row(number, 0.0))
        progress.tell()
        assert lines_of(caplog) == [], "not more often than every few seconds"
        clock.now += LINE_EVERY_S - LINE_REST_S + 1
        progress.finished(row(20, 0.0, "failed"))
        progress.tell()
        assert lines_of(caplog) == ["20 of 100 questions, overall 22.5 %, 1 failed, 750 an hour, 0:06:24 left"]
        clock.now += LINE_EVERY_S
        progress.tell()
        assert len(lines_of(caplog)) == 1, "a minute without an answer has its line"


def test_the_rate_is_that_of_this_start(clock: Clock, caplog):
    caplog.set_level("INFO", "roomscout")
    with Progress(5130, [row(number, 0.5) for number in range(1, 101)], benchmark=BENCHMARK, clock=clock) as progress:
        clock.now += LINE_EVERY_S
        progress.tell()
        assert lines_of(caplog) == ["100 of 5130 questions, overall 50.0 %"]
        clock.now += LINE_EVERY_S
        for number in range(101, 121):
            progress.finished(row(number, 0.0))
        progress.tell()
    assert lines_of(caplog) == ["120 of 5130 questions, overall 41.7 %, 600 an hour, 8:21:00 left"]


def test_lines_beside_a_bar_and_unshown_ones_are_details(clock: Clock, caplog):
    caplog.set_level("DEBUG", "roomscout")
    with Progress(2, (), shown=False, benchmark=BENCHMARK, clock=clock) as progress:
        progress.finished(row(1, 1.0))
        progress.tell()
    assert [record.levelno for record in caplog.records] == [logging.DEBUG]


def test_a_file_has_lines_of_progress_and_a_terminal_a_bar(rooms: RoomScans, tmp_path: Path):
    lines = run_main(rooms.flags(tmp_path / "file", "--steps", "1", "--batch-size", "3")).stdout.splitlines()
    told = [found for line in lines if (found := LINE.fullmatch(line))]
    assert told and {int(each[2]) for each in told} == {len(rooms.rows)}
    assert lines.index("Running batch generation for 3 questions...") < lines.index("BATCHED TURN 1/1, cohort 1 of 3")
    assert "BATCHED TURN 0/1, cohort 3 of 3" in lines
    shown = on_a_terminal(rooms.command(tmp_path / "terminal", "--steps", "1"))
    assert not any(map(LINE.fullmatch, shown.splitlines()))
    reader = RunReader(only_run(tmp_path / "terminal"))
    assert any(map(LINE.search, (reader.folder / "run.log").read_text().splitlines()))
    asked = reader.summary.to_json()["asked"]
    assert re.findall(r"overall (\d+\.\d) %", shown)[-1] == f"{asked[asked['overall_label']]:.1f}", "as in the table"


def test_a_bar_is_only_for_terminals_that_can_draw_it_again():
    asked = [sys.executable, "-c", "from roomscout.agent.console import console; print(console.can_redraw)"]
    terminals = [on_a_terminal(["env", term, *asked]) for term in ("TERM=xterm", "TERM=dumb")]
    assert [shown.split()[-1] for shown in terminals] == ["True", "False"]
    assert run_command(["env", "FORCE_COLOR=1", *asked]).stdout == "False\n"


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
    for level in ("debug", "info"):
        shown = run_main([*asked, "--log-level", level, "--log-root", str(tmp_path / level), "--no-report"]).stdout
        assert len(re.findall(r"\[Q001\] turn 0: ", shown)) == 1
    quiet = run_main([*asked, "--log-level", "result", "--log-root", str(tmp_path / "quiet"), "--no-report"])
    answer, folder = quiet.stdout.splitlines()
    assert re.match(r"\[Q001\] (Final|No) answer", answer) and folder == f"Run folder: {only_run(tmp_path / 'quiet')}"


def test_debug_prints_what_run_log_has_and_a_resumed_run_prints_as_it_is_told_now(rooms: RoomScans, tmp_path: Path):
    every = run_main(rooms.flags(tmp_path, "--log-level", "debug", "--num-questions", "2", "--steps", "1"))
    folder = only_run(tmp_path)
    lines = (folder / "run.log").read_text().splitlines()
    assert every.stdout.splitlines() == lines and any("[Q001] asked in" in line for line in lines)
    (folder / "results.jsonl").unlink()
    ended = run_main(["resume", str(folder), "--log-level", "result", "--no-report"])
    assert (ended.returncode, ended.stderr) == (0, "") and ended.stdout.startswith("type")
    (folder / "results.jsonl").unlink()
    again = run_main(["resume", str(folder), "--no-report"]).stdout
    assert "[Q001] Final answer" in again and "asked in" not in again, "neither all nor results alone"


def test_an_interrupted_quiet_run_says_how_to_resume(rooms: RoomScans, tmp_path: Path):
    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    config = rooms.config(tmp_path, log_level="result", num_questions=2)
    seen: list[tuple[int, str]] = []
    handler = logging.Handler(logging.INFO + 1)
    handler.emit = lambda record: seen.append((record.levelno, record.getMessage()))  # type: ignore[method-assign]
    logging.getLogger("roomscout").addHandler(handler)
    assert run_settings(config, policy=ModelPolicy(ScriptedBackend(interrupt))).status == 130
    assert [text for _, text in seen][-2] == "Interrupted; finished turns are on disk. To resume:"
    assert run_settings(config, only_run(tmp_path), ModelPolicy(ScriptedBackend(random_policy()))).status == 0
