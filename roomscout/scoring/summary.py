"""The scores of a run: means over types and tasks, the overall with its label, and the summary."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roomscout.base.grouping import grouped
from roomscout.base.loading import code_of_others
from roomscout.base.tables import Table, decimal
from roomscout.data.benchmark import Benchmark, BenchmarkError, mean, mean_over_questions
from roomscout.scoring.headline import Headline, headline_of, in_one_line, left_out_lines
from roomscout.scoring.pairs import in_pairs, sensitivity, sensitivity_lines
from roomscout.scoring.scores import Label, Percentages, ResultRow, Scores, TypeScores


class AggregateError(BenchmarkError):
    """The `aggregate` of a benchmark failed. The message names the error, its file and its line."""


def aggregate(rows: Iterable[ResultRow], benchmark: Benchmark) -> dict[str, float]:
    """Percent per task and "overall" of the rows with a score, see `in_pairs` and `percents_of`."""
    return percents_of(_scores_by_type(in_pairs(rows, benchmark)), benchmark)


def _scores_by_type(rows: Iterable[ResultRow]) -> dict[str, list[float]]:
    return grouped((row.question_type, row.score) for row in rows if row.score is not None)


def percents_of(scores: Mapping[str, Sequence[float]], benchmark: Benchmark) -> dict[str, float]:
    """Percent per task and "overall" of scores by type, as the benchmark's `aggregate` combines them; with all types of
    VSI-Bench, that equals the official result (thinking-in-space, vsibench/utils.py). Ignores types that are not
    `in_overall`; without one of the benchmark's, the overall is the mean over questions. {} without scores; raises
    BenchmarkError."""
    counted = {name: scores[name] for name in benchmark.in_overall(scores)}
    if benchmark.by_name.keys() & counted.keys():
        return combined(benchmark, counted)
    return mean_over_questions(benchmark, counted) if counted else {}


def combined(benchmark: Benchmark, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """What the benchmark's `aggregate` returns; raises AggregateError unless it is finite numbers with "overall"."""
    kept = "fix it; the answers are kept, and resuming the run scores them"
    what = f"the aggregate of {benchmark.title}"
    with code_of_others(what, lambda why: AggregateError(f"{why}: {kept}"), BenchmarkError):
        percents = {name: float(value) for name, value in benchmark.aggregate(benchmark, scores).items()}
    if "overall" not in percents or not all(map(math.isfinite, percents.values())):
        code = getattr(benchmark.aggregate, "__code__", None)
        where = f" ({Path(code.co_filename).name}, line {code.co_firstlineno})" if code else ""
        raise AggregateError(
            f'the aggregate of {benchmark.title}{where} returned {percents}, not finite numbers with "overall": {kept}'
        )
    return percents


def summarize(rows: Iterable[ResultRow], benchmark: Benchmark, pending: int = 0, part: str = "") -> Scores:
    """The scores of finished answers, while `pending` others are not; see `aggregate`. `part` is that of the label."""
    rows = list(rows)
    with_scan = [row for row in rows if row.failed_part != "scan"]
    by_type = grouped((row.question_type, row) for row in rows)
    scores_of_types = _scores_by_type(in_pairs(rows, benchmark))
    types: dict[str, TypeScores] = {}
    for name in [name for name in dict.fromkeys([*benchmark.by_name, *by_type]) if name in by_type]:
        of_type = by_type[name]
        scores = scores_of_types.get(name, [])
        more = grouped(score for row in of_type for score in row.scores.items())
        types[name] = replace(
            _outcomes(of_type),
            scored=len(scores),
            percent=rounded(100 * mean(scores)) if scores else None,
            scores={further: mean(values) for further, values in more.items()},
        )
    types["all"] = _outcomes(rows)
    finished = [row for row in rows if not row.failed]
    return Scores(
        pending=pending,
        asked=_percentages(rows, benchmark, pending, part),
        with_scan=_percentages(with_scan, benchmark, pending, part),
        finished=_percentages(finished, benchmark, pending, part) if len(finished) < len(rows) else None,
        types=types,
        sensitivity=sensitivity(rows, benchmark),
    )


