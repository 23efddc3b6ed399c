"""The verb `roomscout export`: writes the finished answers of a run in the format of another tool."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roomscout.analysis.exports import inspect_log, messages
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.verbs import add_run, chosen_run, require_free, writing
from roomscout.base.text import log_to_stream
from roomscout.base.verbs import Parser
from roomscout.runs import RunError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Format:
    """A format: what writes it, what the default name of its file adds to that of the run, and what reads it."""

    write: Callable[[RunContents, Path], tuple[int, list[str]]]
    ending: str
    reader: str


FORMATS = {
    "inspect": Format(inspect_log.write, ".eval", "inspect view (needs the package inspect-ai)"),
    "messages": Format(messages.write_as_text, "_messages.jsonl", "fine-tuning with ms-swift or LLaMA-Factory"),
    "trl": Format(messages.write_as_parts, "_trl.jsonl", "fine-tuning with TRL"),
}


def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0. Raises RunError if nothing was written."""
    parser = Parser(
        prog="roomscout export",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="formats:\n" + "\n".join(f"  {name:<12}{form.reader}" for name, form in FORMATS.items()),
    )
    add_run(parser)
    parser.add_argument("--to", choices=FORMATS, required=True, help="the format, see below")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file (in this folder, named after RUN)")
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    options = parser.parse_intermixed_args(arguments)
    form = FORMATS[options.to]
    log_to_stream(sys.stdout)
    run = RunContents.read(chosen_run(options).absolute())
    out = (options.out or Path(f"{run.folder.name}{form.ending}")).expanduser().absolute()
    require_free(out, options.force)
    if not run.rows:
        raise RunError(f"{run.folder} has no finished question to export: resume it")
    with writing(out) as draft:
        answers, remarks = form.write(run, draft)
    if run.pending:
        log.warning("%d answers of the run are not finished, and not exported", run.pending)
    for sentence in remarks:
        log.warning("%s", sentence)
    log.info("%d answers, for %s: %s", answers, form.reader, out)
    return 0
