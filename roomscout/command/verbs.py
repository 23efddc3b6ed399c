"""The verbs of the command, such as `roomscout ask`: each is short for flags, or a function of another module.

To add a verb, write its `main(arguments) -> int` with base/verbs.py, and an entry of VERBS.
"""

import importlib
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout import SCRIPT, __version__
from roomscout.base.errors import ConfigError
from roomscout.base.text import did_you_mean, either


@dataclass(frozen=True)
class Verb:
    """One verb: what it does, and two commands as examples. `flags` makes of its arguments the flags that it stands
    for, or raises ConfigError; `sections` names those of edge/sections.py that it takes, the main ones first. Any other
    verb has a `target`, "module:function", which takes the arguments and returns the status. With `parts`, its first
    argument names a command."""

    does: str
    examples: tuple[str, str]
    takes: str = "[FLAGS]"
    flags: Callable[[Sequence[str]], list[str]] | None = None
    sections: tuple[str, ...] = ()
    target: str = ""
    parts: bool = False

    def run(self, arguments: Sequence[str]) -> int:
        """Run the target; returns its exit status."""
        module, _, function = self.target.partition(":")
        return int(getattr(importlib.import_module(module), function)(arguments))


RUN_SECTIONS = (
    "QuestionSettings",
    "RenderSettings",
    "ModelSettings",
    "ScheduleSettings",
    "OutputSettings",
    "ControlSettings",
    "ServerSettings",
    "PlaySettings",
    "ClusterSettings",
)
"""What a run of many questions takes, the main sections first."""
ABOUT = """\
Let a vision-language model explore 3D scans of rooms and answer spatial questions.

Choose what to run by a verb, or by --batch (many questions), --ply with --question (one question about one scan),
--demo (generated rooms and the included small model) or --continue (an earlier run)."""


def _ask(arguments: Sequence[str]) -> list[str]:
    words, flags = _words_and_flags(arguments)
    if not words or len(words) + ("--question" in flags) > 2:
        raise ConfigError(f"ask takes a scan, and a question in quotes, then flags: {VERBS['ask'].examples[0]}")
    scan, *question = words
    return ["--ply", scan, *(["--question", *question] if question else []), *flags]


def _resume(arguments: Sequence[str]) -> list[str]:
    runs, flags = _words_and_flags(arguments)
    if len(runs) > 1:
        raise ConfigError(f"resume takes one run, got {' '.join(runs)}: resume one after the other")
    return ["--continue", *(runs or ["recent"]), *flags]


def _only_flags(verb: str, *stands_for: str) -> Callable[[Sequence[str]], list[str]]:
    def flags(arguments: Sequence[str]) -> list[str]:
        words, _ = _words_and_flags(arguments)
        if words:
            raise ConfigError(f"{verb} takes flags, not {words[0]}, as in: {VERBS[verb].examples[1]}")
        return [*stands_for, *arguments]

    return flags


def _words_and_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    first = next((index for index, each in enumerate(arguments) if each.startswith("-")), len(arguments))
    return list(arguments[:first]), list(arguments[first:])


def _version(arguments: Sequence[str]) -> int:
    print(f"roomscout {__version__}")
    return 0


