"""VSI-Bench's official scores, their means, and the summary of a run."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from data.questions import NUMERIC_TYPES, OPEN_CHOICE_TYPE, OPEN_TYPES, QUESTION_TYPES, VIDEO_ONLY_TYPES, Question

Row = Mapping[str, Any]

# Thresholds of relative accuracy, 1 - relative error. Computed like the official scorer's: the literals 0.55, 0.6, ...
# differ in the last bit, which changes ties such as 3 against 4.
MRA_THRESHOLDS = np.linspace(0.5, 0.95, 10)
TASKS = tuple(dict.fromkeys(kind.task for kind in QUESTION_TYPES.values()))
SCAN_TASKS = tuple(dict.fromkeys(kind.task for name, kind in QUESTION_TYPES.items() if name not in VIDEO_ONLY_TYPES))


def score_answer(question_type: str, answer: str | float | None, ground_truth: str) -> float:
    """The official VSI-Bench score of one answer, 0..1.

    Only the answer's first word counts: the text before the first space, without trailing periods. A letter scores 1 or
    0, ignoring case. A number scores its mean relative accuracy: the fraction of the ten MRA_THRESHOLDS t with
    |answer - truth| / truth <= 1 - t. None scores 0, as does text instead of a number. As in the official scorer, the
    first word of an answer that *begins* with a space is empty.

    Source: vision-x-nyu/thinking-in-space, lmms_eval/tasks/vsibench/utils.py, and arXiv:2412.14171, section 3.

    Raises ValueError for a type that is not scored, or a numeric `ground_truth` that is not a finite number above 0.
    """
    if question_type not in (*QUESTION_TYPES, OPEN_CHOICE_TYPE.name):
        raise ValueError(f"question type {question_type!r} is not scored")
    numeric = question_type in NUMERIC_TYPES
    truth = float(ground_truth) if numeric else math.nan
    if numeric and not 0 < truth < math.inf:
        raise ValueError(f"ground truth {ground_truth!r} of {question_type} must be a finite number above 0")
    if answer is None:
        return 0.0
    word = str(answer).split(" ")[0].rstrip(".").strip()
    return _relative_accuracy(word, truth) if numeric else float(word.lower() == ground_truth.lower())


def _relative_accuracy(word: str, truth: float) -> float:
    try:
        number = float(word)
    except ValueError:
        return 0.0
    return float(np.mean(abs(number - truth) / truth <= 1 - MRA_THRESHOLDS))


def aggregate(rows: Iterable[Row]) -> dict[str, float]:
    """Percent per task and "overall", from rows with `question_type` and `score` (0..1).

    A task's value is the mean over its questions; for object_rel_direction, the mean of its easy, medium and hard means
    (those present). "overall" is the mean over the tasks present. With all three direction types, this equals the
    official aggregation (same source as `score_answer`) in percent.

    Ignores rows of OPEN_TYPES and rows without a ground truth: `ground_truth` is None, or is missing and `score` is
    None. Returns {} if no rows remain.

    Raises ValueError for an unknown type, for a score outside 0..1, and for a score of None despite a ground truth (an
    unanswered question scores 0).
    """
    by_task: dict[str, list[float]] = {}
    for name, scores in _scores_by_type(rows).items():
        by_task.setdefault(QUESTION_TYPES[name].task, []).append(float(np.mean(scores)))
    means = {task: sum(parts) / len(parts) for task, parts in by_task.items()}
    percents = {task: 100 * mean for task, mean in means.items()}
    if means:
        # A float sum depends on its order. The official order is alphabetical with the direction mean last.
        official_order = sorted(means, key=lambda task: (task == "object_rel_direction", task))
        percents["overall"] = 100 * (sum(means[task] for task in official_order) / len(means))
    return percents


def _scores_by_type(rows: Iterable[Row]) -> dict[str, list[float]]:
    """Scores by question type, in the order of QUESTION_TYPES."""
    scores: dict[str, list[float]] = {name: [] for name in QUESTION_TYPES}
    for row in filter(_is_scored, rows):
        score = _score(row)  # raises for an unknown type
        scores[row["question_type"]].append(score)
    return {name: values for name, values in scores.items() if values}


def _is_scored(row: Row) -> bool:
    if row["question_type"] in OPEN_TYPES:
        return False
    return row["ground_truth"] is not None if "ground_truth" in row else row["score"] is not None


def _scored_own(rows: Iterable[Row]) -> list[Row]:
    """The scored rows of the user's own questions."""
    return [row for row in rows if row["question_type"] in OPEN_TYPES and row["score"] is not None]


