"""The exit statuses of the command: what scripts and schedulers decide by."""

import json
import shutil
import sys
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, run_command, run_main
from PIL import Image

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


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (None, 1, "goal.jpg cannot be read (No such file or directory)"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(99), 1, "it is HEIC: convert it to JPEG or PNG"),
        (b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(99), 1, "it is JPEG 2000: convert it to JPEG or PNG"),
        (b"<?xml version='1.0'?>\n<!-- a > b -->\n<svg xmlns='x'/>", 1, "it is SVG: convert it to PNG"),
        (b"<!DOCTYPE html><html><svg/></html>", 1, "it is a web page instead of the file"),
        (b"version https://git-lfs.github.com/spec/v1\n", 1, "it is a Git LFS pointer instead of the file"),
        (b"nothing", 1, "it is damaged, or not an image of a known format"),
        ("JPEG", 0, "all"),
        ("PNG", 0, "all"),
    ],
)
def test_check_looks_at_the_pictures_of_questions(
    rooms: RoomScans, tmp_path: Path, content: bytes | str | None, status: int, said: str
):
    scan = shutil.copy(min(rooms.root.rglob("*.ply")), tmp_path / "room.ply")
    if isinstance(content, str):
        Image.new("RGB", (8, 6)).save(tmp_path / "goal.jpg", content)
    elif content is not None:
        (tmp_path / "goal.jpg").write_bytes(content)
    row = {"scan": str(scan), "question": "How many?", "question_type": "object_counting", "ground_truth": 2}
    (tmp_path / "q.jsonl").write_text(json.dumps({**row, "images": "goal.jpg"}))
    ended = run_main(["check", "--questions", str(tmp_path / "q.jsonl")])
    assert (ended.returncode, said in ended.stdout + ended.stderr) == (status, True), ended.stdout + ended.stderr


def test_an_interrupted_run_gives_status_130_and_the_command_that_resumes_it(rooms: RoomScans, tmp_path: Path):
    (tmp_path / "policies.py").write_text(POLICY)
    policy = ("--policy", f"{tmp_path / 'policies.py'}:Stopped")
    ended = run_command(rooms.command(tmp_path / "logs", "--num-questions", "1", *policy))
    assert ended.returncode == 130, ended.stderr
    assert ended.stdout.splitlines()[-1].endswith(f"--continue {only_run(tmp_path / 'logs')}")


@pytest.mark.parametrize("typed", ["", "--steps 3", "evil", "--nope", "eval --batch --demo", "resume /nowhere"])
def test_a_command_that_has_nothing_to_run_gives_status_2(typed: str):
    assert run_main(typed.split()).returncode == 2


def test_an_interrupt_of_code_that_a_library_makes_has_the_same_status(rooms: RoomScans, tmp_path: Path):
    (tmp_path / "made.py").write_text('exec("import signal; signal.raise_signal(signal.SIGINT)")')
    flags = rooms.flags(tmp_path / "logs", "--policy", f"{tmp_path / 'made.py'}:Policy")
    ended = run_command([sys.executable, "-m", "roomscout", *flags])
    assert (ended.returncode, ended.stderr) == (130, "")