VERBS = {
    "ask": Verb(
        "Ask about one scan, and show each turn; without a question, ask for one after another.",
        (
            'roomscout ask room.ply "How many chair(s) are in this room?" --model embedded',
            "roomscout ask room.ply --model embedded",
        ),
        "SCAN [QUESTION] [FLAGS]",
        _ask,
        (*RUN_SECTIONS[1:7], "WhatToRun"),
    ),
    "eval": Verb(
        "Answer the questions of a benchmark or a file, many at a time, and score them.",
        (
            "roomscout eval --scan-root scans --max-batched-turns 6",
            "roomscout eval --questions rooms/questions.jsonl --scan-root rooms --model embedded",
        ),
        flags=_only_flags("eval", "--batch"),
        sections=RUN_SECTIONS,
    ),
    "play": Verb(
        "Answer the questions of a run yourself, or have people do so, in a browser: a person in place of the model.",
        (
            "roomscout play --questions rooms/questions.jsonl --scan-root rooms --num-questions 4",
            "roomscout play --benchmark rooms --num-questions 20 --annotator anna ben --samples 2",
        ),
        flags=_only_flags("play", "--batch", "--policy", "human"),
        sections=(*RUN_SECTIONS[:2], *RUN_SECTIONS[3:6], "PlaySettings"),
    ),
    "resume": Verb(
        "Continue a run where it stopped: the newest, or the one in a folder.",
        ("roomscout resume", "roomscout resume runs/first --retry-failed"),
        "[RUN] [FLAGS]",
        _resume,
        ("WhatToRun", *RUN_SECTIONS[1:]),
    ),
    "plan": Verb(
        "Print the size, memory and batch size of a run without starting it.",
        ("roomscout plan --scan-root scans", "roomscout plan --scan-root scans --device cpu --model embedded"),
        flags=_only_flags("plan", "--plan"),
        sections=(*RUN_SECTIONS, "WhatToRun"),
    ),
    "check": Verb(
        "Print how many questions have a scan.",
        ("roomscout check --scan-root scans", "roomscout check --questions rooms/questions.jsonl --scan-root rooms"),
        flags=_only_flags("check", "--check-data"),
        sections=RUN_SECTIONS[:2],
    ),
    "check-model": Verb(
        "Tell what a model costs and reuses here, and with --run whether it works.",
        ("roomscout check-model Qwen/Qwen3-VL-8B-Instruct", "roomscout check-model embedded --run"),
        "NAME|FOLDER [FLAGS]",
        target="roomscout.command.check_model:main",
    ),
    "demo": Verb(
        "Compare the included small model, with and without sight, on four generated rooms.",
        ("roomscout demo", "roomscout demo --num-questions 8 --log-root demo_runs"),
        flags=_only_flags("demo", "--demo"),
        sections=RUN_SECTIONS[:5],
    ),
    "preview": Verb(
        "Draw the first view and a plan of scans without a model, with their sizes and what looks wrong.",
        ("roomscout preview room.ply", "roomscout preview --questions rooms/questions.jsonl --scan-root rooms"),
        "[SCAN...] [FLAGS]",
        target="roomscout.command.preview:main",
    ),
    "rooms": Verb(
        "Write procedural rooms and questions about them.",
        ("roomscout rooms rooms --rooms 1", "roomscout rooms noisy --rooms 8 --noise 0.01 --holes 5"),
        "FOLDER [FLAGS]",
        target="roomscout.rooms.command:main",
    ),
    "report": Verb(
        "Show a run in a browser: scores, plots, all questions, and each one's views and path on a map.",
        ("roomscout report runs/first", "roomscout report runs/first --embed --out to_mail.html"),
        "[RUN] [FLAGS]",
        target="roomscout.analysis.report.command:main",
    ),
    "serve": Verb(
        "Show the report of a run in a browser while the run goes on, or all runs of a folder.",
        ("roomscout serve runs/first", "roomscout serve runs --port 9000"),
        "[RUN] [FLAGS]",
        target="roomscout.analysis.serve.command:main",
    ),
    "replay": Verb(
        "Show one answer of a run in 3D: the scan, the camera's path, what each view saw, and the conversation.",
        ("roomscout replay runs/first q036", "roomscout replay runs/first q036 --out to_mail.html"),
        "[RUN] Q [FLAGS]",
        target="roomscout.analysis.replay.command:main",
    ),
    "merge": Verb(
        "Make one run of the parts that --shard answered.",
        ("roomscout merge merged runs/*_shard*of8", "roomscout merge sofar runs/*_shard*of8 --partial"),
        "[RUN] PART... [FLAGS]",
        target="roomscout.command.merging:main",
    ),
    "wrong": Verb(
        "List the answers of a run that are wrong or partly right, worst first.",
        ("roomscout wrong runs/first", "roomscout wrong runs/first --type object_counting --scene scene0011_00"),
        "[RUN] [FLAGS]",
        target="roomscout.analysis.wrong:main",
    ),
    "compare": Verb(
        "Compare runs over the same questions: differences with intervals, and the questions that flipped.",
        ("roomscout compare runs/small runs/large", "roomscout compare runs/free runs/one_view --even-if steps"),
        "RUN RUN... [FLAGS]",
        target="roomscout.analysis.compare.command:main",
    ),
    "study": Verb(
        "Run a whole comparison, such as a model against its controls, and write a table and a page; also resumes it.",
        ("roomscout study controls studies/controls --demo", "roomscout study budget studies/budget --scan-root scans"),
        "PRESET FOLDER [FLAGS]",
        target="roomscout.command.studies:main",
    ),
    "leaderboard": Verb(
        "Make a table of runs with score, interval, protocol and cost, in Markdown and CSV.",
        ("roomscout leaderboard runs/*_batched", "roomscout leaderboard runs/*_batched --out board.md board.csv"),
        "RUN... [FLAGS]",
        target="roomscout.analysis.compare.leaderboard:main",
    ),
    "failures": Verb(
        "Split the wrong answers of a run: those that never saw an object of their question, and those that did.",
        ("roomscout failures runs/first", "roomscout failures runs/first --type object_counting"),
        "[RUN] [FLAGS]",
        target="roomscout.analysis.failures:main",
    ),
    "boxes": Verb(
        "Import the boxes of the objects in scans, after a check that they fit the scans.",
        (
            "roomscout boxes scannet_meta_info_val.json --scan-root scans",
            "roomscout boxes 3d_annotation.json --scan-root scans --out scans/boxes.json",
        ),
        "FILE... [FLAGS]",
        target="roomscout.envs.import_boxes:main",
    ),
    "rescore": Verb(
        "Apply today's parser and scorer to the replies of a run, without a model, and show what changes.",
        ("roomscout rescore runs/first", "roomscout rescore runs/first --out rescored.csv"),
        "[RUN] [FLAGS]",
        target="roomscout.command.reports:rescore",
    ),
    "export": Verb(
        "Write the answers of a run for inspect or for fine-tuning.",
        ("roomscout export runs/first --to inspect", "roomscout export runs/first --to messages --out train.jsonl"),
        "[RUN] --to FORMAT [FLAGS]",
        target="roomscout.analysis.exports.command:main",
    ),
    "train": Verb(
        "Train a model on the conversations of runs, or by the score of its own episodes.",
        (
            "roomscout train sft runs/first --model embedded --output training_runs/sft",
            "roomscout train grpo --model embedded --output training_runs/grpo",
        ),
        "WHAT [FLAGS]",
        target="roomscout.training.command:main",
        parts=True,
    ),
}

