"""The baselines of a run: always the most frequent answer, and the same model blind, if it was run."""

from dataclasses import replace

from roomscout.data.benchmark import Benchmark
from roomscout.runs import RunError
from roomscout.runs.conditions import is_blind_run_of
from roomscout.runs.reader import RunReader, runs_by_start
from roomscout.runs.records import RunFacts
from roomscout.runs.summary import Summary
from roomscout.scoring.baselines import frequency_baseline
from roomscout.scoring.scores import Baseline


def known_baselines(reader: RunReader, benchmark: Benchmark) -> dict[str, Baseline]:
    """The baselines of a run by name, "most_frequent" and "blind"; those that are known."""
    facts = reader.facts
    guesses = reader.guesses
    if facts.of_one_scan:
        return {}
    baselines = {
        "most_frequent": None if guesses is None else frequency_baseline(guesses, reader.questions, benchmark),
        "blind": blind_baseline(reader, facts),
    }
    return {name: baseline for name, baseline in baselines.items() if baseline is not None}


def with_blind(summary: Summary, reader: RunReader) -> Summary:
    """The summary of a scored run with its blind baseline, also if the blind run was finished later than the summary.
    Reads the other runs beside this one if the summary has no such baseline; raises RunError for this one alone."""
    facts = reader.facts
    if "blind" in summary.baselines or summary.asked.label is None or facts.of_one_scan:
        return summary
    blind = blind_baseline(reader, facts)
    return summary if blind is None else replace(summary, baselines={**summary.baselines, "blind": blind})


def blind_baseline(reader: RunReader, facts: RunFacts) -> Baseline | None:
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
        if summary is None or summary.pending or summary.asked.label is None:
            continue
        scores = summary.asked
        failed = f"; {scores.failed} of them failed and score 0" if scores.failed else ""
        source = f"{folder.name}: the same questions with grey views{failed}"
        return Baseline(source=source, questions=scores.counted, tasks=scores.tasks, overall=scores.overall)
    return None


def _judge_of(reader: RunReader) -> tuple[str, str] | None:
    marks = reader.marks
    return None if marks is None else (marks.judge, marks.prompts_sha256)