def label_of(
    types: Iterable[str], benchmark: Benchmark, of_datasets: Mapping[str, int] | None = None, unfinished: bool = False
) -> Label:
    """The label of an overall over these types and `of_datasets`, by default all; `unfinished` ones have no number."""
    types = set(types)
    present = types & benchmark.by_name.keys()
    if not present:
        of_others = bool(benchmark.scored_as)
        apart = [label for label, kind in benchmark.apart.items() if kind.name in types and not of_others]
        number = sum((of_datasets or {}).values())
        whole = not apart or unfinished or number == benchmark.sizes.get(apart[0])
        return Label(benchmark="+".join(apart) or benchmark.label, tasks=None, questions=None if whole else number)
    tasks = {benchmark.by_name[name].task for name in present}
    label = Label(benchmark=benchmark.label, tasks=len(tasks))
    excluded = present & benchmark.excluded.keys()
    # A benchmark that excludes types by default has two overalls: with all of these, and without.
    complete = present.issuperset(benchmark.scan_types) and len(excluded) in (0, len(benchmark.excluded))
    if of_datasets is not None:
        label = _limited(label, complete, benchmark, of_datasets, unfinished)
    if complete and not label.some:
        return label
    missing = [benchmark.by_name[name] for name in benchmark.scan_types if name not in present]
    return replace(
        label,
        partial=not benchmark.scored_as,
        without=tuple(dict.fromkeys(kind.name if kind.task in tasks else kind.task for kind in missing)),
        extra=tuple(sorted(excluded)),
    )


def _limited(label: Label, complete: bool, benchmark: Benchmark, counts: Mapping[str, int], unfinished: bool) -> Label:
    """The label with the datasets that it covers, unless all, and the number of questions, unless all."""
    size = benchmark.sizes.get(str(label))
    if not benchmark.datasets and (size is None or not complete):
        return label
    others = sorted(counts.keys() - set(benchmark.datasets))
    covered = [name for name in benchmark.datasets if name in counts] + others
    datasets = covered if benchmark.datasets and covered != list(benchmark.datasets) else []
    number = sum(counts.values())
    whole = not datasets and (not complete or size is None or number == size)
    return replace(label, datasets=tuple(datasets), questions=None if unfinished or whole else number)


def _percentages(rows: Sequence[ResultRow], benchmark: Benchmark, pending: int, part: str) -> Percentages:
    percents = aggregate(rows, benchmark)
    scored = [row for row in in_pairs(rows, benchmark) if row.score is not None]
    covered = benchmark.in_overall(row.question_type for row in scored)
    counted = [row for row in scored if row.question_type in covered]
    percentages = Percentages(
        questions=len(rows),
        scored=len(scored),
        scored_own=len(scored) - len(counted),
        failed=sum(row.failed for row in counted),
        awaiting_judge=sum(row.score is None and row.ground_truth is not None for row in rows),
    )
    if not percents:
        return percentages
    of_datasets = Counter(dataset for dataset, _ in {(row.dataset, row.id) for row in counted})
    label = replace(
        label_of(covered, benchmark, of_datasets, bool(pending or part)),
        part=part,
        unfinished=bool(pending),
        partly_judged=bool(percentages.awaiting_judge),
        measured=any(row.measurements for row in counted),
    )
    percents = {name: rounded(percent) for name, percent in percents.items()}
    overall = percents.pop("overall")
    return replace(percentages, label=label, overall=overall, single=_single(rows, scored, benchmark), tasks=percents)


def _single(rows: Iterable[ResultRow], paired: Iterable[ResultRow], benchmark: Benchmark) -> float | None:
    """The overall of the answers that are in pairs, each with its own score; None for a benchmark without pairs."""
    if not benchmark.pairs:
        return None
    kept = {(row.id, row.sample) for row in paired}
    own = _scores_by_type(row for row in rows if (row.id, row.sample) in kept)
    return rounded(percents_of(own, benchmark)["overall"])


def rounded(percent: float) -> float:
    """A percentage without the error of binary fractions: 77.5, not 77.49999999999999."""
    return round(percent, 10)


