"""The baselines of a run: always the most frequent answer, and the same model blind, if it was run."""

from typing import Any

from roomscout.data.benchmarks import Benchmark
from roomscout.runs import RunError
from roomscout.runs.conditions import is_blind_run_of
from roomscout.runs.reader import RunReader, runs_by_start
from roomscout.runs.records import RunFacts
from roomscout.scoring.baselines import frequency_baseline


def known_baselines(reader: RunReader, benchmark: Benchmark) -> dict[str, Any]:
    """The baselines of a run by name, "most_frequent" and "blind", for summary.json; those that are known.

    Each has its "source", and as far as they are known, the percent per task in "tasks" and "overall".
    """
    facts, found = reader.facts, {}
    if facts.config["ply"] is not None:
        return {}
    if (guesses := reader.guesses) is not None:
        found["most_frequent"] = frequency_baseline(guesses, reader.questions, benchmark)
    found["blind"] = blind_baseline(reader, facts)
    return {name: baseline for name, baseline in found.items() if baseline is not None}


def with_blind(summary: dict[str, Any], reader: RunReader) -> dict[str, Any]:
    """The summary of a scored run with its blind baseline, also if the blind run was finished later than the summary.

    Reads the other runs beside this one if the summary has no such baseline; raises RunError for this one alone.
    """
    known = summary.get("baselines", {})
    facts = reader.facts
    if "blind" in known or not summary.get("asked", {}).get("overall_label") or facts.config["ply"] is not None:
        return summary
    found = blind_baseline(reader, facts)
    return summary if found is None else summary | {"baselines": {**known, "blind": found}}


def blind_baseline(reader: RunReader, facts: RunFacts) -> dict[str, Any] | None:
    """The scores of the newest finished run beside this one that had grey views and is otherwise the same, if any."""
    if facts.is_blind:
        return None
    for folder in reversed(runs_by_start(reader.folder.parent)):
        other = RunReader(folder)
        try:
            if not is_blind_run_of(facts, other.facts) or _judge_of(other) != _judge_of(reader):
                continue
            summary = other.summary
        except RunError:  # another run's folder may be damaged
            continue
        if summary and summary.get("pending") == 0 and (label := summary["asked"]["overall_label"]):
            scores = summary["asked"]
            failed = f"; {scores['failed']} of them failed and score 0" if scores.get("failed") else ""
            return {
                "source": f"{folder.name}: the same questions with grey views{failed}",
                "questions": scores["scored"] - scores["scored_own"],
                "tasks": scores["tasks"],
                "overall": scores[label],
            }
    return None


def _judge_of(reader: RunReader) -> tuple[str, str] | None:
    """The judge that scored the answers in free text; None if there is none."""
    marks = reader.marks
    return None if marks is None else (marks.judge, marks.prompts_sha256)
