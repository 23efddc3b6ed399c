"""The scores of a run: means over types and tasks, the overall with its label, and the summary."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from roomscout.base.loading import code_of_others
from roomscout.data.benchmarks import Benchmark, BenchmarkError, mean

Row = Mapping[str, Any]


class AggregateError(BenchmarkError):
    """The `aggregate` of a benchmark failed. The message names the error, its file and its line."""


class ScoresByType:
    """The scores of the questions finished so far, by type, so that the overall is known at any time."""

    def __init__(self, benchmark: Benchmark):
        self._benchmark = benchmark
        self._scores: dict[str, list[float]] = {name: [] for name in benchmark.by_name}
        self._own: dict[str, list[float]] = {}

    def add(self, row: Row) -> None:
        """Count a row, unless it has no ground truth; raises ValueError as `aggregate` does."""
        if _in_overall(row, self._benchmark):
            self._scores[row["question_type"]].append(score_of(row))
        elif is_scored(row, self._benchmark):
            self._own.setdefault(row["question_type"], []).append(score_of(row))

    def percents(self) -> dict[str, float]:
        """Percent per task and "overall"; {} if no row counted. Raises BenchmarkError."""
        present = {name: values for name, values in self._scores.items() if values}
        return combined(self._benchmark, present) if present else over_own_questions(self._own)


def aggregate(rows: Iterable[Row], benchmark: Benchmark) -> dict[str, float]:
    """Percent per task and "overall", from rows with `question_type` and `score` (0..1).

    The benchmark's `aggregate` combines them; for VSI-Bench, with all three direction types, the result equals the
    official one (vision-x-nyu/thinking-in-space, lmms_eval/tasks/vsibench/utils.py) in percent.

    Ignores rows of other types, unless all are: then the overall is the mean over questions. Ignores rows without a
    ground truth: `ground_truth` is None, or is missing and `score` is None. Returns {} if no rows remain.

    Raises ValueError for a score outside 0..1, and for a score of None despite a ground truth (an unanswered question
    scores 0).
    """
    scores = ScoresByType(benchmark)
    for row in rows:
        scores.add(row)
    return scores.percents()


def over_own_questions(scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Percent per type of the user's own types, and the mean over their questions as "overall"; {} without any."""
    if not scores:
        return {}
    every = [each for values in scores.values() for each in values]
    return {name: 100 * mean(values) for name, values in scores.items()} | {"overall": 100 * mean(every)}


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


def _in_overall(row: Row, benchmark: Benchmark) -> bool:
    """Whether a row counts in the benchmark's overall."""
    return row["question_type"] in benchmark.by_name and is_scored(row, benchmark)


def is_scored(row: Row, benchmark: Benchmark) -> bool:
    """Whether a row has a ground truth, and its score does not await a judge."""
    return _has_truth(row) and not _awaits_judge(row, benchmark)


def _awaits_judge(row: Row, benchmark: Benchmark) -> bool:
    known = benchmark.by_name.get(row["question_type"])
    return row["score"] is None and _has_truth(row) and known is not None and known.kind.needs_judge


def _has_truth(row: Row) -> bool:
    return row["ground_truth"] is not None if "ground_truth" in row else row["score"] is not None


def score_of(row: Row) -> float:
    """The score of a row with a ground truth; raises ValueError unless it is between 0 and 1."""
    score = row["score"]
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(
            f"score {score!r} of a {row['question_type']} question is not between 0 and 1; a missing answer scores 0"
        )
    return float(score)