def _score(row: Row) -> float:
    score, name = row["score"], row["question_type"]
    if name not in QUESTION_TYPES:
        raise ValueError(f"unknown question type {name!r} in a row of results")
    if not isinstance(score, int | float) or not 0 <= score <= 1:
        raise ValueError(f"score {score!r} of a {name} question is not between 0 and 1; a missing answer scores 0")
    return float(score)


def summarize(rows: Iterable[Row], owed: int = 0, part: str = "") -> dict[str, Any]:
    """A JSON-serializable summary of the finished questions, while `owed` others are pending.

    Rows have `question_type`, `score`, `status` ("answered", "exhausted" or "failed"), `failed_part` (None, "scan",
    "scene", "render" or "model") and `turns`. `aggregate` defines which rows are scored. The keys are

    - "owed": the number of pending questions.
    - "asked": percentages over all questions. A question without a scan scores 0.
    - "with_scan": percentages over the questions with a scan.
    - "types": per question type and for "all", the counts "questions", "answered", "exhausted", "failed" and
      "without_scan"; "mean_turns" of questions that did not fail (None if all did); and, except for "all", "percent"
      over all questions (None if none was scored).

    "asked" and "with_scan" contain "questions", "scored", "scored_own" (how many of the scored questions are the user's
    own, which count towards no task or overall), "tasks" (percent per task) and the overall. "overall_label" is the key
    of the overall: the result of `overall_label`, prefixed with "unfinished_" while questions are pending, and with
    `part`, such as "part_2_of_8", for a part of a run. Compare overalls only if labels and questions are equal.
    """
    rows = list(rows)
    with_scan = [row for row in rows if row["failed_part"] != "scan"]
    names = [name for name in (*QUESTION_TYPES, *OPEN_TYPES) if any(row["question_type"] == name for row in rows)]
    types: dict[str, dict[str, Any]] = {}
    for name in names:
        of_type = [row for row in rows if row["question_type"] == name]
        scores = [_score(row) for row in of_type if _is_scored(row)] + [row["score"] for row in _scored_own(of_type)]
        types[name] = _counts(of_type) | {"percent": 100 * float(np.mean(scores)) if scores else None}
    types["all"] = _counts(rows)
    return {
        "owed": owed,
        "asked": _percentages(rows, owed, part),
        "with_scan": _percentages(with_scan, owed, part),
        "types": types,
    }


def overall_label(question_types: Iterable[str]) -> str:
    """The name of an overall over questions of these types. Overalls with equal names are comparable.

    "overall_7_task" covers the nine types that a scan can answer: all but the order in the video. "overall_8_task"
    covers all ten types and is the benchmark's published overall. Any other overall is not a benchmark number: its
    name starts with "partial_overall", lists which of the seven tasks are missing (or which direction types, if only
    some are), and ends with the video task if that is included.
    """
    present = set(question_types)
    missing = [name for name in QUESTION_TYPES if name not in present and name not in VIDEO_ONLY_TYPES]
    with_video = bool(present & VIDEO_ONLY_TYPES)
    if not missing:
        return f"overall_{len(TASKS) if with_video else len(SCAN_TASKS)}_task"
    present_tasks = {QUESTION_TYPES[name].task for name in present}
    missing = [name if QUESTION_TYPES[name].task in present_tasks else QUESTION_TYPES[name].task for name in missing]
    label = f"partial_overall_{len(present_tasks)}_task_without_{'+'.join(dict.fromkeys(missing))}"
    return label + (f"_with_{'+'.join(sorted(VIDEO_ONLY_TYPES))}" if with_video else "")


def _percentages(rows: Sequence[Row], owed: int, part: str) -> dict[str, Any]:
    percents = aggregate(rows)
    scored = [row for row in rows if _is_scored(row)]
    own = len(_scored_own(rows))
    summary: dict[str, Any] = {"questions": len(rows), "scored": len(scored) + own, "scored_own": own}
    summary |= {"overall_label": None, "tasks": {}}
    if percents:
        label = (f"{part}_" if part else "") + ("unfinished_" if owed else "")
        label += overall_label(row["question_type"] for row in scored)
        summary["overall_label"] = label
        summary[label] = percents.pop("overall")
        summary["tasks"] = percents
    return summary


