"""The flag --allow-code of the verbs that read a run: they execute code that a run names only with it."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import QuestionError
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader


def add_allow_code(parser: argparse.ArgumentParser) -> None:
    """Add --allow-code as `allow_code`."""
    parser.add_argument(
        "--allow-code",
        action="store_true",
        help="execute the Python file or module that a run names as its benchmark: to compute what run.json does not "
        "describe, such as scores of your own kind of answer; only for runs of people you trust",
    )


def load_code_of(folders: Iterable[Path]) -> None:
    """Execute the code that runs name as their benchmark, which readers of this process then use; raises RunError."""
    for folder in folders:
        try:
            find_benchmark(RunReader(folder).facts.setting("benchmark"))
        except QuestionError as error:
            raise RunError(f"{folder}: {error}") from None
