"""The argument RUN of the verbs that read a run."""

import argparse
import sys
from pathlib import Path

from roomscout.base.text import escaped
from roomscout.runs import LOG_ROOT
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.reader import named_run, newest_run, run_folders


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
    """The folder that RUN names, or the newest run below --log-root, which is then printed to stderr.

    --allow-code executes the code that this run, or each run in this folder, names as its benchmark. Raises RunError if
    there is none.
    """
    log_root = given.log_root.expanduser()
    if given.run is not None:
        folder = named_run(given.run, log_root)
    else:
        folder = newest_run(log_root)
        sys.stderr.write(escaped(f"The newest run: {folder}") + "\n")
    if given.allow_code:
        load_code_of([folder] if (folder / "run.json").exists() else run_folders(folder))
    return folder
