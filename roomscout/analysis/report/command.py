"""The verb `roomscout report`: the page of a run, or what a paper takes from it."""

import logging
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.conditions import value_in_words
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pdf import PDF_NEEDS, write_plot
from roomscout.analysis.report.scores import hardware_in_words
from roomscout.analysis.report.writer import log_report, page_values, write_report
from roomscout.analysis.verbs import TABLE_SUFFIXES, add_run, chosen_run, require_own_place, table_text, write_text
from roomscout.base.extras import require
from roomscout.base.tables import Table
from roomscout.base.text import RESULT, counted, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.runs import RunError

log = logging.getLogger(__name__)

TABLES = {"scores": "Scores by task", "datasets": "Scores by dataset", "people": "Answers by person"}
"""The tables of a page that a paper takes, with their captions."""


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
        "--plots", metavar="DIR", type=Path,
        help="write into this folder, instead of a page: each plot as SVG and PDF, and as Markdown, CSV and LaTeX "
        "the tables and an appendix with all conditions",
    )  # fmt: skip
    given = parser.parse_intermixed_args(arguments)
    log_to_stream(sys.stdout)
    folder = chosen_run(given)
    if given.plots is None:
        log_report(write_report(folder, given.out and given.out.expanduser(), given.embed))
    elif given.out or given.embed:
        raise RunError("--plots writes no page: leave out --out and --embed")
    else:
        out = given.plots.expanduser()
        log.log(RESULT, "Written to %s: %s", out, write_paper(folder, out))
    return 0


def write_paper(run_folder: Path, out: Path) -> str:
    """Write the plots of a run and its tables into a folder; returns what they are in words. Raises RunError, also
    without matplotlib, for a file, or for a place in a run whose name does not begin with "report"."""
    require("--plots", PDF_NEEDS, error=RunError)
    require_own_place(out, "report", "--plots")
    run = RunContents.read(run_folder.absolute())
    values = page_values(run, [run.answer(episode).entry for episode in run.episodes])
    names = [re.sub(r"\W+", "-", plot.title.lower()).strip("-") for plot in values["plots"]]
    for place, (name, plot) in enumerate(zip(names, values["plots"], strict=True)):
        write_plot(plot.drawing, out / (f"{name}-{place}" if name in names[:place] else name))
    tables = {name: (values[name], caption) for name, caption in TABLES.items() if values[name]}
    tables["appendix"] = (appendix_of(run), "Conditions, versions, hardware and cost")
    for name, (table, caption) in tables.items():
        for suffix in TABLE_SUFFIXES:
            write_text(out / f"{name}{suffix}", table_text(table, suffix, f"{caption}: {values['title']}"))
    return f"{counted(len(names), 'plot')} (.svg, .pdf), {counted(len(tables), 'table')} ({', '.join(TABLE_SUFFIXES)})"


def appendix_of(run: RunContents) -> Table:
    """All that run.json has of questions, what answered, conditions, scoring and versions, then what the hardware did
    and what the run cost."""
    facts = run.facts
    summary = run.summary
    versions = facts.last_versions
    parts: dict[str, dict[str, Any]] = {
        "questions": {"number": facts.questions, "SHA-256": facts.questions_sha256},
        "answerer": facts.answerer,
        "condition": facts.conditions,
        "scoring": facts.scoring | ({"intervals": summary.intervals.method} if summary.intervals else {}),
        "version": {"commit": versions.git_revision, "checkpoint": versions.model_revision, "Python": versions.python},
        "package": versions.packages,
        "hardware": dict(hardware_in_words(summary.hardware)),
        "process": max((each.to_json() for each in summary.sessions), key=lambda each: each["seconds"], default={}),
        "cost": summary.cost.to_json() if summary.cost else {},
    }
    rows = [
        [part, name.replace("_", " "), value_in_words(value)]
        for part, of_part in parts.items()
        for name, value in of_part.items()
        if not isinstance(value, dict)  # such as the costs of each task
    ]
    return Table(["part", "name", "value"], rows, left=range(3))
