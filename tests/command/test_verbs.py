"""The verbs of the command, and what it says of mistakes."""

import re
import shlex
import sys
from importlib import import_module
from pathlib import Path

import pytest
from conftest import results, run_main

from roomscout.base.errors import UsageError
from roomscout.command import words
from roomscout.command.main import main
from roomscout.command.verbs import VERBS
from roomscout.command.words import in_verbs
from roomscout.edge.record import resume_words


@pytest.mark.parametrize(
    ("typed", "verb"),
    [
        ("--ply room.ply --question What? --steps 3", "ask room.ply --question What? --steps 3"),
        ("--steps 3 --ply room.ply --question Which? --options red blue", None),
        ("--batch --scan-root scans", "eval --scan-root scans"),
        ("--continue recent --retry-failed", "resume recent --retry-failed"),
        ("--batch --continue runs/1 --shard 1/2", "resume runs/1 --batch --shard 1/2"),
        ("--plan --device cpu", "plan --device cpu"),
        ("--plan --ply room.ply --question What?", "plan --ply room.ply --question What?"),
        ("--check-data --scan-root scans", "check --scan-root scans"),
        ("--demo --camera-pitch -20 --up-axis -y", "demo --camera-pitch -20 --up-axis=-y"),
        ("--demo --plan", "plan --demo"),
    ],
)
def test_flags_alone_stand_for_a_verb(typed: str, verb: str | None):
    expected = verb or "ask room.ply --question Which? --options red blue --steps 3"
    assert in_verbs(typed.split()) == expected.split()


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("--question Where?", "--question Where? needs --ply"),
        ("--ply a.ply --options x y", "--options x y needs --question"),
        ("--batch --demo", "--batch conflicts with --demo: leave one of them out"),
        ("--batch --ply a.ply", "--batch conflicts with --ply a.ply"),
        ("--plan --check-data", "--check-data conflicts with --plan"),
        ("--plan --continue recent", "--plan conflicts with --continue recent"),
        ("--steps 3", "nothing to do: give a verb such as ask or eval"),
    ],
)
def test_flags_alone_that_say_no_verb_or_two_are_refused(typed: str, answer: str):
    with pytest.raises(UsageError, match=re.escape(answer)):
        in_verbs(typed.split())


def test_a_file_of_settings_may_say_what_to_do(tmp_path: Path):
    file = tmp_path / "run.yaml"
    file.write_text("continue: recent\nbatch: yes\nsteps: 3\n")
    assert in_verbs(["--config", str(file)]) == ["resume", "recent", "--batch", "--config", str(file)]


def of_runs() -> list[str]:
    """The verbs that take settings."""
    return [name for name, verb in VERBS.items() if verb.sections]


@pytest.mark.parametrize("name", of_runs())
def test_the_examples_of_a_verb_have_flags_that_exist(name: str):
    takes = getattr(import_module(VERBS[name].target.partition(":")[0]), "TAKES", ())
    for example in VERBS[name].examples:
        assert example.startswith(f"roomscout {name}")
        assert words.read(name, words.split(shlex.split(example)[2:])[1], takes)


def test_the_overview_is_one_screen_with_a_line_for_each_verb(capsys: pytest.CaptureFixture[str], monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["--help"], console=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 42 and not [line for line in lines if line.endswith("...")]
    assert all(sum(line.startswith(f"  {name} ") for line in lines) == 1 for name in VERBS)


def test_rooms_are_asked_about_by_verbs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rooms, logs = tmp_path / "rooms", tmp_path / "logs"
    assert main(["rooms", str(rooms), "--rooms", "1", "--resolution", "0.2"]) == 0
    chosen = ["--questions", str(rooms / "questions.jsonl"), "--scan-root", str(rooms), "--log-root", str(logs)]
    assert main(["check", *chosen]) == 0
    looking = ["--policy", "random", "--renderer", "raycast", "--steps", "1", "--image-size", "32", "24"]
    assert main(["eval", *chosen, *looking, "--num-questions", "2"]) == 0
    (run,) = logs.iterdir()
    assert len(results(run)) == 2
    assert main(["resume", str(run)]) == 0
    (scan,) = (rooms / "scannet" / "scans").glob("*/*.ply")
    said = ["How many lamp(s) are in this room?", "--log-root", str(tmp_path / "one")]
    assert main(["ask", str(scan), *said, *looking]) == 0
    assert "Final answer" in capsys.readouterr().out


@pytest.mark.parametrize("name", VERBS)
def test_each_verb_has_help_with_two_examples(name: str):
    ended = run_main([name, "--help"])
    assert ended.returncode == 0
    assert ended.stdout.count(f"roomscout {name} ") >= 2 and "usage: roomscout" in ended.stdout


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("--retry-failed", "--retry-failed needs --continue"),
        ("help asc", "there is no verb asc; did you mean ask?"),
        ("train grop", "there is no training grop; did you mean grpo?"),
        ("ask room.ply How many?", "ask takes a scan, and a question in quotes"),
        ("resume --log-root nowhere", "no run below"),
        ("merge nowhere", "nowhere is no part of a run"),
        ("compare --output=x", "there is no flag --output; did you mean --out?"),
        ("rescore a_run --judge-key-env MY_KEY", "--judge-key-env is about a judge: add --judge MODEL"),
    ],
)
def test_a_mistyped_command_is_answered_with_what_is_meant(typed: str, answer: str):
    ended = run_main(typed.split())
    assert (ended.returncode, answer in ended.stderr) == (2, True), ended.stderr


def test_the_console_command_resumes_by_its_verb(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/roomscout", "eval"])
    assert resume_words() == ["roomscout", "resume"]