def _counts(rows: Sequence[Row]) -> dict[str, Any]:
    statuses = Counter(row["status"] for row in rows)
    turns = [row["turns"] for row in rows if row["status"] != "failed"]
    return {
        "questions": len(rows),
        "answered": statuses["answered"],
        "exhausted": statuses["exhausted"],
        "failed": statuses["failed"],
        "without_scan": sum(row["failed_part"] == "scan" for row in rows),
        "mean_turns": float(np.mean(turns)) if turns else None,
    }


def format_summary(summary: Mapping[str, Any]) -> list[str]:
    """The result of `summarize` as lines of text: counts per type, percent per task, and labelled overalls."""
    lines = [_TYPE_LINE.format("type", "asked", "answered", "exhausted", "failed", "no scan", "turns", "percent")]
    for name, counts in summary["types"].items():
        cells = [counts[key] for key in ("questions", "answered", "exhausted", "failed", "without_scan")]
        numbers = [_decimal(counts["mean_turns"]), _decimal(counts.get("percent"))]
        lines.append(_TYPE_LINE.format(name, *cells, *numbers))
    lines += [_LEGEND, ""]
    asked, with_scan = summary["asked"], summary["with_scan"]
    if asked["questions"] == with_scan["questions"]:
        lines += ["percent per task", *(f"{task:<28}{percent:>7.1f}" for task, percent in asked["tasks"].items())]
        return [*lines, "", _overall_line(asked)]
    lines += [_TASK_LINE.format("percent per task", "asked", "with scan")]
    for task, percent in asked["tasks"].items():
        lines.append(_TASK_LINE.format(task, _decimal(percent), _decimal(with_scan["tasks"].get(task))))
    lines += ["", _overall_line(asked, " asked (those without a scan score 0)")]
    return [*lines, _overall_line(with_scan, " with a scan")]


_LEGEND = "exhausted: no answer by the last turn, scored 0; no scan: failed because the scan was not found"
_TYPE_LINE = "{:<28}{:>7}{:>10}{:>11}{:>8}{:>9}{:>7}{:>9}"
_TASK_LINE = "{:<28}{:>7}{:>11}"


def _decimal(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _overall_line(part: Mapping[str, Any], denominator: str = "") -> str:
    label = part["overall_label"]
    if label is None:
        return f"no scored questions{denominator}"
    questions = part["scored"] - part.get("scored_own", 0)
    return f"{_overall_in_words(label, part['tasks'])}: {part[label]:.1f} % over {questions} questions{denominator}"


def _overall_in_words(label: str, tasks: Iterable[str]) -> str:
    """An overall's label; for a partial overall, the tasks that it includes instead of the missing ones."""
    prefix, partial, missing = label.rpartition("partial_overall_")
    if not partial:
        return label
    names = [task + _without_levels(task, missing) for task in tasks]
    return f"{prefix}partial overall of {len(names)} task{'s' * (len(names) > 1)} ({', '.join(names)})"


def _without_levels(task: str, missing: str) -> str:
    kinds = [kind.name for kind in QUESTION_TYPES.values() if kind.task == task != kind.name]
    levels = [name.removeprefix(f"{task}_") for name in kinds if name in missing]
    return f" without {' and '.join(levels)}" if levels else ""


def most_frequent_answer(questions: Iterable[Question]) -> dict[str, float]:
    """`aggregate` for a policy that always gives the type's most frequent ground truth (the first one on ties).

    This is the benchmark's "chance level (frequency)" baseline (arXiv:2412.14171, section 4). Ignores open questions
    and questions without a ground truth.
    """
    truths: dict[str, list[str]] = {}
    for question in questions:
        if question.ground_truth is not None and question.question_type not in OPEN_TYPES:
            truths.setdefault(question.question_type, []).append(question.ground_truth)
    rows = []
    for name, of_type in truths.items():
        answer = Counter(of_type).most_common(1)[0][0]
        rows += [{"question_type": name, "score": score_answer(name, answer, truth)} for truth in of_type]
    return aggregate(rows)
