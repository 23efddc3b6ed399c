"""The verbs of the command, such as `roomscout ask`: each is short for flags, or for another command."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

from roomscout import __version__
from roomscout.agent.config import ConfigError
from roomscout.data.text import escaped


@dataclass(frozen=True)
class Verb:
    """One verb: what it does, two commands as examples, and what runs.

    `flags` makes the flags that the verb stands for from its arguments, and raises ConfigError; `command` is another
    command that takes the arguments itself, and returns its exit status.
    """

    does: str
    examples: tuple[str, str]
    takes: str = "[FLAGS]"
    flags: Callable[[Sequence[str]], list[str]] | None = None
    command: Callable[[Sequence[str]], int] | None = None


def _ask(arguments: Sequence[str]) -> list[str]:
    if not arguments or arguments[0].startswith("-"):
        raise ConfigError('ask takes a scan and a question, then flags: roomscout ask room.ply "How many chairs?"')
    scan, *rest = arguments
    if not rest or rest[0].startswith("-"):
        return ["--ply", scan, "--interactive", *rest]
    question, *flags = rest
    return ["--ply", scan, "--question", question, *flags]


def _resume(arguments: Sequence[str]) -> list[str]:
    named = bool(arguments) and not arguments[0].startswith("-")
    return ["--continue", arguments[0] if named else "recent", *arguments[named:]]


def _rooms(arguments: Sequence[str]) -> int:
    from roomscout.data.rooms.__main__ import main

    return main(arguments, prog="roomscout rooms")


def _merge(arguments: Sequence[str]) -> int:
    from roomscout.reports import complete_merged
    from roomscout.runs.__main__ import main

    return main(["merge", *arguments], prog="roomscout", then=complete_merged)


def _report(arguments: Sequence[str]) -> int:
    from roomscout.analysis.report.command import main
    from roomscout.reports import repeat_command_of

    return main(arguments, repeat_command_of)


def _serve(arguments: Sequence[str]) -> int:
    from roomscout.analysis.serve.command import main
    from roomscout.reports import repeat_command_of

    return main(arguments, repeat_command_of)


def _replay(arguments: Sequence[str]) -> int:
    from roomscout.analysis.replay.command import main

    return main(arguments)


def _preview(arguments: Sequence[str]) -> int:
    from roomscout.agent.preview import main

    return main(arguments)


def _wrong(arguments: Sequence[str]) -> int:
    from roomscout.analysis.wrong import main

    return main(arguments)


def _compare(arguments: Sequence[str]) -> int:
    from roomscout.agent.resuming import answer_settings
    from roomscout.analysis.compare.command import main

    return main(arguments, answer_settings())


def _leaderboard(arguments: Sequence[str]) -> int:
    from roomscout.agent.resuming import answer_settings
    from roomscout.analysis.compare.leaderboard import main

    return main(arguments, answer_settings())


def _study(arguments: Sequence[str]) -> int:
    from roomscout.analysis.study.command import main
    from roomscout.studies import StudiedCommand

    return main(arguments, StudiedCommand())


def _failures(arguments: Sequence[str]) -> int:
    from roomscout.analysis.failures import main

    return main(arguments)


def _export(arguments: Sequence[str]) -> int:
    from roomscout.analysis.exports.command import main

    return main(arguments)


def _boxes(arguments: Sequence[str]) -> int:
    from roomscout.envs.import_boxes import main

    return main(arguments)


def _rescore(arguments: Sequence[str]) -> int:
    from roomscout.agent.policies.replies import parse_action
    from roomscout.analysis.rescore import main
    from roomscout.judges import in_words, open_judge
    from roomscout.models import ModelError
    from roomscout.reports import renew_report

    try:
        return main(arguments, parse_action, open_judge=open_judge, when_judged=renew_report)
    except ModelError as error:
        sys.stderr.write(escaped(f"error: {in_words(error)}") + "\n")
        return 2


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
    ),
    "eval": Verb(
        "Answer the questions of a benchmark or a file, many at a time, and score them.",
        (
            "roomscout eval --scan-root scans --max-batched-turns 6",
            "roomscout eval --questions rooms/questions.jsonl --scan-root rooms --model embedded",
        ),
        flags=lambda arguments: ["--batch", *arguments],
    ),
    "resume": Verb(
        "Continue a run where it stopped: the newest, or the one in a folder.",
        ("roomscout resume", "roomscout resume experiment_logs/20261123_211500_batched --retry-failed"),
        "[RUN] [FLAGS]",
        _resume,
    ),
    "plan": Verb(
        "Print the size, memory and expected time of a run without starting it.",
        ("roomscout plan --scan-root scans", "roomscout plan --plan-device h100 --model Qwen/Qwen3-VL-8B-Instruct"),
        flags=lambda arguments: ["--plan", *arguments],
    ),
    "check": Verb(
        "Print how many questions have a scan.",
        ("roomscout check --scan-root scans", "roomscout check --questions rooms/questions.jsonl --scan-root rooms"),
        flags=lambda arguments: ["--check-data", *arguments],
    ),
    "preview": Verb(
        "Draw the first view and a plan of scans without a model, with their sizes and what looks wrong.",
        ("roomscout preview room.ply", "roomscout preview --questions rooms/questions.jsonl --scan-root rooms"),
        "[SCAN...] [FLAGS]",
        command=_preview,
    ),
    "rooms": Verb(
        "Write procedural rooms and questions about them.",
        ("roomscout rooms rooms --rooms 1", "roomscout rooms noisy --rooms 8 --noise 0.01 --holes 5"),
        "FOLDER [FLAGS]",
        command=_rooms,
    ),
    "report": Verb(
        "Show a run in a browser: scores, plots, all questions, and each one's views and path on a map.",
        (
            "roomscout report experiment_logs/20261123_211500_batched",
            "roomscout report experiment_logs/20261123_211500_batched --embed --out to_mail.html",
        ),
        "RUN [FLAGS]",
        command=_report,
    ),
    "serve": Verb(
        "Show the report of a run in a browser while the run goes on, or all runs of a folder.",
        ("roomscout serve experiment_logs/20261123_211500_batched", "roomscout serve experiment_logs --port 9000"),
        "RUN [FLAGS]",
        command=_serve,
    ),
    "replay": Verb(
        "Show one answer of a run in 3D: the scan, the camera's path, what each view saw, and the conversation.",
        (
            "roomscout replay experiment_logs/20261123_211500_batched q036",
            "roomscout replay experiment_logs/20261123_211500_batched q036 --out to_mail.html",
        ),
        "RUN Q [FLAGS]",
        command=_replay,
    ),
    "merge": Verb(
        "Make one run of the parts that --shard answered.",
        ("roomscout merge merged runs/*_shard*of8", "roomscout merge sofar runs/*_shard*of8 --partial"),
        "RUN PART... [FLAGS]",
        command=_merge,
    ),
    "wrong": Verb(
        "List the answers of a run that are wrong or partly right, worst first.",
        (
            "roomscout wrong experiment_logs/20261123_211500_batched",
            "roomscout wrong experiment_logs/20261123_211500_batched --type object_counting --scene scene0011_00",
        ),
        "RUN [FLAGS]",
        command=_wrong,
    ),
    "compare": Verb(
        "Compare runs over the same questions: differences with intervals, and the questions that flipped.",
        (
            "roomscout compare runs/small runs/large --out small_large.html",
            "roomscout compare runs/free runs/one_view --even-if steps",
        ),
        "RUN RUN... [FLAGS]",
        command=_compare,
    ),
    "study": Verb(
        "Run a whole comparison, such as a model against its controls, and write a table and a page; also resumes it.",
        (
            "roomscout study controls studies/controls --demo",
            "roomscout study budget studies/budget --scan-root scans --model Qwen/Qwen3-VL-8B-Instruct",
        ),
        "PRESET FOLDER [FLAGS]",
        command=_study,
    ),
    "leaderboard": Verb(
        "Make a table of runs with score, interval, protocol and cost, in Markdown and CSV.",
        ("roomscout leaderboard runs/*_batched", "roomscout leaderboard runs/*_batched --out board.md board.csv"),
        "RUN... [FLAGS]",
        command=_leaderboard,
    ),
    "failures": Verb(
        "Split the wrong answers of a run: those that never saw an object of their question, and those that did.",
        (
            "roomscout failures experiment_logs/20261123_211500_batched",
            "roomscout failures experiment_logs/20261123_211500_batched --type object_counting",
        ),
        "RUN [FLAGS]",
        command=_failures,
    ),
    "boxes": Verb(
        "Import the boxes of the objects in scans, after a check that they fit the scans.",
        (
            "roomscout boxes scannet_meta_info_val.json --scan-root scans",
            "roomscout boxes 3d_annotation.json --scan-root scans --out scans/boxes.json",
        ),
        "FILE... [FLAGS]",
        command=_boxes,
    ),
    "rescore": Verb(
        "Apply today's parser and scorer to the replies of a run, without a model, and show what changes.",
        (
            "roomscout rescore experiment_logs/20261123_211500_batched",
            "roomscout rescore experiment_logs/20261123_211500_batched --out rescored.csv",
        ),
        "RUN [FLAGS]",
        command=_rescore,
    ),
    "export": Verb(
        "Write the answers of a run for inspect, lmms-eval, VLMEvalKit or fine-tuning.",
        (
            "roomscout export experiment_logs/20261123_211500_batched --to inspect",
            "roomscout export experiment_logs/20261123_211500_batched --to messages --out train.jsonl",
        ),
        "RUN --to FORMAT [FLAGS]",
        command=_export,
    ),
}


def overview() -> str:
    """The verbs in a line each."""
    width = 2 + max(map(len, VERBS))
    lines = [f"  {name:<{width}}{verb.does}" for name, verb in VERBS.items()]
    return "\n".join(["Verbs (roomscout VERB --help has examples):", *lines])


def show_help(name: str) -> int:
    """Print the help of a verb, for another command its own with the examples first; returns the exit status."""
    verb = VERBS[name]
    print(f"{verb.does}\n\n  {verb.examples[0]}\n  {verb.examples[1]}\n")
    if verb.command is not None:
        return verb.command(["--help"])
    print(f"usage: roomscout {name} {verb.takes}\n\nroomscout --help lists the flags.")
    return 0


def read_verb(argv: Sequence[str]) -> tuple[list[str], Callable[[Sequence[str]], int] | None]:
    """The flags that a command line stands for, and None; or the arguments of another command, and that command.

    A command line without a verb stands for itself. Raises ConfigError for an unknown verb or a missing argument.
    """
    if not argv or argv[0].startswith("-"):
        return list(argv), _version if "--version" in argv else None
    name, *arguments = argv
    if name in ("help", "version"):
        raise ConfigError(f"there is no verb {name}; did you mean --{name}?")
    if name not in VERBS:
        near = get_close_matches(name, VERBS, n=1)
        raise ConfigError(f"there is no verb {name}; " + (f"did you mean {near[0]}?" if near else f"use {_listed()}"))
    if {"-h", "--help"} & set(arguments):
        return [], lambda _: show_help(name)
    verb = VERBS[name]
    return (verb.flags(arguments), None) if verb.flags else (arguments, verb.command)


def _listed() -> str:
    *names, last = VERBS
    return f"{', '.join(names)} or {last}"
