"""The verbs of the command, and what it says of mistakes."""

import shlex
import sys
from pathlib import Path

import pytest
from conftest import results, run_main

from roomscout.agent.running import resume_command
from roomscout.command.main import main
from roomscout.command.verbs import VERBS, read_verb
from roomscout.edge.flags import parse_command_line


@pytest.mark.parametrize(
    ("typed", "flags"),
    [
        ("ask room.ply What? --steps 3", "--ply room.ply --question What? --steps 3"),
        ("eval --scan-root scans", "--batch --scan-root scans"),
        ("resume --retry-failed", "--continue recent --retry-failed"),
        ("resume runs/1 --retry-failed", "--continue runs/1 --retry-failed"),
        ("plan --device cpu", "--plan --device cpu"),
        ("check --scan-root scans", "--check-data --scan-root scans"),
        ("demo --steps 3", "--demo --steps 3"),
        ("help", "--help"),
        ("--batch --steps 3", "--batch --steps 3"),
    ],
)
def test_a_verb_is_short_for_flags(typed: str, flags: str):
    assert read_verb(typed.split()) == (flags.split(), None)


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.flags])
def test_the_examples_of_a_verb_have_flags_that_exist(name: str):
    for example in VERBS[name].examples:
        assert example.startswith(f"roomscout {name}")
        assert parse_command_line(read_verb(shlex.split(example)[1:])[0]).settings


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
    ("typed", "words"),
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
def test_a_mistyped_command_is_answered_with_what_is_meant(typed: str, words: str):
    ended = run_main(typed.split())
    assert (ended.returncode, words in ended.stderr) == (2, True), ended.stderr


def test_the_console_command_resumes_by_its_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/roomscout", "eval"])
    assert resume_command(tmp_path, {}) == f"roomscout resume {tmp_path}"
