"""Commands on finished runs: python -m roomscout.runs merge OUT PART..."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from roomscout.base.text import log_to_stream
from roomscout.base.verbs import refusing
from roomscout.data.benchmark import BenchmarkError
from roomscout.runs import RunError
from roomscout.runs.allow_code import add_allow_code, load_code_of
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader
from roomscout.scoring.samples import format_samples
from roomscout.scoring.summary import format_summary, reference_lines


@refusing(RunError, BenchmarkError)
def main(
    argv: list[str], prog: str = "python -m roomscout.runs", then: Callable[[Path], None] = lambda folder: None
) -> int:
    """Run a command; returns 0, or 2 after printing an error. Calls `then` with the folder of a merged run."""
    parser = argparse.ArgumentParser(prog=prog, description="Commands on run folders.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    merging = commands.add_parser(
        "merge",
        help="merge the parts of a run that --shard made",
        description="Merge the parts of a run that --shard made into one run. The parts must have equal settings and "
        "the same full question list; they are not changed. Images become hard links if the file system supports them.",
    )
    merging.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH",
        help="the folder to create (by default beside the parts, with _merged in its name), then those of the parts",
    )  # fmt: skip
    merging.add_argument(
        "--partial",
        action="store_true",
        help="allow missing parts and unfinished questions; the run is labelled unfinished and --continue resumes it",
    )
    add_allow_code(merging)
    given = parser.parse_args(argv)
    log_to_stream(sys.stdout)
    out, parts = _out_and_parts(given.paths)
    if given.allow_code:
        load_code_of(parts)
    summary = merge(out, parts, given.partial)
    reader = RunReader(out)
    benchmark = reader.benchmark
    lines = [
        *format_summary(summary, benchmark),
        *format_samples(summary),
        *reference_lines(summary, benchmark, reader.facts.frames),
    ]
    for line in (*lines, f"Run folder: {out}"):
        logging.info("%s", line)
    then(out)
    return 0


def _out_and_parts(paths: Sequence[Path]) -> tuple[Path, Sequence[Path]]:
    """The folder to create and those of the parts; raises RunError if there are no parts.

    If the first path is a part as well, the folder has its name without _shard1of8, and _merged.
    """
    first, *others = paths
    if (first / "run.json").is_file() and (part := RunReader(first).facts.part) is not None:
        name = first.name.removesuffix(f"_shard{part.number}of{part.of}")
        return first.with_name(f"{name}_merged"), paths
    if not others:
        raise RunError(f"{first} is no part of a run: merge takes the folders of the parts")
    return first, others


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
