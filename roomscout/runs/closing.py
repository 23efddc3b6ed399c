"""What a run prints at its end."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from roomscout.data.benchmark import Benchmark
from roomscout.runs.anytime import anytime_lines
from roomscout.runs.prices import Price, in_money
from roomscout.runs.records import ResultRow, RunFacts
from roomscout.runs.summary import Summary
from roomscout.scoring.agreement import agreement_lines
from roomscout.scoring.by_dataset import format_by_dataset
from roomscout.scoring.samples import format_samples
from roomscout.scoring.summary import format_summary, part_lines, reference_lines

_NO_BASELINE = "blind: not known; the same run with the renderer blind measures it, and roomscout report then shows it"


def closing_lines(
    folder: Path, facts: RunFacts, summary: Summary, rows: Sequence[ResultRow], benchmark: Benchmark
) -> list[str]:
    """The scores of a run in the words of its benchmark, or of a single question, and where the run is."""
    scored = [row for row in rows if row.score is not None]
    if not facts.of_one_scan:
        lines = format_summary(summary, benchmark)
        may_have_blind = not (facts.is_blind or facts.by_people or facts.frames is not None)
        if may_have_blind and "blind" not in summary.baselines and summary.asked.label is not None:
            lines.append(_NO_BASELINE)
        lines += [
            *format_samples(summary),
            *agreement_lines(summary),
            *format_by_dataset(summary),
            *anytime_lines(summary.anytime),
            *reference_lines(summary, benchmark, facts.frames),
            *part_lines(facts.setting, summary, benchmark),
            *summary.warnings,
        ]
        ended = [row.score for row in scored if not row.failed]
        below = [score for score in ended if score is not None and score < 1]
        if below:
            wrong = below.count(0)
            listed = f"to list them: roomscout wrong {shlex.quote(str(folder))}"
            lines.append(f"Wrong: {wrong} of {len(ended)}, partly right: {len(below) - wrong}; {listed}")
    else:
        lines = [f"Score: {row.score:g} of 1 (correct answer: {row.ground_truth})" for row in scored]
    if summary.cost is not None and facts.setting("engine") == "openai":
        computed, cached, written = summary.cost.tokens
        of_cache = f" ({cached:,} of them cached)" if cached else ""
        counts = f", as the server counts: {cached + computed:,} read{of_cache}, {written:,} written"
        lines.append(f"Tokens{counts if cached + computed + written else ': the server reports none'}")
    lines += money_lines(summary, len(rows), facts.price)
    if not facts.of_one_scan:
        lines.append(f"Identified by: {summary.provenance}")
    return [*lines, f"Run folder: {folder}"]


def money_lines(summary: Summary, answers: int, price: Price | None) -> list[str]:
    """What a run cost at a price, and its judge, as lines; none without one."""
    cost = summary.cost
    judge = summary.judge
    of_judge = [f"Cost of the judge: {in_money(judge.money)}"] if judge and judge.money is not None else []
    if cost is None or cost.money is None or price is None:
        return of_judge
    of_answer = f", {in_money(cost.money / answers)} an answer" if answers else ""
    return [f"Cost: {in_money(cost.money)}{of_answer}, at {price}", *of_judge]
