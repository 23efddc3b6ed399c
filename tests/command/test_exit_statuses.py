"""The exit statuses of the command: what scripts and schedulers decide by."""

import shutil
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, run_command, run_main

POLICY = """
import os, signal
from roomscout.agent.policies.controls import RandomPolicy

class Stopped(RandomPolicy):
    def decide(self, states):
        os.kill(os.getpid(), signal.SIGTERM)
        return super().decide(states)

class Broken(RandomPolicy):
    def decide(self, states):
        return [1 / 0]
"""


@pytest.mark.parametrize(
    ("typed", "status", "words"),
    [
        ([], 0, "Final answer"),
        (["--steps", "-1"], 2, "--steps"),
        (["--policy", "{policies}:Broken"], 3, "To resume"),
    ],
)
def test_each_end_of_a_run_has_its_status(rooms: RoomScans, tmp_path: Path, typed: list[str], status: int, words: str):
    (tmp_path / "policies.py").write_text(POLICY)
    more = [word.format(policies=tmp_path / "policies.py") for word in typed]
    ended = run_main(rooms.flags(tmp_path / "logs", "--num-questions", "1", "--steps", "1", *more))
    assert (ended.returncode, words in ended.stdout + ended.stderr) == (status, True), ended.stderr


def test_a_failed_question_gives_status_1_and_still_does_when_nothing_is_left_to_do(rooms: RoomScans, tmp_path: Path):
    root = Path(shutil.copytree(rooms.root, tmp_path / "scans"))
    min(root.rglob("*.ply")).unlink()
    flags = rooms.flags(tmp_path / "logs", "--scan-root", str(root), "--steps", "1")
    assert run_main(flags).returncode == 1
    again = run_main(["--continue", str(only_run(tmp_path / "logs"))])
    assert (again.returncode, "Nothing to do" in again.stdout) == (1, True), again.stderr
    chosen = ["--questions", str(rooms.questions), "--scan-root", str(root)]
    assert run_main(["--check-data", *chosen]).returncode == 1


def test_an_interrupted_run_gives_status_130_and_the_command_that_resumes_it(rooms: RoomScans, tmp_path: Path):
    (tmp_path / "policies.py").write_text(POLICY)
    policy = ("--policy", f"{tmp_path / 'policies.py'}:Stopped")
    ended = run_command(rooms.command(tmp_path / "logs", "--num-questions", "1", *policy))
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout.splitlines()[-1].endswith(f"--continue {only_run(tmp_path / 'logs')}")


@pytest.mark.parametrize("typed", ["", "--steps 3", "evil", "--nope", "eval --batch --demo", "resume /nowhere"])
def test_a_command_that_has_nothing_to_run_gives_status_2(typed: str):
    assert run_main(typed.split()).returncode == 2
