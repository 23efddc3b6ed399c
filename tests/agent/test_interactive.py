"""One question after another about a scan on a terminal, and what it shows of the views."""

import os
import pty
import re
import subprocess
import sys
import termios
import threading
from pathlib import Path

import pytest
from conftest import COMMAND, RoomScans, run_main
from waiting import PATIENCE_S

from roomscout.command.words import in_verbs
from roomscout.runs.reader import RunReader, run_folders


@pytest.fixture(scope="module")
def one_scan(rooms: RoomScans) -> Path:
    """The scan file of a procedural room."""
    return next(rooms.root.glob("scannet/scans/*/*.ply"))


def test_a_view_that_does_not_fit_into_memory_fails_its_question(one_scan: Path, tmp_path: Path):
    failed = run_main(ask(one_scan, tmp_path, "--image-size", "1000000", "1000000"))
    assert "Failed (render): a view of 1000000 x 1000000 pixels does not fit into memory" in failed.stdout
    assert failed.returncode == 1


def test_ask_without_a_question_is_interactive():
    assert in_verbs(["--ply", "room.ply", "--steps", "2"]) == ["ask", "room.ply", "--steps", "2"]


@pytest.mark.parametrize("flags", ["--plan", "--name mine", "--policy human", "--ground-truth 2"])
def test_what_is_about_one_question_needs_it(flags: str, one_scan: Path, tmp_path: Path):
    ended = run_main(["--ply", str(one_scan), "--log-root", str(tmp_path), *flags.split()])
    assert ended.returncode == 2 and "needs --question" in ended.stderr


def test_questions_are_asked_one_after_another_on_a_terminal_that_shows_the_views(one_scan: Path, tmp_path: Path):
    """A question that cannot be asked is refused, and the next one is read."""
    small = ["--renderer", "raycast", "--image-size", "64", "48", "--steps", "1", "--log-root", str(tmp_path)]
    shown = Terminal([sys.executable, str(COMMAND), "--ply", str(one_scan), "--policy", "random", *small])
    shown.type("How many lamp(s) are in this room?\n", after="Question")
    shown.type("Which one? | only this\n", after="Final answer.*Question")
    shown.type("How many chair(s) are in this room?\n", after="at least two options.*Question")
    shown.type("\n", after="Final answer.*Question")
    assert shown.status() == 0
    asked = [RunReader(folder).rows[0].question for folder in run_folders(tmp_path)]
    assert asked == ["How many lamp(s) are in this room?", "How many chair(s) are in this room?"]
    assert re.search("turn 0 sees:.*[▀▄].*turn 0: .*Final answer: .*Report: ", shown.text, re.DOTALL)


def ask(scan: Path, logs: Path, *flags: str) -> list[str]:
    """Flags that ask one question without loading weights; it is answered in turn 1, after one move."""
    asked = ["--ply", str(scan), "--question", "What is this?", "--policy", "random", "--renderer", "raycast"]
    return [*asked, "--steps", "2", "--image-size", "64", "48", "--no-report", "--log-root", str(logs), *flags]


def test_without_pictures_the_file_of_each_view_is_named(one_scan: Path, tmp_path: Path):
    said = run_main(ask(one_scan, tmp_path)).stdout
    (run,) = run_folders(tmp_path)
    files = re.findall(r"^\[Q001\] turn \d sees (.*)$", said, re.MULTILINE)
    assert files == list(map(str, sorted(run.glob("q001/*.png")))) and len(files) == 2
    assert " sees " not in (run / "run.log").read_text()


STEPS = ("Reading the question", "Starting the renderer", "Loading the scan", "Drawing the first view")
ERASED = "\x1b[1A\x1b[2K"  # what rich writes when a line that is replaced ends


def test_what_a_command_waits_for_is_one_line_until_the_first_turn(one_scan: Path, tmp_path: Path):
    shown = Terminal([sys.executable, "-m", "roomscout", "ask", str(one_scan), *ask(one_scan, tmp_path)[2:]])
    assert shown.status() == 0
    before, after = shown.text.split(ERASED)
    found = [before.index(step) for step in STEPS]
    assert found == sorted(found) and before.count("\n") == 1, "the last line is left to be erased"
    assert not any(step in after for step in STEPS) and "turn 0 sees" in after


@pytest.mark.parametrize("flags", [["--questions", "absent.jsonl"], ["--steps", "0", "--moves", "spin"]])
def test_the_line_is_gone_when_an_error_is_shown(flags: list[str], tmp_path: Path):
    shown = Terminal([sys.executable, "-m", "roomscout", "eval", "--log-root", str(tmp_path), *flags])
    assert shown.status() == 2
    line, after = shown.text.split(ERASED)
    assert "Reading questions" in line and after.startswith("error: ")


@pytest.mark.parametrize("verb", ["ask", "eval", "play", "resume"])
def test_the_line_does_not_wait_for_libraries(verb: str):
    code = f"import sys; from roomscout.command.verbs import VERBS; VERBS[{verb!r}].load(); print(*sys.modules)"
    imported = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert not {"scipy", "torch", "transformers", "open3d", "trimesh", "PIL"} & set(imported)


@pytest.mark.parametrize("level", ["info", "result"])
def test_in_a_log_each_step_has_one_line_unless_only_results_are_printed(rooms: RoomScans, tmp_path: Path, level: str):
    flags = rooms.flags(tmp_path, "--log-level", level, "--policy", "random", "--steps", "1", "--no-report")
    lines = run_main(flags).stdout.splitlines()
    steps = [line for line in lines if line.startswith(("Reading questions", *STEPS[1:]))]
    assert len(steps) == (4 if level == "info" else 0) and lines[: 1 if steps else 0] == steps[:1]


class Terminal:
    """A command on a pseudo-terminal."""

    def __init__(self, command: list[str]) -> None:
        ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (40, 100))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._terminal, self.text, self._read = ours, "", 0
        self._more = threading.Condition()
        threading.Thread(target=self._copy, daemon=True).start()

    def type(self, text: str, after: str) -> None:
        """Type a text once the command has printed the pattern, since the last one."""
        with self._more:
            found = self._more.wait_for(lambda: re.compile(after, re.DOTALL).search(self.text, self._read), PATIENCE_S)
            assert found, f"{after!r} is not in {self.text[self._read :]!r}"
            self._read = found.end()
        os.write(self._terminal, text.encode())

    def status(self) -> int:
        """The exit status, once the command has ended."""
        return self._process.wait(PATIENCE_S)

    def _copy(self) -> None:
        while True:
            try:
                part = os.read(self._terminal, 65536)
            except OSError:  # the command has closed its side
                return
            with self._more:
                self.text += part.decode(errors="replace")
                self._more.notify_all()
