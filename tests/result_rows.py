"""Rows of results.jsonl for tests of scores."""

from dataclasses import replace
from typing import Any

from roomscout.scoring.scores import ResultRow

ROW = ResultRow(
    number=1, id="0", dataset="mine", scene_name="room", question_type="object_counting", question="How many?",
    ground_truth="A", answer="A", score=1.0, status="answered", failed_part=None, error=None, turns=3, parse_errors=0,
    seconds=1.0,
)  # fmt: skip


def result_row(question_type: str, score: float | None, **changes: Any) -> ResultRow:
    """The answer to a question of a type; without a score, a question without a ground truth."""
    truth = None if score is None else "A"
    return replace(ROW, **{"question_type": question_type, "score": score, "ground_truth": truth, **changes})
