"""What a run's verb takes beside settings, how its command line is read, and which verb flags alone stand for."""

import argparse
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.agent.console import log_to_console, waiting_line
from roomscout.base.errors import UsageError, flag
from roomscout.base.text import RESULT
from roomscout.base.verbs import Parser
from roomscout.base.waiting import step
from roomscout.edge.flags import Given, flags_parser, read_flags, read_words, with_axes
from roomscout.edge.settings import DEFAULTS, VERB_WORDS, Settings, flags_giving

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "result": RESULT}


@dataclass(frozen=True)
class Word:
    """An argument of verbs that is no setting, written as a flag."""

    help: str
    metavar: str = ""  # what it takes; nothing if empty: it is there or not
    several: bool = False
    is_path: bool = False


WORDS = {
    "batch": Word("Answer the questions of --questions, or those of the benchmark without it."),
    "demo": Word("Compare the included small model, with and without sight, on generated rooms."),
    "continue_from": Word("Resume the newest run below --log-root, or the run in this folder.", "recent|FOLDER"),
    "retry_failed": Word("Also retry failed questions."),
    "check_data": Word("Print how many questions have a scan, then stop."),
    "plan": Word("Print the size, memory and batch size of the run, then stop; loads no weights."),
    "ply": Word("The scan to ask about: a .ply, .pcd, .glb, .gltf or .obj file.", "FILE", is_path=True),
    "question": Word(
        "The question to ask about the scan; without it, ask for one after another, with model and scan kept in "
        "memory.",
        "TEXT",
    ),
    "options": Word(
        "The choices of the question; without them the answer is a number or free text.", "TEXT", several=True
    ),
    "ground_truth": Word("The correct answer to the question, for scoring.", "TEXT"),
}
"""By the name in run.json."""


OF_FILE = {
    **{"eval": ("batch",), "play": ("batch",), "plan": ("plan", "batch"), "check": ("check_data", "batch")},
    **{"ask": ("ply",), "resume": ("continue_from",), "demo": ("demo",)},
}
"""What a file of settings may say beside what a verb takes, since the verb says it."""
CONFLICTS = (
    *(("batch", "ply"), ("batch", "demo"), ("demo", "ply"), ("plan", "continue_from"), ("ply", "continue_from")),
    *(("check_data", "plan"), ("check_data", "ply")),
)
NEEDS = {"retry_failed": "continue_from", "question": "ply", "options": "question", "ground_truth": "question"}


def add_words(parser: Parser, names: Sequence[str]) -> None:
    """Let a parser take these words."""
    group = parser.add_argument_group("main options")
    for name in names:
        word = WORDS[name]
        options: dict[str, Any] = {"dest": name, "help": word.help}
        if word.metavar:
            options |= {"metavar": word.metavar, "nargs": "+" if word.several else None}
            options["type"] = Path if word.is_path else str
        else:
            options["action"] = argparse.BooleanOptionalAction
        group.add_argument(flag(name), **options)


def read(verb: str, arguments: Sequence[str], takes: Sequence[str] = ()) -> Given:
    """The settings and words of a verb's command line; ends the process with status 2 for flags that it does not know.
    Raises UsageError for an argument that is no flag, ConfigError for a file of settings."""
    words = [argument for argument in arguments[:1] if not argument.startswith("-")]
    if words:
        raise UsageError(f"{verb} takes flags, not {words[0]}: roomscout help {verb} has examples")
    parser = flags_parser(usage=f"roomscout {verb}")
    add_words(parser, takes)
    return read_flags(parser, arguments, verb, (*takes, *OF_FILE[verb]))


def split(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """The arguments before the first flag, and the others."""
    first = next((index for index, word in enumerate(arguments) if word.startswith("-")), len(arguments))
    return list(arguments[:first]), list(arguments[first:])


def show_help(usage: str, about: str, sections: Sequence[str], takes: Sequence[str]) -> None:
    """Print the help of a run's verb: its words, and the settings of these sections with their defaults."""
    from roomscout.edge import sections as of

    parser = flags_parser([getattr(of, name) for name in sections], usage, about, DEFAULTS)
    add_words(parser, takes)
    parser.print_help()


def print_lines(settings: Settings, at_least: int = RESULT) -> None:
    """Print log lines from now on as the settings say, and those of a level in any case."""
    log_to_console(min(at_least, LEVELS[settings.log_level]))


@contextmanager
def waiting(given: Given, what: str) -> Iterator[None]:
    """Say inside this block, until the first turn, what the command waits for, at first `what`; not if only results are
    printed. What takes seconds to import is imported inside it."""
    level = given.settings.get("log_level", Settings.log_level)
    if level in LEVELS and LEVELS[level] < RESULT:
        log_to_console(LEVELS[level])
        waiting_line.begin()
    try:
        with step(what):
            yield
    finally:
        waiting_line.end()


def in_verbs(argv: Sequence[str]) -> list[str]:
    """A command line of flags alone, as render_point_cloud_qwen_angle_batched.py takes it, with its verb.
    Raises UsageError if it does not say what to do, or two things."""
    parser = Parser(add_help=False, allow_abbrev=False)
    add_words(parser, tuple(WORDS))
    typed, rest = parser.parse_known_args(with_axes(argv))
    given = VERB_WORDS | read_words(rest) | {name: value for name, value in vars(typed).items() if value is not None}
    for one, other in CONFLICTS:
        if given[one] and given[other]:
            conflict = f"{flag(one, given[one])} conflicts with {flag(other, given[other])}"
            raise UsageError(f"{conflict}: leave one of them out")
    for name, needed in NEEDS.items():
        if given[name] and not given[needed]:
            raise UsageError(f"{flag(name, given[name])} needs {flag(needed)}")

    def flags(*names: str) -> list[str]:
        return flags_giving({name: given[name] for name in names})

    about = flags("question", "options", "ground_truth")
    if given["continue_from"]:
        return ["resume", given["continue_from"], *flags("batch", "retry_failed"), *rest]
    if given["plan"]:
        return ["plan", *flags("demo", "ply"), *about, *rest]
    if given["check_data"]:
        return ["check", *flags("demo"), *rest]
    if given["demo"]:
        return ["demo", *rest]
    if given["ply"] is not None:
        return ["ask", str(given["ply"]), *about, *rest]
    if given["batch"]:
        return ["eval", *rest]
    raise UsageError(
        "nothing to do: give a verb such as ask or eval, or --batch, --ply with --question, --demo or --continue; "
        "roomscout help has examples"
    )
