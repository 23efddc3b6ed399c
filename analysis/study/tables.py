"""The results of a study: scores and differences of its cells, as a CSV file, as Markdown and as a plot."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.answers import Answers, read_answers
from roomscout.analysis.compare.comparison import Comparison, compare
from roomscout.analysis.compare.conditions import PROTOCOL
from roomscout.analysis.report.svg import Drawing, Scale, ticks, x_axis, y_axis
from roomscout.analysis.study.presets import Cell, Preset
from roomscout.data.intervals import LEVEL, Difference, Estimate, estimates
from roomscout.data.text import escaped

OVERALL = "overall"
COLUMNS = (
    "cell", "task", "percent", "low", "high", "difference", "difference_low", "difference_high", "p", "p_holm",
    "scenes", "moves", "never_saw", "failed",
)  # fmt: skip
"""The columns of the CSV file. "moves" is the mean number of moves, "never_saw" the percentage of the answers that
never saw an object of their question; these and "failed" are only in the rows of the overall."""


@dataclass(frozen=True)
class Score:
    """A score of a cell, in percent, and its difference to the same score of the first cell; None in the first."""

    estimate: Estimate
    difference: Difference | None
    p_holm: float | None


@dataclass(frozen=True)
class CellResult:
    """The scores of a cell by task, with the overall last. `moves` and `never_saw` are None if they are unknown."""

    cell: Cell
    answers: Answers
    scores: Mapping[str, Score]
    moves: float | None
    never_saw: float | None
    failed: int

    @property
    def overall(self) -> Score | None:
        """The overall; None if nothing is scored."""
        return self.scores.get(OVERALL)


@dataclass(frozen=True)
class Results:
    """The cells of a study in their order."""

    preset: Preset
    cells: tuple[CellResult, ...]
    label: str
    questions: int
    scenes: int

    @property
    def tasks(self) -> list[str]:
        """The names of the scores, the overall last."""
        return list(self.cells[0].scores)

    @property
    def knows_sight(self) -> bool:
        """Whether any cell knows what was in view."""
        return any(each.never_saw is not None for each in self.cells)


def results_of(preset: Preset, runs: Sequence[Path], answer_settings: Sequence[str]) -> Results:
    """The results of finished runs, one for each cell; raises RunError if they cannot be compared."""
    named = [
        replace(answers, name=cell.name)
        for cell, answers in zip(preset.cells, read_answers(runs, answer_settings), strict=True)
    ]
    found = compare(named, (PROTOCOL,))
    cells = tuple(
        _cell_result(cell, place, answers, found)
        for place, (cell, answers) in enumerate(zip(preset.cells, named, strict=True))
    )
    return Results(preset, cells, found.partial or found.label, found.questions, found.scenes)


def _cell_result(cell: Cell, place: int, answers: Answers, found: Comparison) -> CellResult:
    pair = found.pairs[place - 1] if place else None
    names = [each.name for each in found.pairs[0].differences]
    known = {each.name: each for each in estimates(answers.rows, answers.benchmark)}
    gained = {each.name: each for each in pair.differences} if pair else {}
    adjusted = pair.adjusted if pair else {}
    everything = answers.summary["types"]["all"]
    return CellResult(
        cell,
        answers,
        {name: Score(known[name], gained.get(name), adjusted.get(name)) for name in names},
        None if everything["mean_turns"] is None else everything["mean_turns"] - 1,
        _never_saw(answers.summary),
        everything["failed"],
    )


def _never_saw(summary: Mapping[str, Any]) -> float | None:
    """The percentage of the answers, of those whose objects are known, that never saw one of them."""
    groups = summary.get("sight", {}).get("types", {}).get("all")
    if not groups:
        return None
    return 100 * groups.get("never_saw", {"answers": 0})["answers"] / sum(each["answers"] for each in groups.values())


def csv_of(results: Results) -> str:
    """All scores as CSV, a row for each cell and task."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for each in results.cells:
        for task, score in each.scores.items():
            estimate, gain = score.estimate, score.difference
            low, high = estimate.interval or (None, None)
            writer.writerow(
                [
                    each.cell.name, task, *_rounded(estimate.percent, low, high),
                    *_rounded(*(gain.percent, *(gain.interval or (None, None))) if gain else (None, None, None)),
                    *_rounded(gain.p_value if gain else None, score.p_holm), estimate.scenes,
                    *([*_rounded(each.moves, each.never_saw), each.failed] if task == OVERALL else ["", "", ""]),
                ]
            )  # fmt: skip
    return out.getvalue()