def summarize(rows: Iterable[Row], benchmark: Benchmark, pending: int = 0, part: str = "") -> dict[str, Any]:
    """A JSON-serializable summary of the finished questions, while `pending` others are not finished.

    Rows have `question_type`, `score`, `status` ("answered", "exhausted" or "failed"), `failed_part` (None, "scan",
    "scene", "render" or "model") and `turns`. `aggregate` defines which rows count. If questions are answered several
    times, each answer counts like a question. The keys are

    - "pending": the number of pending questions.
    - "asked": percentages over all questions. A question without a scan scores 0.
    - "with_scan": percentages over the questions with a scan.
    - "finished": percentages over the questions that did not fail, if any failed: an error of the scan, the renderer or
      the model ended the others, which score 0 in "asked" and say nothing of the model.
    - "types": per question type and for "all", the counts "questions", "answered", "exhausted", "failed" and
      "without_scan"; "mean_turns" of questions that did not fail (None if all did); "measurements" in scans, if there
      are any; and, except for "all", "percent" over all questions (None if none was scored). "scores" has the means of
      further scores ("relative_error") over the questions that have them, if any has.

    "asked" and "with_scan" contain "questions", "scored", "scored_own" (how many of the scored questions are of types
    outside the benchmark and so count towards no task or overall; 0 if all are, since these have a mean of their own),
    "own_percent" (the mean of those that count nowhere, if any), "tasks" (percent per task) and the overall; "failed"
    counts the scored questions that failed, if there are any;
    "awaiting_judge" counts the answers that a judge has not marked, if there are any. "overall_label" is the key of the
    overall: the result of `overall_label`, prefixed with "unfinished_" while questions are pending, with
    "partly_judged_" if others await their judge, with "measured_" if the model measured in a scan, and with `part`,
    such as "part_2_of_8", for a part of a run. Compare overalls only if labels and questions are equal. "some" is what
    `some_of` returns, if anything. Rows need `id` and `dataset` if the benchmark names its datasets.
    """
    rows = list(rows)
    with_scan = [row for row in rows if row["failed_part"] != "scan"]
    present = dict.fromkeys(row["question_type"] for row in rows)
    types: dict[str, dict[str, Any]] = {}
    own = [name for name in present if name not in benchmark.by_name]
    for name in [*(name for name in benchmark.by_name if name in present), *own]:
        of_type = [row for row in rows if row["question_type"] == name]
        scores = [score_of(row) for row in of_type if is_scored(row, benchmark)]
        types[name] = (
            _outcomes(of_type) | {"percent": rounded(100 * mean(scores)) if scores else None} | _more_scores(of_type)
        )
    types["all"] = _outcomes(rows)
    finished = [row for row in rows if row["status"] != "failed"]
    return {
        "pending": pending,
        "asked": _percentages(rows, benchmark, pending, part),
        "with_scan": _percentages(with_scan, benchmark, pending, part),
        **({"finished": _percentages(finished, benchmark, pending, part)} if len(finished) < len(rows) else {}),
        "types": types,
    }


def some_of(
    question_types: Iterable[str], benchmark: Benchmark, of_datasets: Mapping[str, int], unfinished: bool = False
) -> dict[str, Any]:
    """Which questions of a benchmark an overall covers, as JSON values; {} if it covers all or the benchmark has no
    `datasets` and `sizes` to compare with.

    `of_datasets` has the number of questions by dataset. "datasets" names those covered, unless all are.
    "questions" is their number, absent while the run is `unfinished`.
    """
    types = set(question_types) & benchmark.by_name.keys()
    whole, all_types = _whole_label(types, benchmark)
    if not types or (not benchmark.datasets and whole not in benchmark.sizes):
        return {}
    others = sorted(of_datasets.keys() - set(benchmark.datasets))
    covered = [name for name in benchmark.datasets if name in of_datasets] + others
    named = benchmark.datasets and covered != list(benchmark.datasets)
    some: dict[str, Any] = {"datasets": covered} if named else {}
    number = sum(of_datasets.values())
    size = benchmark.sizes.get(whole, number) if all_types else number
    if not all_types and not benchmark.datasets:
        return {}
    return some if unfinished or (number == size and not some) else {"questions": number, **some}


def overall_label(question_types: Iterable[str], benchmark: Benchmark, some: Mapping[str, Any] | None = None) -> str:
    """The name of an overall over questions of these types. Overalls with equal names are comparable.

    `some` is what `some_of` returns.

    For VSI-Bench, "overall_7_task" covers the nine types that a scan can answer: all but the order in the video.
    "overall_8_task" covers all ten types and is the benchmark's published overall. Any other overall is not a
    benchmark number: its name starts with "partial_overall", lists which of the tasks are missing (or which types, if
    only some of a task are), and ends with the excluded types that are included. Other benchmarks have another word
    than "overall": their `label`. An overall of some of the datasets that a benchmark names, or of some of the
    questions about all tasks, is partial too, such as "partial_rooms_overall_7_task_of_1800_questions_in_bare".

    Questions that are not the benchmark's own (`scored_as`) have the name of their file instead: "few_overall_7_task".
    Without a type of the benchmark, the overall is the mean over questions: "few_overall_over_questions".
    """
    present, some = set(question_types) & benchmark.by_name.keys(), some or {}
    if not present:
        return f"{benchmark.label}_over_questions"
    whole, all_types = _whole_label(present, benchmark)
    if all_types and not some:
        return whole
    whole += f"_of_{some['questions']}_questions" if "questions" in some else ""
    whole += f"_in_{'+'.join(some['datasets'])}" if "datasets" in some else ""
    missing = [name for name in benchmark.scan_types if name not in present]
    extra = sorted(present & benchmark.excluded.keys())
    tasks = {benchmark.by_name[name].task for name in present}
    missing = [name if benchmark.by_name[name].task in tasks else benchmark.by_name[name].task for name in missing]
    without = f"_without_{'+'.join(dict.fromkeys(missing))}" if missing else ""
    partial = "" if benchmark.scored_as else "partial_"
    return f"{partial}{whole}{without}" + (f"_with_{'+'.join(extra)}" if extra else "")


