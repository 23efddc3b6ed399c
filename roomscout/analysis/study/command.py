"""The verb `roomscout study`."""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from roomscout.analysis.outputs import write_text
from roomscout.analysis.report.writer import style_of, templates
from roomscout.analysis.study import tables
from roomscout.analysis.study.cells import MainCommand, finished_runs, only_one, only_one_writes, open_study, run_cells
from roomscout.analysis.study.plots import plot_of
from roomscout.analysis.study.presets import PRESETS
from roomscout.base.text import either, log_to_stream
from roomscout.base.verbs import parser_of
from roomscout.runs import RunError

log = logging.getLogger(__name__)

PAGE, TABLE, CSV = "study.html", "study.md", "study.csv"
"""What a study writes in its folder."""


def main(arguments: Sequence[str], command: MainCommand) -> int:
    """Run the verb; `command` is the main command, which each cell runs. Returns 0; 1 if a question
    failed; else the exit status of the run that stopped, such as 130 after an interrupt. Raises RunError or
    BenchmarkError if the study cannot run, and what `command` raises about flags."""
    presets = "\n".join(f"  {name:<10}{preset.does}" for name, preset in PRESETS.items())
    parser = parser_of(
        "study",
        usage="roomscout study PRESET FOLDER [FLAGS]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Run the cells of a comparison one after the other, and write a table with intervals and a page.\n"
        "The same command resumes: a finished cell is not run again.",
        epilog=f"presets:\n{presets}\n\nAll other flags are those of a run, such as --model, --questions, --scan-root, "
        "--engine and\n--shard; --demo asks about the four rooms of the demo. roomscout --help lists them.",
    )
    parser.add_argument("preset", metavar="PRESET", help=f"{', '.join(PRESETS)}")
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="the folder of the study")
    options = parser.parse_args(arguments[:2])
    flags = arguments[2:]
    log_to_stream(sys.stdout)
    folder = options.folder.expanduser().absolute()
    try:
        if options.preset not in PRESETS:
            raise RunError(f"there is no study {options.preset}; use {either(PRESETS)}")
        changes = command.read(flags, folder)
        study = open_study(folder, options.preset, changes, command)
        with only_one(study, changes.part):
            status = run_cells(study, changes, command)
            if status > 1:
                return status
            with only_one_writes(study, changes.part):
                runs = finished_runs(study, changes, command)
                if runs is None:
                    return status
                results = tables.results_of(study.preset, runs)
                about_model = results.cells[0].answers.about
                title = f"Study of {study.name}: {about_model['policy'] or about_model['model']}"
                write_text(folder / CSV, tables.csv_of(results))
                write_text(folder / TABLE, tables.markdown_of(results, title))
                write_text(folder / PAGE, _page(results, title, folder))
    except KeyboardInterrupt:
        log.warning("Interrupted; to resume, run the same command again.")
        return 130
    for line in [*tables.lines_of(results), f"Written: {folder / PAGE}, {TABLE} and {CSV} beside it"]:
        log.info("%s", line)
    return status


def _page(results: tables.Results, title: str, folder: Path) -> str:
    parts = tables.tables_of(results)
    cells = parts["Cells"]
    linked = []
    for row, result in zip(cells.rows, results.cells, strict=True):
        name = row[0]
        if result.answers.report:
            address = quote(os.path.relpath(result.answers.report, folder))
            name = Markup('<a href="{}">{}</a>').format(address, name)
        linked.append([name, *row[1:]])
    return (
        templates("roomscout.analysis.study")
        .get_template("study.html.j2")
        .render(
            style=style_of("palette.css", "report.css"),
            title=title,
            about=f"{results.preset.does} {tables.about(results)}.",
            plot=plot_of(results),
            tables=parts | {"Cells": replace(cells, rows=linked)},
            notes=tables.notes_of(results),
            protocols=tables.conditions_of_cells(results),
        )
    )
