"""What commands say that a newcomer gets wrong, and the help of verbs."""

import os
import re
import sys
from pathlib import Path

import pytest
from conftest import run_command

from roomscout.agent.running import resume_command
from roomscout.command.main import main
from roomscout.command.merging import out_and_parts
from roomscout.command.verbs import VERBS
from roomscout.runs import RunError


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


def test_a_folder_of_questions_is_answered_with_its_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "questions.jsonl").touch()
    assert main(["check", "--questions", str(tmp_path)]) == 2
    assert f"{tmp_path}: a question file is one of" in capsys.readouterr().err


def test_the_command_alone_lists_its_verbs(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 2
    said = capsys.readouterr().out
    assert all(f"\n  {name}" in said for name in VERBS)


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


def test_help_without_docstrings_begins_with_a_sentence():
    env = {**os.environ, "PYTHONOPTIMIZE": "2"}
    said = run_command([sys.executable, "-m", "roomscout", "help"], env=env).stdout
    assert "Let a vision-language model explore 3D scans" in said.partition("Verbs")[0]
    assert "Settings(" not in said


def test_the_console_command_resumes_by_its_verb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/roomscout", "eval"])
    assert resume_command(tmp_path, {}) == f"roomscout resume {tmp_path}"


def test_a_merge_of_other_folders_takes_the_first_as_the_new_one(tmp_path: Path):
    assert out_and_parts([tmp_path / "new", tmp_path / "part"]) == (tmp_path / "new", [tmp_path / "part"])
    with pytest.raises(RunError):
        out_and_parts([tmp_path / "new"])
