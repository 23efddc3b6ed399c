"""The verb export: writes the finished questions of a run in the format of another tool."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from roomscout.analysis.episodes import open_run, require_outside
from roomscout.analysis.exports import inspect_log, lmms_eval, messages, vlmevalkit
from roomscout.analysis.exports.finished_run import FinishedRun
from roomscout.data.text import escaped, log_to_stream
from roomscout.runs import RunError


@dataclass(frozen=True)
class Format:
    """A format: what writes it and returns remarks, the end of its file's default name, and who reads it."""

    write: Callable[[FinishedRun, Path], list[str]]
    ending: str
    reader: str


FORMATS = {
    "inspect": Format(inspect_log.write, ".eval", "inspect view"),
    "lmms-eval": Format(lmms_eval.write, "_samples_vsibench.jsonl", "lmms-eval, task vsibench"),
    "vlmevalkit": Format(vlmevalkit.write, "_VSIBench.xlsx", "VLMEvalKit, dataset VSIBench (also .tsv)"),
    "messages": Format(messages.write, "_messages.jsonl", "fine-tuning with ms-swift, LLaMA-Factory or TRL"),
}


def main(arguments: Sequence[str], prog: str = "roomscout export") -> int:
    """Run the command; returns 0, or 2 after printing why nothing was written."""
    options = _parser(prog).parse_args(arguments)
    log_to_stream(sys.stdout)
    chosen = FORMATS[options.to]
    try:
        reader = open_run(options.run)
        out = options.out or Path(f"{reader.folder.name}{chosen.ending}")
        require_outside(reader.folder, out)
        run = FinishedRun.read(reader)
        remarks = chosen.write(run, out)
    except RunError as error:
        sys.stderr.write(escaped(f"error: {error}") + "\n")
        return 2
    except OSError as error:
        reason = error.strerror or error
        sys.stderr.write(escaped(f"error: {out} cannot be written ({reason}): choose another --out") + "\n")
        return 2
    if run.pending:
        logging.warning("The run is unfinished: %d answers are pending and not exported", run.pending)
    for remark in remarks:
        logging.info("%s", remark)
    logging.info("%d finished answers, for %s: %s", len(run.episodes), chosen.reader, out.absolute())
    return 0


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Write the finished questions of a run in the format of another tool. The run is not changed.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="formats:\n" + "\n".join(f"  {name:<12}{each.reader}" for name, each in FORMATS.items()),
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run folder; the run may be in progress")
    parser.add_argument("--to", choices=FORMATS, required=True, help="the format, see below")
    parser.add_argument("--out", type=Path, metavar="FILE", help="the file to write; by default named after RUN, here")
    return parser