def _rounded(*values: float | None) -> list[str]:
    return ["" if value is None else f"{value:.4f}" for value in values]


def cell_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table of the cells: its heads, and a row of texts for each cell."""
    first = results.cells[0].cell.name
    heads = [
        "cell", "overall", f"{_level()} interval", f"minus {first}", f"{_level()} interval", "p (Holm)", "mean moves"
    ]  # fmt: skip
    heads += ["never saw"] if results.knows_sight else []
    heads += ["failed"] if any(each.failed for each in results.cells) else []
    rows = []
    for each in results.cells:
        cells = [each.cell.name, *_overall_cells(each.overall), _number(each.moves)]
        cells += [_number(each.never_saw, " %")] if results.knows_sight else []
        cells += [str(each.failed)] if "failed" in heads else []
        rows.append(cells)
    return heads, rows


def _overall_cells(score: Score | None) -> list[str]:
    if score is None:
        return ["-"] * 5
    gain = score.difference
    p = "-" if score.p_holm is None else "<0.001" if score.p_holm < 0.001 else f"{score.p_holm:.3f}"
    return [
        f"{score.estimate.percent:.1f}", interval_in_words(score.estimate.interval),
        f"{gain.percent:+.1f}" if gain else "-",
        interval_in_words(gain.interval, signed=True) if gain else "-", p,
    ]  # fmt: skip


def task_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table of the tasks: its heads, and a row for each task with the score and the interval in each cell."""
    rows = []
    for task in results.tasks:
        scores = [each.scores[task].estimate for each in results.cells]
        rows.append([task, *(_score_cell(each) for each in scores)])
    return ["percent", *(each.cell.name for each in results.cells)], rows


def _score_cell(each: Estimate) -> str:
    return f"{each.percent:.1f} ({interval_in_words(each.interval)})" if each.interval else f"{each.percent:.1f}"


def interval_in_words(interval: tuple[float, float] | None, signed: bool = False) -> str:
    """An interval such as "41.2 to 50.3", or with signs; a dash for none."""
    if interval is None:
        return "-"
    return " to ".join(f"{edge:+.1f}" if signed else f"{edge:.1f}" for edge in interval)


def notes_of(results: Results) -> list[str]:
    """What a reader of the tables must know, a sentence each."""
    first = results.cells[0].cell.name
    notes = [f"Intervals are over scenes; differences are paired by scene, in percentage points, to {first}."]
    if missing := dict.fromkeys(
        each.estimate.missing
        for result in results.cells
        for each in result.scores.values()
        if each.estimate.missing and not each.estimate.interval
    ):
        notes.append(f"Some scores have no interval: {'; '.join(missing)}.")
    if results.knows_sight:
        notes.append("“never saw”: the answers, of those whose objects are known, that never had one of them in view.")
    return notes


