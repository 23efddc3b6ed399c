"""Errors in Python's words: arguments by name, where the command's messages have flags."""

import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin

from roomscout.agent.config import HINTS, SECTION_OF, ConfigError, flag
from roomscout.data.questions import QuestionError
from roomscout.data.scans import ScanNotFound
from roomscout.models import ModelError
from roomscout.rendering.renderers import RenderError
from roomscout.runs import RunError
from roomscout.runs.setting_types import DEVICE

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

REFUSALS = (ConfigError, QuestionError, ScanNotFound, RenderError, ModelError, RunError)
"""The errors whose messages name flags."""
NAMES = {flag(name): name for name in SECTION_OF} | {
    "--ply": "scan",
    "--ply and --demo": "ask",
    "--ply asks": "ask asks",
    "--batch": "explore",
    "--demo": "`roomscout --demo`",
    "--continue": "`roomscout resume`",
    "--retry-failed": "`--retry-failed`",
    "--continue and --retry-failed": "`roomscout resume --retry-failed`",
    "--check-data": "`roomscout check`",
    "--plan": "`roomscout plan`",
}
"""What Python calls each flag. Those that select what the command does are functions here, or left to the command."""
NUMBER = r"-?\d+(?:\.\d+)?"
VALUES = {"device": DEVICE.pattern, "model": r"embedded|scripted:[\w.]+"}
"""Values of settings that take any text, as far as messages have them."""
PLACEHOLDER = r"[A-Z]{3,}"
_NOT_OURS = r"\(\d{3}\b.*\)(?=:)|(?m:^    .*$)"
"""What a server said after its status, and the lines of a server's log."""


def in_python_words(message: str, given: Iterable[str] = ()) -> str:
    """The message with `steps` for "--steps", `engine="openai"` for "--engine openai" and `scan` for "--ply".

    The texts `given` by the user, such as paths and questions, stay as they are, as do a server's words and all flags
    that are not ours.
    """
    texts = sorted((re.escape(text) for text in given if "--" in text), key=len, reverse=True)
    kept = "|".join([*texts, _NOT_OURS])
    return re.sub(rf"(?P<kept>{kept})|{_flags()}", _named, message)


def errors_in_python_words(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """A decorator: the function's errors keep their types and causes, and name arguments instead of flags."""

    @wraps(function)
    def called(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        try:
            return function(*args, **kwargs)
        except REFUSALS as error:
            given = [str(each) for each in (*args, *kwargs.values()) if isinstance(each, str | Path)]
            error.args = (in_python_words(str(error), given),)
            raise

    return called


def _named(match: re.Match[str]) -> str:
    if match["kept"]:
        return match[0]
    name, value = NAMES[match["flag"]], match[0].removeprefix(match["flag"]).strip()
    if value and not re.fullmatch(f"{NUMBER}|{PLACEHOLDER}", value):
        value = f'"{value}"'
    following = "," if match.string.startswith(" --", match.end()) else ""
    return f"{name}={value}{following}" if value else f"{name}{following}"


@cache
def _flags() -> str:
    """A pattern for each flag, alone or with a value of its setting."""
    names = "|".join(map(re.escape, sorted(NAMES, key=len, reverse=True)))
    by_flag = {re.escape(flag(name)): _values(name) for name in SECTION_OF}
    values = "|".join(f"(?<={each}) (?:{values})" for each, values in by_flag.items() if values)
    return rf"(?<![\w./-])(?P<flag>{names})(?![\w/-])(?:(?:{values})(?![\w/-]))?"


def _values(name: str) -> str:
    """A pattern for the values of a setting that a message may have behind its flag; empty for a switch."""
    found = [VALUES[name]] if name in VALUES else [*_members(HINTS[name])]
    return "|".join([*found, PLACEHOLDER]) if found != ["switch"] else ""


def _members(hint: Any) -> Iterable[str]:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    elif get_origin(hint) is Literal:
        yield from map(re.escape, map(str, get_args(hint)))
    elif hint in (int, float):
        yield NUMBER
    elif hint is bool:
        yield "switch"
