"""Text from outside on terminals, in logs and in messages: escaped, and never a line of its own."""

import logging
import re
import sys
from pathlib import Path

from conftest import COMMAND, RoomScans, on_a_terminal, only_run

from roomscout.base.text import LogFormatter, argument_text, escaped

UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
HOSTILE = "\x1b]0;pwned\x07\x1b[31mRED \x08\r\x9b2J\u2028\u202e\nERROR forged line"
POLICY = f"""
from roomscout.agent.policies import Decision, Policy
from roomscout.envs.actions import CameraAction
from roomscout.models import Reply

HOSTILE = {HOSTILE!r}

class Answers(Policy):
    def decide(self, states):
        return [Decision(CameraAction(answer=HOSTILE, done=True), Reply("I see" + HOSTILE)) for _ in states]
"""


def test_what_a_model_says_reaches_neither_the_terminal_nor_the_log_unescaped(rooms: RoomScans, tmp_path: Path):
    (tmp_path / "hostile.py").write_text(POLICY, encoding="utf-8")
    scan = min(rooms.root.rglob("*.ply"))
    printed = on_a_terminal(
        [
            sys.executable, str(COMMAND), "--ply", str(scan), "--question", "What is this?", "--renderer", "blind",
            "--policy", f"{tmp_path / 'hostile.py'}:Answers", "--log-root", str(tmp_path / "logs"),
        ]
    )  # fmt: skip
    logged = (only_run(tmp_path / "logs") / "run.log").read_text(encoding="utf-8")
    for text in (printed, logged):
        assert r"\x1b]0;pwned\x07" in text
        assert not UNSAFE.findall(text)
        assert not re.search("^ERROR", text, re.MULTILINE)


def test_escapes_are_visible_and_stay_as_they_are_when_escaped_again():
    assert escaped("a\x1b\n\x9b\u2028\u202e\udc80 ü") == r"a\x1b\n\x9b\u2028\u202e\udc80 ü"
    assert escaped(escaped(HOSTILE)) == escaped(HOSTILE)


def test_a_log_record_is_escaped_whatever_its_arguments_are():
    def text_of(form: str, *arguments: object) -> str:
        return LogFormatter().format(logging.LogRecord("x", logging.INFO, "x.py", 1, form, arguments, None))

    assert text_of("%s|%r|%5.1f|%d", Path("a\nb"), ["\x1b"], 1.25, True) == r"a\nb|['\x1b']|  1.2|1"
    assert text_of("%(who)s", {"who": ValueError("a\nb")}) == r"a\nb"
    assert text_of("%s\n  -> %s", "a\n  -> forged", "b") == "a\\n  -> forged\n  -> b"


def test_an_argument_is_decoded_only_if_the_locale_could_not_and_it_is_utf_8():
    given = ("Tür", "T\udcc3\udcbcr", "\udcfc", "\ud800")
    assert [argument_text(text) for text in given] == ["Tür", "Tür", "\udcfc", "\ud800"]
