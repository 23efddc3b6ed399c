"""The verbs of the command, and what it says of flags that other tools have."""

import contextlib
from pathlib import Path

import pytest
from conftest import results

from roomscout.command.main import main
from roomscout.command.verbs import VERBS, read_verb
from roomscout.edge.flags import parse_command_line


@pytest.mark.parametrize(
    ("typed", "flags"),
    [
        ("ask room.ply What? --steps 3", "--ply room.ply --question What? --steps 3"),
        ("eval --scan-root scans", "--batch --scan-root scans"),
        ("resume", "--continue recent"),
        ("resume --retry-failed", "--continue recent --retry-failed"),
        ("resume runs/1 --retry-failed", "--continue runs/1 --retry-failed"),
        ("plan --device cpu", "--plan --device cpu"),
        ("check --scan-root scans", "--check-data --scan-root scans"),
        ("demo --steps 3", "--demo --steps 3"),
        ("help", "--help"),
        ("--batch --steps 3", "--batch --steps 3"),
        ("", ""),
    ],
)
def test_a_verb_is_short_for_flags(typed: str, flags: str):
    assert read_verb(typed.split()) == (flags.split(), None)


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if verb.flags])
def test_the_examples_of_a_verb_have_flags_that_exist(name: str):
    for example in VERBS[name].examples:
        assert example.startswith(f"roomscout {name}")
        assert parse_command_line(read_verb(_words(example)[1:])[0]).settings


def _words(example: str) -> list[str]:
    """The words of a command; a quoted text is one of them."""
    words = []
    for index, part in enumerate(example.split('"')):
        words += [part] if index % 2 else part.split()
    return words


def test_rooms_are_asked_about_by_verbs_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    rooms, logs = tmp_path / "rooms", tmp_path / "logs"
    assert main(["rooms", str(rooms), "--rooms", "1"]) == 0
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
def test_each_verb_has_help_with_two_examples(name: str, capsys: pytest.CaptureFixture[str]):
    with contextlib.suppress(SystemExit):  # as argparse ends after its help
        main([name, "--help"])
    said = capsys.readouterr().out
    assert said.count(f"roomscout {name} ") >= 2
    assert "usage: roomscout" in said


def test_a_flag_about_a_judge_needs_one(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["rescore", "a_run", "--judge-key-env", "MY_KEY"])
    assert "--judge-key-env is about a judge: add --judge MODEL, or leave it out" in capsys.readouterr().err
