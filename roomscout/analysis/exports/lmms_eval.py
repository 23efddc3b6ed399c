"""Exports a run as the samples that lmms-eval saves of its task vsibench: a JSON object per answer.

Checked against EvolvingLMMs-Lab/lmms-eval at 75571cf. The keys are those of `evaluate` in `lmms_eval/evaluator.py` as
`EvaluationTracker.save_results_samples` in `lmms_eval/loggers/evaluation_tracker.py` writes them. The value of each
metric is what `vsibench_process_results` in `lmms_eval/tasks/vsibench/utils.py` returns: the same object for all, which
has the score, and of which the aggregates there take a list.
"""

import hashlib
import json
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
from roomscout.data.benchmarks import DEFAULT, find_benchmark

METRICS = (
    "vsibench_overall",
    "obj_appearance_order_accuracy",
    "object_abs_distance_mra",
    "object_counting_mra",
    "object_rel_distance_accuracy",
    "object_size_estimation_mra",
    "room_size_estimation_mra",
    "route_planning_accuracy",
    "object_rel_direction_accuracy",
)
ACCURACY, MRA = "accuracy", "MRA:.5:.95:.05"


def write(run: RunContents, out: Path) -> Exported:
    """Write the file; raises RunError if no question is of VSI-Bench's types."""
    found = vsi_bench_answers(run)
    with out.open("w", encoding="utf-8", errors="backslashreplace") as file:  # surrogates as JSON escapes
        for answer, index in zip(found, indices_of(run, found), strict=True):
            file.write(json.dumps(_sample(answer, index), ensure_ascii=False) + "\n")
    return Exported(len(found), without_others(run, found))


def _sample(answer: QuestionContents, index: int) -> dict[str, Any]:
    """An answer as lmms-eval saves it. `resps` has the last reply, unless that is the answer alone."""
    assert answer.row is not None, "a finished answer has a result"
    doc = {
        "id": id_of(answer),
        "dataset": answer.dataset,
        "scene_name": answer.scene,
        "question_type": answer.question_type,
        "question": answer.question,
        "ground_truth": answer.truth,
        "options": list(answer.options) or None,
    }
    prediction = plain_answer(answer)
    reply = answer.turns[-1].reply.text if answer.turns else ""
    metric = ACCURACY if find_benchmark(DEFAULT).by_name[answer.question_type].kind.takes_options else MRA
    scored = {**doc, "prediction": prediction, metric: answer.row.score}
    return {
        "doc_id": index,
        "target": answer.truth,
        **({"resps": [reply]} if reply not in ("", prediction) else {}),
        "filtered_resps": prediction,
        "token_counts": [
            {
                "input_tokens": sum(turn.reply.prompt_tokens for turn in answer.turns),
                "output_tokens": sum(turn.reply.generated_tokens for turn in answer.turns),
            }
        ],
        "doc_hash": hashlib.sha256(json.dumps(doc, indent=2, ensure_ascii=True).encode()).hexdigest(),
        **dict.fromkeys(METRICS, scored),
        "input": "\n".join([answer.question, *answer.options]),
    }
