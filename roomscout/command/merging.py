"""The verb `merge`: makes one run of the parts that --shard made."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.verbs import add_allow_code
from roomscout.base.text import log_to_stream
from roomscout.base.verbs import Parser
from roomscout.command.reports import split_after_run, write_after_run
from roomscout.runs import RunError
from roomscout.runs.export import closing_lines
from roomscout.runs.merge import merge
from roomscout.runs.reader import RunReader, load_code_of


def main(arguments: Sequence[str]) -> int:
    """Merge parts, and write what was in view and the report of the merged run; returns the exit status."""
    parser = Parser(prog="roomscout merge")
    parser.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH",
        help="the folder to create (by default beside the parts, with _merged in its name), then those of the parts",
    )  # fmt: skip
    parser.add_argument(
        "--partial", action="store_true",
        help="allow missing parts and unfinished questions; the run is labelled unfinished and --continue resumes it",
    )  # fmt: skip
    add_allow_code(parser)
    options = parser.parse_args(arguments)
    log_to_stream(sys.stdout)
    out, parts = out_and_parts(options.paths)
    if options.allow_code:
        load_code_of(parts)
    summary = merge(out, parts, options.partial)
    reader = RunReader(out)
    for line in closing_lines(out, reader.facts, summary, reader.rows, reader.benchmark):
        logging.info("%s", line)
    split_after_run(out)
    write_after_run(out)
    return 0


def out_and_parts(paths: Sequence[Path]) -> tuple[Path, Sequence[Path]]:
    """The folder to create and those of the parts; raises RunError if there are no parts. If the first path is a part
    as well, the folder has its name without _shard1of8, and _merged."""
    first, *others = paths
    if (first / "run.json").is_file() and (part := RunReader(first).facts.part) is not None:
        name = first.name.removesuffix(f"_shard{part.number}of{part.of}")
        return first.with_name(f"{name}_merged"), paths
    if not others:
        raise RunError(f"{first} is no part of a run: merge takes the folders of the parts")
    return first, others