def _outcomes(rows: Sequence[ResultRow]) -> TypeScores:
    statuses = Counter(row.status for row in rows)
    turns = [row.turns for row in rows if not row.failed]
    return TypeScores(
        questions=len(rows),
        answered=statuses["answered"],
        exhausted=statuses["exhausted"],
        failed=statuses["failed"],
        without_scan=sum(row.failed_part == "scan" for row in rows),
        mean_turns=mean(turns) if turns else None,
        measurements=sum(row.measurements for row in rows),
    )


def format_summary(scores: Scores, benchmark: Benchmark) -> list[str]:
    """Scores as lines: counts and percent per type, and per task of several types, with intervals and known baselines
    in columns, the labelled overall, and a table of the tasks with and without questions that lack their scan."""
    baselines = [name for name in BASELINES if name in scores.baselines]
    has_intervals = scores.intervals is not None and bool(scores.intervals.percent)
    titles = [*(["interval"] if has_intervals else []), *(BASELINES[name] for name in baselines)]

    def beside(task: str) -> list[str]:
        """The cells of a task's interval and of its baselines, which have none for a type that is no task."""
        edges = scores.interval(task)
        interval = [f"{edges[0]:.1f}-{edges[1]:.1f}" if edges else "-"] if has_intervals else []
        return [*interval, *(decimal(scores.baselines[name].tasks.get(task)) for name in baselines)]

    rows: list[list[Any]] = []
    for name, of_type in scores.types.items():
        counts = [of_type.questions, of_type.answered, of_type.exhausted, of_type.failed, of_type.without_scan]
        rows.append([name, *counts, decimal(of_type.mean_turns), decimal(of_type.percent), *beside(name)])
    asked = scores.asked
    with_scan = scores.with_scan
    lack_scan = asked.questions != with_scan.questions
    for task, percent in {} if lack_scan else asked.tasks.items():
        if task not in scores.types:
            rows.append([f"{task}, mean of its types", *[""] * 6, decimal(percent), *beside(task)])
    heads = ["type", "asked", "answered", "exhausted", "failed", "no scan", "turns", "percent", *titles]
    lines = Table(heads, rows).lines()
    headline = headline_of(scores, benchmark)
    for name, of_type in scores.types.items():
        if of_type.scores and (headline is None or name not in headline.left_out):
            lines.append(f"{name}, on average: {in_one_line(of_type.scores)}")
    answers = "answers" if scores.samples else "questions"
    failed = ""
    if scores.asked.failed:
        failed = f"; {failed_in_words(scores)}" if scores.asked.label else f"; {scores.asked.failed} failed"
    denominator = answers
    if lack_scan:
        lines += ["no scan: failed because the scan was not found, scored 0", ""]
        per_task = [
            [task, decimal(percent), decimal(with_scan.tasks.get(task)), *beside(task)]
            for task, percent in asked.tasks.items()
        ]
        lines += Table(["percent per task", "asked", "with scan", *titles], per_task).lines()
        denominator = f"{answers} asked (those without a scan score 0)"
        failed = failed if scores.types["all"].failed > scores.types["all"].without_scan else ""
    interval = ""
    if scores.intervals is not None and (edges := scores.interval("overall")) is not None:
        over = f"the {scores.intervals.level} % interval over {scores.intervals.scenes['overall']} scenes"
        interval = f" ({edges[0]:.1f} to {edges[1]:.1f}, {over})"
    if headline is None and benchmark.pairs:
        denominator += " with their twin"
    lines += ["", _overall_line(headline, denominator, interval) + failed]
    if lack_scan:
        lines.append(_overall_line(headline_of(scores, benchmark, with_scan), f"{answers} with a scan"))
    lines += left_out_lines(headline) if headline else []
    if awaiting := asked.awaiting_judge:
        lines.append(f"{awaiting} not scored yet: a judge scores them, see roomscout rescore")
    return [*lines, *sensitivity_lines(scores), *no_interval_lines(scores), *_baseline_lines(scores)]


BASELINES = {"blind": "blind", "most_frequent": "frequent"}  # the baselines of a summary, and their columns