EXAMPLES = tuple(VERBS[name].examples[which] for name, which in (("ask", 0), ("rooms", 0), ("eval", 1), ("resume", 0)))


def overview() -> str:
    """The verbs with what they take, each with a sentence, and examples."""
    usage = {name: f"  {name} {verb.takes.replace('[FLAGS]', '')}".rstrip() for name, verb in VERBS.items()}
    width = 2 + max(map(len, usage.values()))
    columns = max(shutil.get_terminal_size().columns, width + 40)
    lines = ["Verbs (help VERB has examples):"]
    for name, taken in usage.items():
        begin = f"{taken:<{width}}"
        indent = " " * width
        lines.append(textwrap.fill(VERBS[name].does, columns, initial_indent=begin, subsequent_indent=indent))
    command = f"python {SCRIPT.name}" if Path(sys.argv[0]).name == SCRIPT.name else "roomscout"
    return "\n".join([*lines, "", "Examples:", *(f"  {command}{each.removeprefix('roomscout')}" for each in EXAMPLES)])


def show_all_flags(defaults: Mapping[str, Any]) -> int:
    """Print the verbs and the help of all flags, with these defaults; returns the exit status."""
    from roomscout.edge.flags import flags_parser

    flags_parser(description=f"{ABOUT}\n\n{overview()}", defaults=defaults).print_help()
    return 0


def show_help(name: str) -> int:
    """Print the help of a verb, for another command its own with the examples first; returns the exit status."""
    verb = VERBS[name]
    about = f"{verb.does}\n\n  {verb.examples[0]}\n  {verb.examples[1]}"
    if verb.target:
        print(f"{about}\n")
        return verb.run(["--help"])
    from roomscout.edge import sections
    from roomscout.edge.flags import flags_parser
    from roomscout.edge.settings import DEFAULTS

    usage = f"roomscout {name} {verb.takes.removesuffix('[FLAGS]')}".strip()
    flags_parser([getattr(sections, each) for each in verb.sections], usage, about, DEFAULTS).print_help()
    return 0


def read_verb(argv: Sequence[str]) -> tuple[list[str], Callable[[Sequence[str]], int] | None]:
    """The flags that a command line stands for, and None; or the arguments of another command, and that command. A
    command line without a verb stands for itself. Raises ConfigError for an unknown verb or a missing argument."""
    if not argv or argv[0].startswith("-"):
        return list(argv), _version if "--version" in argv else None
    name, *arguments = argv
    if name == "version":
        return [], _version
    if name == "help":
        words, _ = _words_and_flags(arguments)
        if not words:
            return ["--help"], None
        name = words[0]
        arguments = ["--help"]
    if name not in VERBS:
        raise ConfigError(f"there is no verb {name}; {did_you_mean(name.lower(), VERBS, f'use {either(VERBS)}')}")
    verb = VERBS[name]
    if {"-h", "--help"} & set(arguments) and not (verb.parts and _words_and_flags(arguments)[0]):
        return [], lambda _: show_help(name)
    return (verb.flags(arguments), None) if verb.flags else (arguments, verb.run)