def _whole_label(question_types: Iterable[str], benchmark: Benchmark) -> tuple[str, bool]:
    """The label of an overall over the tasks of these types, and whether the benchmark has one over just these types.

    It has two if it excludes types by default: with all of these, and without.
    """
    present = set(question_types)
    tasks = {benchmark.by_name[name].task for name in present}
    all_types = present.issuperset(benchmark.scan_types) and (
        len(present & benchmark.excluded.keys()) in (0, len(benchmark.excluded))
    )
    return f"{benchmark.label}_{len(tasks)}_task", all_types


def _percentages(rows: Sequence[Row], benchmark: Benchmark, pending: int, part: str) -> dict[str, Any]:
    percents = aggregate(rows, benchmark)
    scored = [row for row in rows if is_scored(row, benchmark)]
    counted = [row for row in scored if _in_overall(row, benchmark)] or scored
    summary: dict[str, Any] = {"questions": len(rows), "scored": len(scored), "scored_own": len(scored) - len(counted)}
    if failed := sum(row["status"] == "failed" for row in counted):
        summary["failed"] = failed
    if own := [score_of(row) for row in scored if not _in_overall(row, benchmark)][: summary["scored_own"]]:
        summary["own_percent"] = rounded(100 * mean(own))
    summary |= {"overall_label": None, "tasks": {}}
    awaiting = sum(_awaits_judge(row, benchmark) for row in rows)
    if awaiting:
        summary["awaiting_judge"] = awaiting
    if percents:
        label = (f"{part}_" if part else "") + ("unfinished_" if pending else "")
        label += "partly_judged_" if awaiting else ""
        label += "measured_" if any(row.get("measurements") for row in counted) else ""
        counted_types = {row["question_type"] for row in counted}
        questions = {(row["dataset"], row["id"]) for row in counted} if benchmark.datasets or benchmark.sizes else set()
        some = some_of(counted_types, benchmark, Counter(name for name, _ in questions), bool(pending or part))
        label += overall_label(counted_types, benchmark, some)
        summary["overall_label"] = label
        if some:
            summary["some"] = some
        percents = {name: rounded(percent) for name, percent in percents.items()}
        summary[label] = percents.pop("overall")
        summary["tasks"] = percents
    return summary


def relabelled(summary: dict[str, Any], before: Benchmark, now: Benchmark) -> dict[str, Any]:
    """A summary with the labels that its overalls have `now`, if they are those of the benchmark as it was `before`.

    Earlier versions gave a benchmark's label also to other questions in its types, and to some of its questions.
    """
    types = [name for name, each in summary.get("types", {}).items() if each.get("percent") is not None]
    types = [name for name in types if name in before.by_name]
    if not types or before.datasets:
        return summary
    old, found = overall_label(types, before), dict(summary)
    for name in ("asked", "with_scan"):
        part = dict(found.get(name, {}))
        label = part.get("overall_label")
        if label is None or not label.endswith(old):
            continue
        answers = part["scored"] - part.get("scored_own", 0)
        number = answers // summary.get("samples", {}).get("of_each", 1)
        some = some_of(types, now, {"": number}, label != old) if now.sizes else {}
        part["overall_label"] = label.removesuffix(old) + overall_label(types, now, some)
        part[part["overall_label"]] = part.pop(label)
        found[name] = part | ({"some": some} if some else {})
    return found


def rounded(percent: float) -> float:
    """A percentage without the error of binary fractions: 77.5, not 77.49999999999999."""
    return round(percent, 10)


