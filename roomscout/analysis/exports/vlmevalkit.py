"""Exports a run as VLMEvalKit's table of predictions for VSI-Bench, tab-separated.

Checked against open-compass/VLMEvalKit at e8e78f0: `VsiBench.evaluate` in `vlmeval/dataset/vsibench.py` reads it, with
the columns `index`, `question_type`, `answer` and `prediction`; `build_prompt` there reads `question`, `candidates`
and `video`. Its own files are .xlsx by default, which clips cells of 32,767 characters, or .tsv (`PRED_FORMAT=tsv`).
"""

import csv
from pathlib import Path
from typing import Any

from roomscout.analysis.exports.answers import (
    Exported,
    id_of,
    indices_of,
    plain_answer,
    vsi_bench_answers,
    without_others,
)
from roomscout.analysis.report.contents import QuestionContents, RunContents
from roomscout.base.text import escaped

NO_ANSWER = "no answer"
"""An empty cell would be read as the number NaN."""


def write(run: RunContents, out: Path) -> Exported:
    """Write the table; raises RunError if no question is of VSI-Bench's types."""
    found = vsi_bench_answers(run)
    with out.open("w", encoding="utf-8", newline="") as file:
        rows = [_cells(answer, index) for answer, index in zip(found, indices_of(run, found), strict=True)]
        table = csv.DictWriter(file, list(rows[0]), delimiter="\t", lineterminator="\n")
        table.writeheader()
        for cells in rows:
            table.writerow({name: escaped(cell) if isinstance(cell, str) else cell for name, cell in cells.items()})
    return Exported(len(found), without_others(run, found))


def _cells(answer: QuestionContents, index: int) -> dict[str, Any]:
    return {
        "index": index,
        "id": id_of(answer),
        "dataset": answer.dataset,
        "scene_name": answer.scene,
        "video": f"{answer.dataset}/{answer.scene}.mp4",
        "question_type": answer.question_type,
        "question": answer.question,
        "candidates": repr(list(answer.options)) if answer.options else None,
        "answer": answer.truth,
        "prediction": plain_answer(answer) or NO_ANSWER,
    }
