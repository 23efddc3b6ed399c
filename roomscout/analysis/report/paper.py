"""What a paper takes from a run: its plots as SVG and PDF, its tables, and all conditions of the run for the appendix."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.conditions import value_in_words
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pdf import PDF_NEEDS, write_pdf
from roomscout.analysis.report.scores import hardware_in_words
from roomscout.analysis.report.svg import Drawing
from roomscout.analysis.report.writer import page_values
from roomscout.analysis.verbs import require_own_place, write_text, writing, written_table
from roomscout.base.extras import require
from roomscout.base.tables import Table
from roomscout.runs import RunError
from roomscout.runs.conditions import SHORT
from roomscout.runs.export import money_lines

TABLES = {
    "scores": "Scores by task",
    "datasets": "Scores by dataset",
    "people": "Answers by person",
}
"""The tables of a page that a paper gets, with their captions."""


def write_paper(run_folder: Path, out: Path) -> str:
    """Write the plots of a run (.svg, .pdf) and its tables (.md, .csv, .tex) into a folder; returns what there is in
    words. Raises RunError, also without matplotlib, or if the folder is a file or in a run, unless its name begins
    with "report"."""
    require("--plots", PDF_NEEDS, error=RunError)
    require_own_place(out, "report", "--plots")
    run = RunContents.read(run_folder.absolute())
    values = page_values(run, [run.answer(episode).entry for episode in run.episodes])
    for plot in values["plots"]:
        write_plot(plot.drawing, out / re.sub(r"\W+", "-", plot.title.lower()).strip("-"))
    tables = {name: (values[name], caption) for name, caption in TABLES.items() if values[name]}
    tables["appendix"] = (appendix_of(run), "Conditions, versions, hardware and cost of the run")
    for name, (table, caption) in tables.items():
        for suffix in (".md", ".csv", ".tex"):
            write_text(out / f"{name}{suffix}", written_table(table, suffix, f"{caption}: {values['title']}", name))
    return f"{len(values['plots'])} plots (.svg, .pdf) and {len(tables)} tables (.md, .csv, .tex)"


def write_plot(drawing: Drawing, path: Path) -> None:
    """Write a drawing as SVG and as PDF, to a path without a suffix; raises RunError."""
    write_text(path.with_name(f"{path.name}.svg"), drawing.svg_alone)
    with writing(path.with_name(f"{path.name}.pdf")) as draft:
        write_pdf(drawing, draft)


def appendix_of(run: RunContents) -> Table:
    """All that run.json records of questions, conditions, what answered, scoring and versions, then what the hardware
    did and what the run cost."""
    facts = run.facts
    versions = facts.last_versions
    intervals = run.summary.intervals
    questions = {"number": facts.questions, "SHA-256": facts.questions_sha256, "from": facts.source and facts.source.name}
    software = {"commit": versions.git_revision, "checkpoint": versions.model_revision, "Python": versions.python}
    parts: Sequence[tuple[str, Mapping[str, Any]]] = [
        ("questions", questions),
        ("answerer", facts.answerer),
        ("condition", facts.conditions),
        ("scoring", facts.scoring | {"intervals": intervals.method if intervals else None}),
        ("version", software | versions.packages),
        ("hardware", dict(hardware_in_words(run.summary.hardware)) | _sessions_in_words(run)),
        ("cost", _cost_in_words(run)),
    ]
    rows = [
        [part, name.replace("_", " "), _shown(value)]
        for part, values in parts
        for name, value in values.items()
        if value is not None or part in ("answerer", "condition")
    ]
    return Table(["part", "name", "value"], rows, left=range(3))


def _shown(value: Any) -> str:
    """A value as text, a hash by its first digits."""
    text = value_in_words(value) or "none"
    return text[:SHORT] if re.fullmatch("[0-9a-f]{40,64}", text) else text


def _sessions_in_words(run: RunContents) -> dict[str, Any]:
    sessions = run.summary.sessions
    if not sessions:
        return {}
    memory = max(each.peak_memory_bytes for each in sessions) / 2**30
    seconds = sum(each.seconds for each in sessions)
    return {
        "Processes": len(sessions),
        "Wall time": f"{seconds:,.0f} s",
        "Memory of a process": f"at most {memory:.1f} GiB",
    }


def _cost_in_words(run: RunContents) -> dict[str, Any]:
    cost = run.summary.cost
    if cost is None:
        return {}
    computed, reused, generated = cost.tokens
    money = "; ".join(line.removeprefix("Cost: ") for line in money_lines(run.summary, len(run.rows), run.facts.price))
    tokens = {"Tokens computed": computed, "Tokens reused": reused, "Tokens generated": generated}
    return {**{name: f"{count:,}" for name, count in tokens.items()}, "Turns": f"{cost.turns:,}", "Price": money or None}
