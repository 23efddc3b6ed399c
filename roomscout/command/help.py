"""The help of flags."""

import inspect
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from roomscout import SCRIPT
from roomscout.base.text import either
from roomscout.base.wording import flag
from roomscout.edge.declaring import Section
from roomscout.edge.flags import TYPES, Given
from roomscout.edge.reading import read_settings
from roomscout.edge.settings import SECTIONS, SETTINGS, Settings

EXAMPLES = (
    '--ply room.ply --question "How many chair(s) are in this room?" --model embedded',
    "--batch --questions rooms/questions.jsonl --scan-root rooms --model embedded",
    "--batch --scan-root scans --max-batched-turns 6",
    "--continue recent",
)
"""What --help of the script begins with."""
ABOUT = "Let a vision-language model explore 3D scans of rooms and answer spatial questions."
"""The first line of --help where Python leaves docstrings out."""


def show_help(given: Given, verbs: str, verbs_and_examples: str) -> int:
    """Print the help of all flags, with the values of --config as defaults; returns the exit status.

    That of the script has its own examples and the text of the `verbs`, that of the console command the other.
    """
    about = [ABOUT] if sys.flags.optimize > 1 else inspect.cleandoc(Settings.__doc__ or ABOUT).split("\n\n")
    from_file = "--config FILE.yaml reads the same settings from a YAML file; flags take precedence."
    if Path(sys.argv[0]).name == SCRIPT.name:
        usage = SCRIPT.name
        parts = [*map(_filled, about), "\n".join(f"  python {usage} {each}" for each in EXAMPLES), verbs]
    else:
        usage = "roomscout VERB"
        parts = [_filled(about[0]), verbs_and_examples]
    print_flags(usage, SECTIONS, "\n\n".join([*parts, _filled(from_file)]), vars(read_settings(given.settings)))
    return 0


def print_flags(usage: str, sections: Iterable[type[Section]], description: str, defaults: Mapping[str, Any]) -> None:
    """Print the flags of these sections, in their order, with these defaults."""
    lines = [f"usage: {usage} [-h] [OPTIONS]", "", description, "", "options:"]
    lines.append(_help_of("-h, --help", "show this help message and exit"))
    for kind in sections:
        lines += ["", f"{kind.title} options:", *([f"  {kind.advice}", ""] if kind.advice else [])]
        lines += [_help_of(*_flag_and_text(name, text, defaults[name])) for name, text in kind.helps().items()]
    print("\n".join(lines))


def _flag_and_text(name: str, text: str, value: Any) -> tuple[str, str]:
    """A flag with its values, and what it is, with its default `value`."""
    taken, declared = TYPES[name], SETTINGS[name]
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
    if declared.choices is not None:
        text = text.replace("{choices}", either([*declared.choices()]))
    if shown not in ("", "None"):
        text += f" (default: {shown})"
    if taken == [bool]:
        return f"{flag(name)}, {flag(name, False)}", text
    return f"{flag(name)} {declared.values or _values_in_words(taken)}", text


def _help_of(flags: str, text: str) -> str:
    """The help of a flag, in a column beside it, or below it if it is long."""
    indent, beside = " " * 24, f"  {flags:<20}  "
    if len(beside) > len(indent):
        return f"{beside.rstrip()}\n{_filled(text, indent, indent)}"
    return _filled(text, beside, indent)


def _filled(text: str, first: str = "", indent: str = "") -> str:
    columns = max(shutil.get_terminal_size().columns - 2, 60)
    return textwrap.fill(text, columns, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _values_in_words(taken: list[Any]) -> str:
    """How the help shows values of these types."""
    choices = [str(value) for each in taken for value in get_args(each)]
    return f"{{{','.join(choices)}}}" if choices else taken[0].__name__.upper()
