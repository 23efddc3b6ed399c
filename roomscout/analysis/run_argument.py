"""What the verbs that read a run have in common: the argument RUN, which of its answers, and how lines are printed."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from roomscout.base.text import escaped, listed
from roomscout.runs import LOG_ROOT, RunError
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.reader import named_run, newest_run, run_folders
from roomscout.runs.records import ResultRow


def add_run(parser: argparse.ArgumentParser, what: str = "a run folder, also of a run in progress") -> None:
    """Add RUN as `run`, which may be left out, --log-root as `log_root`, and --allow-code."""
    parser.add_argument(
        "run", metavar="RUN", type=Path, nargs="?",
        help=f"{what}, or the name of a run below --log-root; by default the newest run there",
    )  # fmt: skip
    add_log_root(parser)
    add_allow_code(parser)


def add_log_root(parser: argparse.ArgumentParser) -> None:
    """Add --log-root as `log_root`."""
    parser.add_argument(
        "--log-root", metavar="DIR", type=Path, default=LOG_ROOT, help="the folder of the runs (%(default)s)"
    )


def chosen_run(given: argparse.Namespace) -> Path:
    """The folder that RUN names, or the newest run below --log-root, which is printed to stderr; raises RunError if
    there is none. --allow-code executes the code that it, or each run in it, names as its benchmark."""
    log_root = given.log_root.expanduser()
    if given.run is not None:
        folder = named_run(given.run, log_root)
    else:
        folder = newest_run(log_root)
        sys.stderr.write(escaped(f"The newest run: {folder}") + "\n")
    if given.allow_code:
        runs = [folder] if (folder / "run.json").exists() else run_folders(folder)
        load_code_of(runs)
    return folder


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add RUN and --log-root (see `add_run`), and --type and --scene as `types` and `scenes`."""
    add_run(parser)
    parser.add_argument("--type", dest="types", nargs="+", default=(), metavar="TYPE", help="only these question types")
    parser.add_argument("--scene", dest="scenes", nargs="+", default=(), metavar="SCENE", help="only these scenes")


def chosen_rows(rows: Sequence[ResultRow], types: Sequence[str], scenes: Sequence[str]) -> list[ResultRow]:
    """The rows of these types and scenes, all if none are given; raises RunError naming the flag if none has one."""
    _require_present("--type", types, [row.question_type for row in rows])
    _require_present("--scene", scenes, [row.scene_name for row in rows])
    return [
        row for row in rows if (not types or row.question_type in types) and (not scenes or row.scene_name in scenes)
    ]


def print_lines(lines: Iterable[str]) -> None:
    """Write lines to stdout at once."""
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    sys.stdout.flush()


def _require_present(flag: str, wanted: Sequence[str], present: Sequence[str]) -> None:
    if absent := [name for name in wanted if name not in present]:
        known = listed(sorted(set(present))) or "no finished question"
        raise RunError(f"{flag}: no finished question of the run has {listed(absent)}; it has {known}")