def _more_scores(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.get("scores", {}).items():
            values.setdefault(name, []).append(value)
    return {"scores": {name: mean(of_name) for name, of_name in values.items()}} if values else {}


def _outcomes(rows: Sequence[Row]) -> dict[str, Any]:
    statuses = Counter(row["status"] for row in rows)
    turns = [row["turns"] for row in rows if row["status"] != "failed"]
    return {
        "questions": len(rows),
        "answered": statuses["answered"],
        "exhausted": statuses["exhausted"],
        "failed": statuses["failed"],
        "without_scan": sum(row["failed_part"] == "scan" for row in rows),
        "mean_turns": mean(turns) if turns else None,
        **({"measurements": measured} if (measured := sum(row.get("measurements", 0) for row in rows)) else {}),
    }


def format_summary(summary: Mapping[str, Any], benchmark: Benchmark) -> list[str]:
    """The result of `summarize` as lines of text: counts and percent per type, and the labelled overall.

    A task of several types has a line of its own. If questions lack their scan, a table of the tasks compares the
    percentages with and without them. Known baselines have a column, which has the percent per task, and a line.
    Intervals have a column if any is known; lines say why others are missing.
    """
    known = [name for name in BASELINES if name in summary.get("baselines", {})]
    has_intervals = bool(summary.get("intervals", {}).get("percent"))
    titles = (f"{'interval':>14}" if has_intervals else "") + "".join(f"{BASELINES[name]:>10}" for name in known)

    def beside(task: str) -> str:
        """The cells of a task's interval and of its baselines."""
        percents = (summary["baselines"][name]["tasks"].get(task) for name in known)  # none for a type that is no task
        interval = f"{_interval(task, summary):>14}" if has_intervals else ""
        return interval + "".join(f"{decimal(percent):>10}" for percent in percents)

    columns = ("type", "asked", "answered", "exhausted", "failed", "no scan", "turns", "percent")
    lines = [_TYPE_LINE.format(*columns) + titles]
    for name, counts in summary["types"].items():
        cells = [counts[key] for key in ("questions", "answered", "exhausted", "failed", "without_scan")]
        numbers = [decimal(counts["mean_turns"]), decimal(counts.get("percent"))]
        lines.append(_TYPE_LINE.format(name, *cells, *numbers) + beside(name))
    asked, with_scan = summary["asked"], summary["with_scan"]
    answers = "answers" if "samples" in summary else "questions"
    if asked["questions"] == with_scan["questions"]:
        for task, percent in asked["tasks"].items():
            if task not in summary["types"]:
                lines.append(f"{f'{task}, mean of its types':<80}{percent:>9.1f}{beside(task)}")
        lines += ["", _overall_line(asked, benchmark, answers, _overall_interval(summary)) + _failed_words(summary)]
        return [*lines, *_judge_lines(summary), *no_interval_lines(summary), *_baseline_lines(summary)]
    lines += ["no scan: failed because the scan was not found, scored 0", ""]
    lines += [_TASK_LINE.format("percent per task", "asked", "with scan") + titles]
    for task, percent in asked["tasks"].items():
        percents = decimal(percent), decimal(with_scan["tasks"].get(task))
        lines.append(_TASK_LINE.format(task, *percents) + beside(task))
    denominator = f"{answers} asked (those without a scan score 0)"
    also_failed = summary["types"]["all"]["failed"] > summary["types"]["all"]["without_scan"]
    words = _failed_words(summary) if also_failed else ""
    lines += ["", _overall_line(asked, benchmark, denominator, _overall_interval(summary)) + words]
    lines += [_overall_line(with_scan, benchmark, f"{answers} with a scan"), *_judge_lines(summary)]
    return [*lines, *no_interval_lines(summary), *_baseline_lines(summary)]


def _judge_lines(summary: Mapping[str, Any]) -> list[str]:
    """How to score the answers that await a judge; none if there are none."""
    if not (awaiting := summary["asked"].get("awaiting_judge")):
        return []
    return [f"{awaiting} not scored yet: a judge scores them, with roomscout rescore RUN --judge MODEL"]


BASELINES = {"blind": "blind", "most_frequent": "frequent"}
"""The baselines of a summary, and their columns."""


def _interval(name: str, summary: Mapping[str, Any]) -> str:
    """The interval of a score, such as "81.0-91.2"; a dash for one without."""
    found = summary["intervals"]["percent"].get(name)
    return f"{found[0]:.1f}-{found[1]:.1f}" if found else "-"


def _overall_interval(summary: Mapping[str, Any]) -> str:
    """The interval of the overall in words, or ""."""
    intervals = summary.get("intervals")
    if not intervals or "overall" not in intervals["percent"]:
        return ""
    low, high = intervals["percent"]["overall"]
    return (
        f" ({low:.1f} to {high:.1f}, the {intervals['level']} % interval over {intervals['scenes']['overall']} scenes)"
    )


def no_interval_lines(summary: Mapping[str, Any]) -> list[str]:
    """Why scores have no interval: a line per reason; without any, only that of the score with most scenes."""
    if not (intervals := summary.get("intervals")):
        return []
    if not intervals["percent"]:
        most = max(intervals["missing"], key=intervals["scenes"].__getitem__)
        return [f"no {intervals['level']} % intervals: {intervals['missing'][most]}"]
    by_reason: dict[str, list[str]] = {}
    for name, reason in intervals["missing"].items():
        by_reason.setdefault(reason, []).append(name)
    return [
        f"no {intervals['level']} % interval of {', '.join(names)}: {reason}" for reason, names in by_reason.items()
    ]


def _baseline_lines(summary: Mapping[str, Any]) -> list[str]:
    """A line for each known baseline, or what it lacks."""
    lines = []
    for name, column in BASELINES.items():
        if (baseline := summary.get("baselines", {}).get(name)) is None:
            continue
        if "overall" in baseline:
            lines.append(f"{column}: {baseline['overall']:.1f} % ({baseline['source']})")
        else:
            without = ", ".join(task for task in summary["asked"]["tasks"] if task not in baseline["tasks"])
            lines.append(f"{column}: no overall, since {without} has no questions elsewhere ({baseline['source']})")
    return lines


_TYPE_LINE = "{:<28}{:>7}{:>10}{:>11}{:>8}{:>9}{:>7}{:>9}"
_TASK_LINE = "{:<28}{:>7}{:>11}"


def decimal(value: float | None) -> str:
    """A percentage with one decimal; a dash for none."""
    return "-" if value is None else f"{value:.1f}"


def _overall_line(part: Mapping[str, Any], benchmark: Benchmark, denominator: str, interval: str = "") -> str:
    label = part["overall_label"]
    if label is None:
        return f"no scored {denominator}"
    questions = part["scored"] - part.get("scored_own", 0)
    words = overall_in_words(label, part["tasks"], benchmark, part.get("some"))
    if questions == 1:
        denominator = denominator.replace("questions", "question", 1).replace("answers", "answer", 1)
    own = part.get("scored_own", 0)
    besides = f"; {part['own_percent']:.1f} % over {own} in types of your own" if "own_percent" in part else ""
    words += f" ({part['shown']})" if "shown" in part else ""
    return f"{words}: {part[label]:.1f} %{interval} over {questions} {denominator}{besides}"


def _failed_words(summary: Mapping[str, Any]) -> str:
    """How many of the questions of the overall failed, and what the others score; empty if none failed."""
    if not (failed := summary["asked"].get("failed")):
        return ""
    return f"; {failed_in_words(summary)}" if summary["asked"]["overall_label"] else f"; {failed} failed"


def failed_in_words(summary: Mapping[str, Any]) -> str:
    """How many scored questions of a summary failed, and the overall of the others; empty if none failed."""
    asked, finished = summary.get("asked", {}), summary.get("finished", {})
    if not (failed := asked.get("failed")):
        return ""
    scored = asked["scored"] - asked.get("scored_own", 0)
    words = f"{failed:,} of {scored:,} failed and score 0"
    if (label := finished.get("overall_label")) is None:
        return f"{words}, none finished"
    return f"{words}, {finished[label]:.1f} % over the {scored - failed:,} that finished"


def overall_in_words(
    label: str, tasks: Iterable[str], benchmark: Benchmark, some: Mapping[str, Any] | None = None
) -> str:
    """An overall's label. For a partial overall: the tasks and the questions (`some`, from `some_of`) that it covers.
    For questions that are not the benchmark's: their file."""
    tasks, some = list(tasks), some or {}
    if benchmark.scored_as or label.endswith("_over_questions"):
        prefix = label[: label.index(benchmark.label)].replace("_", " ") if benchmark.label in label else ""
        of = f" of {benchmark.title}" if benchmark.scored_as else " in types of your own"
        judge = benchmark.label.partition("_judged_by_")[2]
        of += f", judged by {judge.replace('_', ' ')}" if judge else ""
        if label.endswith("_over_questions"):
            return f"{prefix}mean over questions{of}"
        named = f" ({_listed_tasks(tasks, label, benchmark)})" if "_without_" in label else ""
        return f"{prefix}mean of {_counted_tasks(tasks)}{named}{of}"
    prefix, partial, missing = label.rpartition(f"partial_{benchmark.label}_")
    if not partial:
        return label
    word = benchmark.label.replace("_", " ")
    of_tasks = f"of {_counted_tasks(tasks)}"
    if not some or "_without_" in missing:
        of_tasks += f" ({_listed_tasks(tasks, missing, benchmark)})"
    of_tasks += f" and {some['questions']} questions" if "questions" in some else ""
    of_tasks += f" in {', '.join(some['datasets'])}" if "datasets" in some else ""
    return f"{prefix}partial {word} {of_tasks}"


def _counted_tasks(tasks: Sequence[str]) -> str:
    return f"{len(tasks)} task{'s' * (len(tasks) > 1)}"


def _listed_tasks(tasks: Sequence[str], missing: str, benchmark: Benchmark) -> str:
    return ", ".join(task + _without_types(task, missing, benchmark) for task in tasks)


def _without_types(task: str, missing: str, benchmark: Benchmark) -> str:
    """The types of a task that a partial overall lacks, such as " without easy and hard"."""
    of_task = [each.name for each in benchmark.types if each.task == task != each.name]
    lacking = [name.removeprefix(f"{task}_") for name in of_task if name in missing]
    return f" without {' and '.join(lacking)}" if lacking else ""


def reference_lines(summary: Mapping[str, Any], benchmark: Benchmark, frames: int | None = None) -> list[str]:
    """Published scores under the label of a summary's overall; none unless it covers as many questions as they do.

    `frames` is how many video frames a run showed, None for one that explored scans. A further line then says with
    which of them it may be compared.
    """
    label = summary["asked"]["overall_label"]
    whole = label is not None and summary["asked"]["questions"] == benchmark.sizes.get(label)
    may = [] if frames is None or not benchmark.references else [_comparable(label if whole else "", benchmark, frames)]
    if not whole:
        return may
    lines = []
    for each in benchmark.references:
        if label in each.percent:
            lines.append(f"published {label}: {each.percent[label]:.1f} % {each.name} ({each.origin})")
        elif label in each.means:
            lines.append(
                f"mean of the published task scores, {label}: {each.means[label]:.1f} % {each.name} ({each.origin})"
            )
    return lines + may


def _comparable(label: str, benchmark: Benchmark, frames: int) -> str:
    """With which published scores under this label a run on video frames may be compared, or why with none; an empty
    label is that of a run over other questions."""
    if not label:
        return f"comparable published scores: none, since they are over all questions of {benchmark.title}"
    listed = [each for each in benchmark.references if (label in each.percent or label in each.means) and each.protocol]
    same = [f"{each.name} ({each.framework})" for each in listed if each.frames == frames]
    if same:
        return f"comparable published scores, also on {frames} frames: {', '.join(same)}; the size of frames may differ"
    known = sorted({each.frames for each in listed} - {0})
    others = f"they have {', '.join(map(str, known))}, or do not say how many" if known else "they do not say how many"
    return f"comparable published scores: none on {frames} frames; {others}, which moves scores by several points"


def part_lines(setting: Callable[[str], Any], summary: Mapping[str, Any], benchmark: Benchmark) -> list[str]:
    """A line for a run that asked only a part of its benchmark's own questions, with the flags that chose them.

    `setting` has the settings of the run by name. Question types are not named, since labels name them.
    """
    label, flags = summary["asked"]["overall_label"], ("datasets", "scenes", "ids", "num_questions")
    chosen = ["--" + name.replace("_", "-") for name in flags if setting(name)]
    if not chosen or label is None or setting("questions") is not None:
        return []
    if summary["asked"]["questions"] == benchmark.sizes.get(label):
        return []
    return [f"a part of {benchmark.title} ({', '.join(chosen)}): compare the overall only over the same questions"]
