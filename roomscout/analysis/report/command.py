"""The verb `roomscout report`."""

import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.analysis.report.paper import write_paper
from roomscout.analysis.report.writer import log_report, write_report
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
    parser.add_argument(
        "--plots",
        metavar="DIR",
        type=Path,
        help="instead of the page, write each plot as SVG and PDF, and the tables and an appendix with all conditions as "
        "Markdown, CSV and LaTeX, into this folder",
    )
    given = parser.parse_intermixed_args(arguments)
    log_to_stream(sys.stdout)
    folder = chosen_run(given)
    if given.plots is not None:
        out = given.plots.expanduser()
        log.log(RESULT, "Written to %s: %s", out, write_paper(folder, out))
        return 0
    log_report(write_report(folder, given.out and given.out.expanduser(), given.embed))
    return 0
