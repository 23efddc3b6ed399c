"""What commands say that a newcomer gets wrong, and the help of verbs."""

import re
import sys
from pathlib import Path

import pytest

from roomscout.agent.running import resume_command
from roomscout.command.main import main


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("resume --log-root nowhere", "no run below"),
        ("merge nowhere", "nowhere is no part of a run: merge takes the folders of the parts"),
    ],
)
def test_a_mistake_is_answered_with_what_is_meant(typed: str, words: str, capsys: pytest.CaptureFixture[str]):
    assert main(typed.split()) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("verb", "first", "absent"), [("eval", "--questions", "--demo"), ("check", "--questions", "--model")]
)
def test_the_help_of_a_verb_lists_its_flags_with_the_main_ones_first(
    verb: str, first: str, absent: str, capsys: pytest.CaptureFixture[str]
):
    assert main([verb, "--help"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: roomscout {verb}")
    listed = re.findall(r"^\W*?(--[a-z-]+)", said, re.MULTILINE)
    assert absent not in listed
    assert listed.index(first) < listed.index("--scan-root")


def test_the_console_command_resumes_by_its_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/roomscout", "eval"])
    assert resume_command(tmp_path, {}) == f"roomscout resume {tmp_path}"
