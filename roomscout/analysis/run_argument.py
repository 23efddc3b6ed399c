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


def chosen_run(run: Path | None, log_root: Path, allow_code: bool) -> Path:
    """The folder that RUN names, or the newest run below `log_root`, which is then printed to stderr.

    `allow_code` executes the code that this run, or each run in this folder, names as its benchmark. Raises RunError if
    there is none.
    """
    log_root = log_root.expanduser()
    if run is not None:
        folder = named_run(run, log_root)
    else:
        folder = newest_run(log_root)
        sys.stderr.write(escaped(f"The newest run: {folder}") + "\n")
    if allow_code:
        load_code_of([folder] if (folder / "run.json").exists() else run_folders(folder))
    return folder
