"""Exports a run as VLMEvalKit's table of predictions for VSI-Bench, .xlsx or .tsv.

The columns are those of the dataset `VSIBench` with `prediction` (open-compass/VLMEvalKit,
`vlmeval/dataset/vsibench.py`), and `VSIBench.evaluate` there reads the .xlsx. Its scores of numbers differ from the
official ones in ties: it requires a relative error below 1 - threshold where they allow it to be equal.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roomscout.analysis.episodes import Episode
from roomscout.analysis.exports.finished_run import FinishedRun, plain_id, vsi_bench_episodes
from roomscout.data.text import escaped
from roomscout.runs import RunError

COLUMNS = ("index", "id", "prefix", "video", "type", "question", "answer", "candidates", "prediction")
NO_ANSWER = "no answer"
"""An empty cell would be read as a number, on which VLMEvalKit fails."""


def write(run: FinishedRun, out: Path) -> list[str]:
    """Write the table; returns what to know of it.

    Raises RunError if no question is of VSI-Bench's types, or for an .xlsx without openpyxl.
    """
    known, others = vsi_bench_episodes(run)
    rows = [COLUMNS, *([_cells(episode)[name] for name in COLUMNS] for episode in known)]
    if out.suffix == ".tsv":
        with out.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter="\t").writerows(rows)
    else:
        _write_workbook(rows, out)
    if not others:
        return []
    return [
        f"left out {len(others)} questions of other types or without a ground truth: VSIBench has no place for them"
    ]


def _write_workbook(rows: Sequence[Sequence[Any]], out: Path) -> None:
    try:
        from openpyxl import Workbook
    except ImportError:
        raise RunError(
            '--to vlmevalkit needs the package openpyxl: pip install "roomscout[report]", or choose an --out that ends '
            "in .tsv"
        ) from None
    workbook = Workbook(write_only=True)
    sheet = workbook.create_sheet()
    for row in rows:
        sheet.append(list(row))
    workbook.save(out)


def _cells(episode: Episode) -> dict[str, Any]:
    row, question = episode.row, episode.question
    assert row is not None, "a finished episode has a result"
    return {
        "index": episode.id.number - 1,
        "id": plain_id(question.id),
        "prefix": escaped(question.dataset),
        "video": escaped(question.scene_name),
        "type": question.question_type,
        "question": escaped(question.question),
        "answer": question.ground_truth,
        "candidates": escaped(repr(list(question.options))) if question.options else None,
        "prediction": escaped(row.answer) if row.answer else NO_ANSWER,
    }
