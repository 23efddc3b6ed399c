"""The baselines of a run: always the most frequent answer, and the same model blind, if it was run."""

import re
from typing import Any

from roomscout.data.benchmarks import Benchmark
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader, runs_by_start
from roomscout.runs.records import RunFacts
from roomscout.runs.settings import Role, names_of
from roomscout.scoring.baselines import frequency_baseline

BLIND = "BLIND, every view grey: "
"""The beginning of the protocol of a run that sees only grey views."""
READING = ' of answers read from the last JSON action ("(B)" as B, "2m" as 2)'
"""The end of the protocol of a run in which a model answers."""
_UNLIKE_EARLIER = re.compile(rf"{re.escape(READING)}|(?<=, )official | \(\d+ x \d+ degrees in view\)")
"""What protocols of earlier versions lack, and the word with which they called the scoring of all questions."""
_OF_MODELS = re.compile(r", [^,]* told(?=, )|, \w+, (greedy|temperature \S+), replies of \d+ tokens at most")
"""What earlier protocols said also of policies without a model."""
NOT_IN_PROTOCOL = names_of(Role.ANSWERER, Role.SCORING)
"""Settings that a protocol does not state, or not always, and that a run and its blind baseline have in common."""


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


def same_protocol(first: str, second: str) -> bool:
    """Whether two protocols say the same, apart from phrases that earlier versions wrote otherwise or not at all."""
    first, second = (_UNLIKE_EARLIER.sub("", each) for each in (first, second))
    if (", replies of " in first) != (", replies of " in second):  # one is of a policy without a model
        first, second = (_OF_MODELS.sub("", each) for each in (first, second))
    return first == second


def _judge_of(reader: RunReader) -> tuple[str, str] | None:
    """The judge that scored the answers in free text; None if there is none."""
    marks = reader.marks
    return None if marks is None else (marks.judge, marks.prompts_sha256)


def is_blind_run_of(facts: RunFacts, other: RunFacts) -> bool:
    """Whether `other` describes the same run as `facts`, but with grey views."""
    return (
        other.questions_sha256 == facts.questions_sha256
        and same_protocol(other.protocol, BLIND + facts.protocol)
        and all(other.setting(name) == facts.setting(name) for name in NOT_IN_PROTOCOL)
    )