def markdown_of(results: Results, title: str) -> str:
    """The tables as Markdown."""
    lines = [f"# {title}", "", results.preset.does, "", f"{about(results)}.", ""]
    for heads, rows in (cell_table(results), task_table(results)):
        lines += ["| " + " | ".join(heads) + " |", "|---" + "|---:" * (len(heads) - 1) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
        lines.append("")
    lines += [f"- {note}" for note in notes_of(results)]
    return "".join(f"{escaped(line)}\n" for line in lines)


def about(results: Results) -> str:
    """What was asked, in a line."""
    label = results.label or "no overall"
    return f"{results.questions:,} questions about {results.scenes:,} scenes in each cell; {label}"


def lines_of(results: Results) -> list[str]:
    """The table of the cells as text for a terminal."""
    heads, rows = cell_table(results)
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    lines = [
        "  ".join(
            text.ljust(width) if place == 0 else text.rjust(width)
            for place, (text, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in [heads, *rows]
    ]
    return [escaped(line) for line in [about(results), *lines, *notes_of(results)[1:]]]


def plot_of(results: Results) -> str:
    """The overall of each cell with its interval, as SVG: a curve by the number of moves if the cells have one."""
    if any(each.overall is None for each in results.cells):
        return ""
    if all(each.cell.moves is not None for each in results.cells):
        return _curves(results)
    return _dots(results)


def _edges(results: Results) -> list[float]:
    scores = [each.overall for each in results.cells if each.overall is not None]
    return [edge for each in scores for edge in (each.estimate.percent, *(each.estimate.interval or ()))]


def _range(values: Sequence[float]) -> tuple[float, float]:
    space = 0.08 * (max(values) - min(values)) or 5.0
    return max(0.0, min(values) - space), min(100.0, max(values) + space)


def _dots(results: Results) -> str:
    """A row for each cell, with a dashed line at the first one."""
    left, width, row_height, top = 90, 450, 28, 10
    low, high = _range(_edges(results))
    bottom = top + row_height * len(results.cells) + 4
    drawing = Drawing(width, bottom + 44, "The overall of each cell with its interval")
    scale = Scale(low, high, left, width - 20)
    x_axis(drawing, scale, ticks(low, high), top - 4, bottom, f"overall, percent, with {_level()} interval")
    for row, each in enumerate(results.cells):
        middle = top + row_height * (row + 0.5)
        assert each.overall is not None
        estimate = each.overall.estimate
        if row == 0:
            drawing.line(scale(estimate.percent), top - 4, scale(estimate.percent), bottom, "ideal")
        drawing.text(left - 8, middle + 4, escaped(each.cell.name), "name end")
        if estimate.interval:
            drawing.line(scale(estimate.interval[0]), middle, scale(estimate.interval[1]), middle, "whisker")
            for edge in estimate.interval:
                drawing.line(scale(edge), middle - 4, scale(edge), middle + 4, "whisker")
        drawing.circle(scale(estimate.percent), middle, 5, "dot", _point_in_words(each.cell.name, estimate))
    return drawing.svg


def _curves(results: Results) -> str:
    """The overall by the number of moves, a curve for each series; the horizontal axis has a step per number."""
    left, right, width, height, top = 64, 70, 450, 280, 12
    low, high = _range(_edges(results))
    numbers = sorted({each.cell.moves for each in results.cells if each.cell.moves is not None})
    across, up = Scale(-0.3, len(numbers) - 0.7, left, width - right), Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by the number of moves")
    y_axis(drawing, up, ticks(low, high), left, width - right, "overall, percent")
    drawing.line(left, up.start, width - right, up.start, "axis")
    for place, moves in enumerate(numbers):
        drawing.text(across(place), up.start + 16, str(moves), "tick middle")
    drawing.text((left + width - right) / 2, up.start + 36, "maximum number of moves", "label middle")
    for order, series in enumerate(dict.fromkeys(each.cell.series for each in results.cells if each.cell.series)):
        shift, style = 8 * order - 4, " outside" * order
        points = []
        for each in results.cells:
            if each.cell.series in ("", series) and each.overall is not None and each.cell.moves is not None:
                x = across(numbers.index(each.cell.moves)) + (shift if each.cell.series else 0)
                points.append((x, each.overall.estimate, each.cell.name))
        for (x, one, _), (next_x, other, _) in pairwise(points):
            drawing.line(x, up(one.percent), next_x, up(other.percent), "ideal" if order else "whisker")
        for x, one, name in points:
            if one.interval:
                drawing.line(x, up(one.interval[0]), x, up(one.interval[1]), "axis")
            drawing.circle(x, up(one.percent), 5, f"dot{style}", _point_in_words(name, one))
        x, last, _ = points[-1]
        drawing.text(x + 12, up(last.percent) + 4 + 12 * order - 6, series, "name start")
    return drawing.svg


def _point_in_words(name: str, estimate: Estimate) -> str:
    return escaped(f"{name}: {_score_cell(estimate)}")


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:.1f}{unit}"


def _level() -> str:
    return f"{round(100 * LEVEL)} %"
