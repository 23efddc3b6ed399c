"""Exports a run as lmms-eval's file of samples for VSI-Bench: a JSON object per answer.

The keys are those that `EvaluationTracker.save_results_samples` writes (EvolvingLMMs-Lab/lmms-eval,
`lmms_eval/loggers/evaluation_tracker.py`); `vsibench_score` is what `vsibench_process_results` returns
(`lmms_eval/tasks/vsibench/utils.py`), which `vsibench_aggregate_results` there takes.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from roomscout.analysis.episodes import Episode
from roomscout.analysis.exports.finished_run import FinishedRun, plain_id, vsi_bench_episodes

ACCURACY, MRA = "accuracy", "MRA:.5:.95:.05"


def write(run: FinishedRun, out: Path) -> list[str]:
    """Write the file; returns what to know of it. Raises RunError if no question is of VSI-Bench's types."""
    known, others = vsi_bench_episodes(run)
    lines = (json.dumps(sample(episode), ensure_ascii=False) + "\n" for episode in known)
    out.write_text("".join(lines), encoding="utf-8")
    if not others:
        return []
    return [
        f"left out {len(others)} questions of other types or without a ground truth: vsibench has no place for them"
    ]


def sample(episode: Episode) -> dict[str, Any]:
    """An answer as lmms-eval saves it; no answer is an empty text."""
    row, question = episode.row, episode.question
    assert row is not None and question.ground_truth is not None, "vsi_bench_episodes returns scored ones"
    doc = {
        "id": plain_id(question.id),
        "dataset": question.dataset,
        "scene_name": question.scene_name,
        "question_type": question.question_type,
        "question": question.question,
        "ground_truth": question.ground_truth,
        "options": list(question.options) or None,
    }
    prediction = row.answer or ""
    return {
        "doc_id": episode.id.number - 1,
        "doc": doc,
        "target": question.ground_truth,
        "input": "\n".join([question.question, *question.options]),
        "filtered_resps": [prediction],
        "doc_hash": hashlib.sha256(json.dumps(doc, indent=2, ensure_ascii=False).encode()).hexdigest(),
        "vsibench_score": {
            **doc,
            "prediction": prediction,
            ACCURACY if question.kind.takes_options else MRA: row.score,
        },
    }