def no_interval_lines(scores: Scores) -> list[str]:
    """Why scores have no interval: a line per reason; without any, only that of the score with most scenes."""
    intervals = scores.intervals
    if intervals is None:
        return []
    if not intervals.percent:
        most = max(intervals.missing, key=intervals.scenes.__getitem__)
        return [f"no {intervals.level} % intervals: {intervals.missing[most]}"]
    by_reason = grouped((reason, name) for name, reason in intervals.missing.items())
    return [f"no {intervals.level} % interval of {', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _baseline_lines(scores: Scores) -> list[str]:
    lines = []
    for name, column in BASELINES.items():
        if (baseline := scores.baselines.get(name)) is None:
            continue
        if baseline.overall is not None:
            lines.append(f"{column}: {baseline.overall:.1f} % ({baseline.source})")
        else:
            without = ", ".join(task for task in scores.asked.tasks if task not in baseline.tasks)
            lines.append(f"{column}: no overall, since {without} has no questions elsewhere ({baseline.source})")
    return lines


def _overall_line(headline: Headline | None, denominator: str, interval: str = "") -> str:
    if headline is None:
        return f"no scored {denominator}"
    if headline.answers == 1:
        denominator = denominator.replace("questions", "question", 1).replace("answers", "answer", 1)
    over = f"over {headline.answers} {denominator}"
    return f"{headline.label}: {headline.percent:.1f} %{interval} {over}{headline.without}"


def failed_in_words(scores: Scores) -> str:
    """How many scored questions failed, and the overall of the others; empty if none failed."""
    failed = scores.asked.failed
    if not failed:
        return ""
    scored = scores.asked.counted
    finished = scores.finished
    words = f"{failed:,} of {scored:,} failed and score 0"
    if finished is None or finished.overall is None:
        return f"{words}, none finished"
    return f"{words}, {finished.overall:.1f} % over the {finished.counted:,} that finished"


def reference_lines(scores: Scores, benchmark: Benchmark, frames: int | None = None) -> list[str]:
    """Published scores under the label of an overall; none unless it covers as many questions as they do. For a run on
    so many `frames` of videos, None in scans, a further line says with which of them it may be compared."""
    label = str(scores.asked.label)
    whole = scores.asked.label is not None and scores.asked.questions == benchmark.sizes.get(label)
    lines = []
    for published in benchmark.references if whole else ():
        by = f"{published.name} ({published.origin})"
        if label in published.percent:
            lines.append(f"published {label}: {published.percent[label]:.1f} % {by}")
        elif label in published.means:
            lines.append(f"mean of the published task scores, {label}: {published.means[label]:.1f} % {by}")
    if frames is not None and benchmark.references:
        compared = label if whole else ""
        lines.append(_comparable(compared, benchmark, frames))
    return lines


def _comparable(label: str, benchmark: Benchmark, frames: int) -> str:
    """With which published scores a run on video frames may be compared, or why with none; "" is no label of theirs."""
    if not label:
        return f"comparable published scores: none, since they are over all questions of {benchmark.title}"
    scores = [score for score in benchmark.references if label in {*score.percent, *score.means} and score.protocol]
    same = [f"{score.name} ({score.framework})" for score in scores if score.frames == frames]
    if same:
        return f"comparable published scores, also on {frames} frames: {', '.join(same)}; the size of frames may differ"
    counts = ", ".join(map(str, sorted({score.frames for score in scores} - {0})))
    others = f"they have {counts}, or do not say how many" if counts else "they do not say how many"
    return f"comparable published scores: none on {frames} frames; {others}, which moves scores by several points"


def part_lines(setting: Callable[[str], Any], scores: Scores, benchmark: Benchmark) -> list[str]:
    """A line for a run of a part of its benchmark's questions: the settings that chose them, but types."""
    label = scores.asked.label
    chosen = [name for name in ("datasets", "scenes", "ids", "num_questions") if setting(name)]
    if not chosen or label is None or setting("questions") is not None:
        return []
    if scores.asked.questions == benchmark.sizes.get(str(label)):
        return []
    return [f"a part of {benchmark.title} ({', '.join(chosen)}): compare the overall only over the same questions"]
