"""The verb `roomscout report`."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.report.writer import Written, write_report
from roomscout.analysis.verbs import add_run, chosen_run
from roomscout.base.text import RESULT, log_to_stream
from roomscout.base.verbs import Parser

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run the verb; returns 0. Raises RunError if there is no report."""
    parser = Parser(prog="roomscout report")
    add_run(parser)
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page to write (RUN/report.html)")
    parser.add_argument(
        "--embed",
        action="store_true",
        help="write one file with all data and views, to mail (RUN/report_embedded.html)",
    )
    given = parser.parse_intermixed_args(arguments)
    log_to_stream(sys.stdout)
    folder = chosen_run(given)
    written = write_report(folder, given.out and given.out.expanduser(), given.embed)
    log_report(written)
    return 0


def log_report(written: Written) -> None:
    """Log where a report is, and how much of the run it could not show."""
    if written.missing:
        log.warning("The report lacks what could not be read: %s", written.missing[0])
        if len(written.missing) > 1:
            log.warning("It names %d more at its top and on the pages of the questions", len(written.missing) - 1)
    log.log(RESULT, "Report: %s", written.path)
