"""The results of a study: scores and differences of its cells, as a CSV file, as Markdown and as a plot."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from roomscout.analysis.compare.answers import Answers, QuestionKey, read_answers
from roomscout.analysis.compare.comparison import Comparison, compare
from roomscout.analysis.compare.conditions import PROTOCOL
from roomscout.analysis.report.svg import Dot, Drawing, Scale, dot_plot, steps_axis, ticks, y_axis
from roomscout.analysis.study.ladder import Losses, largest, loss_plot, losses_of
from roomscout.analysis.study.presets import Cell, Preset
from roomscout.analysis.tables import (
    INTERVAL,
    counted,
    csv_of_rows,
    decimal,
    interval_in_words,
    markdown_table,
    p_in_words,
    table_lines,
)
from roomscout.base.text import escaped, in_markdown
from roomscout.runs import RunError
from roomscout.scoring.intervals import Difference, Estimate, estimates

OVERALL = "overall"


@dataclass(frozen=True)
class Score:
    """A score of a cell, in percent, and its difference to the same score of the first cell; None in the first."""

    estimate: Estimate
    difference: Difference | None
    p_holm: float | None


@dataclass(frozen=True)
class CellResult:
    """The scores of a cell by task, with the overall last. `moves` and `never_saw` are None if they are unknown.

    `by_turn` has the overall by turn, if each were the last (--anytime); empty if it is not known.
    """

    cell: Cell
    answers: Answers
    scores: Mapping[str, Score]
    moves: float | None
    never_saw: float | None
    failed: int
    by_turn: tuple[Estimate, ...] = ()

    @property
    def overall(self) -> Score | None:
        """The overall; None if nothing is scored."""
        return self.scores.get(OVERALL)


@dataclass(frozen=True)
class Results:
    """The cells of a study in their order. All scores are over `questions` questions that every cell finished.

    `left_out` counts those that failed in a cell. `losses` are those of a ladder, else empty.
    """

    preset: Preset
    cells: tuple[CellResult, ...]
    label: str
    questions: int
    scenes: int
    left_out: int
    losses: Losses = field(default_factory=dict)

    @property
    def tasks(self) -> list[str]:
        """The names of the scores, the overall last."""
        return list(self.cells[0].scores)

    @property
    def knows_sight(self) -> bool:
        """Whether any cell knows what was in view."""
        return any(each.never_saw is not None for each in self.cells)

    @property
    def turns(self) -> int:
        """The largest number of turns of a cell that has the overall by turn; 0 if none has it."""
        return max(len(each.by_turn) for each in self.cells)


def results_of(preset: Preset, runs: Sequence[Path]) -> Results:
    """The results of finished runs, one for each cell; raises RunError if they cannot be compared."""
    named = [replace(answers, name=cell.name) for cell, answers in zip(preset.cells, read_answers(runs), strict=True)]
    failed = frozenset[QuestionKey]().union(*(each.failed for each in named))
    named = [each.without(failed) for each in named]
    for each in named:
        if not each.by_question:
            raise RunError(
                f"{each.path}: no question is finished in every cell; the same command with --retry-failed asks those "
                "again that failed"
            )
    found = compare(named, (PROTOCOL,))
    cells = tuple(
        _cell_result(cell, place, answers, found)
        for place, (cell, answers) in enumerate(zip(preset.cells, named, strict=True))
    )
    overall = found.pairs[0].partial or str(found.pairs[0].label)
    losses = losses_of(preset.steps, named) if preset.steps else {}
    return Results(preset, cells, overall, found.questions, found.scenes, len(failed), losses)


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
        never_saw(answers.summary),
        everything["failed"],
        _by_turn(answers.summary, known[OVERALL].scenes if OVERALL in known else 0),
    )


def _by_turn(summary: Mapping[str, Any], scenes: int) -> tuple[Estimate, ...]:
    """The overall by turn of a run with --anytime."""
    found = summary.get("anytime", {}).get("by_turn", [])
    if any(each["percent"] is None for each in found):
        return ()
    edges = [(each["interval"][0], each["interval"][1]) if each["interval"] else None for each in found]
    return tuple(
        Estimate(f"turn {each['turn']}", each["percent"], scenes, interval)
        for each, interval in zip(found, edges, strict=True)
    )


def never_saw(summary: Mapping[str, Any]) -> float | None:
    """The percentage of answers that never saw an object, of those to questions that need one with a known box."""
    groups = summary.get("sight", {}).get("types", {}).get("all", {})
    need_one = sum(each["answers"] for verdict, each in groups.items() if verdict != "no_object")
    return 100 * groups.get("never_saw", {"answers": 0})["answers"] / need_one if need_one else None


def csv_of(results: Results) -> str:
    """All scores as CSV, a row for each cell and task.

    "moves" is the mean number of moves, "never_saw" the percentage of the answers that never saw an object of their
    question; these and "failed" are only in the rows of the overall.
    """
    return csv_of_rows(
        [
            _csv_row(each, *scored) | _csv_loss(results, place, scored[0])
            for place, each in enumerate(results.cells)
            for scored in each.scores.items()
        ]
    )


def _csv_loss(results: Results, place: int, task: str) -> dict[str, str]:
    """What a cell of a ladder lacks to the next one, or the last one to 100 percent; empty for other studies."""
    if task not in results.losses:
        return {}
    loss = results.losses[task][place]
    edges = [loss.percent, *(loss.interval or (None, None))]
    return {"step": loss.name, **dict(zip(("loss", "loss_low", "loss_high"), map(_rounded, edges), strict=True))}


def _csv_row(of: CellResult, task: str, score: Score) -> dict[str, Any]:
    estimate, gain, of_cell = score.estimate, score.difference, of if task == OVERALL else None
    low, high = estimate.interval or (None, None)
    gain_low, gain_high = (gain.interval if gain else None) or (None, None)
    return {
        "cell": of.cell.name,
        "task": task,
        "percent": _rounded(estimate.percent),
        "low": _rounded(low),
        "high": _rounded(high),
        "difference": _rounded(gain.percent if gain else None),
        "difference_low": _rounded(gain_low),
        "difference_high": _rounded(gain_high),
        "p": _rounded(gain.p_value if gain else None),
        "p_holm": _rounded(score.p_holm),
        "scenes": estimate.scenes,
        "moves": _rounded(of_cell.moves if of_cell else None),
        "never_saw": _rounded(of_cell.never_saw if of_cell else None),
        "failed": of_cell.failed if of_cell else "",
    }


def _rounded(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def cell_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table of the cells: its heads, and a row of texts for each cell."""
    first = results.cells[0].cell.name
    heads = ["cell", "overall", INTERVAL, f"minus {first}", INTERVAL, "p (Holm)", "mean moves"]
    heads += ["never saw"] if results.knows_sight else []
    heads += ["failed"] if any(each.failed for each in results.cells) else []
    rows = []
    for each in results.cells:
        cells = [each.cell.name, *_overall_cells(each.overall), decimal(each.moves)]
        cells += ["-" if each.never_saw is None else f"{each.never_saw:.1f} %"] if results.knows_sight else []
        cells += [str(each.failed)] if "failed" in heads else []
        rows.append(cells)
    return heads, rows


def _overall_cells(score: Score | None) -> list[str]:
    if score is None:
        return ["-"] * 5
    gain = score.difference
    difference = [f"{gain.percent:+.1f}", interval_in_words(gain.interval, "+.1f")] if gain else ["-", "-"]
    scored = f"{score.estimate.percent:.1f}", interval_in_words(score.estimate.interval)
    return [*scored, *difference, p_in_words(score.p_holm)]


def task_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table of the tasks: its heads, and a row for each task with the score and the interval in each cell."""
    rows = [[task, *(_dot(each.scores[task].estimate).in_words for each in results.cells)] for task in results.tasks]
    return ["percent", *(each.cell.name for each in results.cells)], rows


def turn_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table of the overall by turn, if each were the last: its heads, and a row for each cell that has it.

    Its last columns count the answers that came too early or too late, of those that could, and the worsened ones.
    """
    rows = []
    for each in results.cells:
        if each.by_turn:
            scores, found = [_dot(score).in_words for score in each.by_turn], each.answers.summary["anytime"]
            early, late = found.get("too_early"), found["too_late"]
            rows.append(
                [
                    each.cell.name, *scores, *["-"] * (results.turns - len(scores)),
                    f"{early['below_full']} of {early['with_moves_left']}" if early else "-",
                    f"{late['as_good_earlier']} of {late['above_zero']}",
                    f"{found['better_earlier']} of {found['answers']}",
                ]
            )  # fmt: skip
    turns = [f"turn {turn}" for turn in range(results.turns)]
    return ["overall", *turns, "too early", "too late", "better earlier"], rows


def loss_table(results: Results) -> tuple[list[str], list[list[str]]]:
    """The table of a ladder's steps: its heads, and a row for each task; a row adds up to 100."""
    first = results.cells[0]
    rows = [
        [
            task, f"{first.scores[task].estimate.percent:.1f}", *(_dot(each).in_words for each in of_task),
            largest(of_task).name,
        ]
        for task, of_task in results.losses.items()
    ]  # fmt: skip
    return ["points lost", first.cell.name, *results.preset.steps, "most in"], rows


def conditions_of_cells(results: Results) -> list[tuple[str, str]]:
    """The protocol of the cells in pairs of a name and a text: what all have in common once, then the rest of each."""
    parts = {each.cell.name: each.answers.protocol.split(", ") for each in results.cells}
    first, *others = parts.values()
    common = [part for part in first if all(part in other for other in others)]
    own = {name: ", ".join(part for part in of_cell if part not in common) for name, of_cell in parts.items()}
    return [("all cells", ", ".join(common)), *((name, text) for name, text in own.items() if text)]


def notes_of(results: Results) -> list[str]:
    """What a reader of the tables must know, a sentence each."""
    first = results.cells[0].cell.name
    notes = [f"Intervals are over scenes; differences are paired by scene, in percentage points, to “{first}”."]
    if results.left_out:
        whole = "“mean moves” and “never saw” are" if results.knows_sight else "“mean moves” is"
        these = "1 question" if results.left_out == 1 else f"{results.left_out:,} questions"
        notes.append(
            f"Scores and differences leave out {these} that failed in a cell: an error of the scan, the renderer or "
            "the server says nothing of the model. The same command with --retry-failed asks them "
            f"again. {whole} over all questions of a cell."
        )
        if results.turns:
            notes.append("In the table by turn, failed questions score 0.")
    if missing := dict.fromkeys(
        each.estimate.missing
        for result in results.cells
        for each in result.scores.values()
        if each.estimate.missing and not each.estimate.interval
    ):
        notes.append(f"Some scores have no interval: {'; '.join(missing)}.")
    if results.knows_sight:
        notes.append(
            "“never saw”: the share of the answers that never had an object of their question in view, of those to "
            "questions that name objects with known boxes."
        )
    if results.losses:
        notes.append(
            f"A row of the steps adds up to 100: the score with “{first}”, then what each truth adds to that, "
            "and what is lacking at the end. A negative step: with that truth, the model scores less."
        )
    if results.turns:
        notes.append(
            "By turn: the overall if each turn were the last; a question that has ended before keeps its answer. “too "
            "early”: perhaps so, answers below full score, of those with moves left. “too late”: answers as good at an "
            "earlier turn, of those above 0. “better earlier”: answers that score less than at an earlier turn."
        )
    return notes


def markdown_of(results: Results, title: str) -> str:
    """The tables as Markdown."""
    lines = [f"# {title}", "", results.preset.does, "", f"{about(results)}.", ""]
    tables = [cell_table(results), *([turn_table(results)] if results.turns else [])]
    tables += [*([loss_table(results)] if results.losses else []), task_table(results)]
    for heads, rows in tables:
        lines += [*markdown_table(heads, rows), ""]
    lines += [f"- {note}" for note in notes_of(results)]
    return "".join(f"{in_markdown(line)}\n" for line in lines)


def about(results: Results) -> str:
    """What was asked, in a line."""
    apart = f" that every cell finished ({results.left_out:,} failed in one)" if results.left_out else " in each cell"
    label = results.label or "no overall"
    return f"{counted(results.questions, 'question')} about {counted(results.scenes, 'scene')}{apart}; {label}"


def lines_of(results: Results) -> list[str]:
    """The table of the cells as text for a terminal."""
    lines = table_lines(*cell_table(results), numbers=True)
    if results.turns:
        lines += ["", *table_lines(*turn_table(results), numbers=True)]
    if results.losses:
        lines += ["", *table_lines(*loss_table(results), numbers=True)]
    return [escaped(line) for line in [about(results), *lines, *notes_of(results)[1:]]]


def plot_of(results: Results) -> str:
    """The overall of each cell with its interval, as SVG: a curve by turn or by the number of moves if there is one.

    Of a ladder, what each step loses.
    """
    if results.losses:
        return loss_plot(results.losses)
    if any(each.overall is None for each in results.cells):
        return ""
    if results.turns:
        return _turn_curves(results)
    if all(each.cell.moves is not None for each in results.cells):
        return _curves(results)
    return _dots(results)


def _edges(results: Results) -> list[float]:
    scores = [each.overall for each in results.cells if each.overall is not None]
    return [edge for each in scores for edge in (each.estimate.percent, *(each.estimate.interval or ()))]


def _range(values: Sequence[float]) -> tuple[float, float]:
    space = 0.08 * (max(values) - min(values)) or 5.0
    return max(0.0, min(values) - space), min(100.0, max(values) + space)


NAME_PX = 7
"""The width of a character of a cell's name, at most."""


def _dots(results: Results) -> str:
    """A row for each cell, with a dashed line at the first one."""
    dots = [_dot(each.overall.estimate, each.cell.name) for each in results.cells if each.overall is not None]
    left = 16 + NAME_PX * max(len(each.name) for each in dots)
    label, axis = "The overall of each cell with its interval", f"overall, percent, with {INTERVAL}"
    return dot_plot(dots, _range(_edges(results)), label, axis, left, 28, (dots[0].value, "ideal"))


def _curves(results: Results) -> str:
    """The overall by the number of moves, a curve for each series; the horizontal axis has a step per number."""
    left, right, width, height, top = 64, 70, 450, 280, 12
    low, high = _range(_edges(results))
    numbers = sorted({each.cell.moves for each in results.cells if each.cell.moves is not None})
    across, up = Scale(-0.3, len(numbers) - 0.7, left, width - right), Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by the number of moves")
    y_axis(drawing, up, ticks(low, high), left, width - right, "overall, percent")
    steps_axis(drawing, across, enumerate(map(str, numbers)), up.start, "maximum number of moves")
    for order, series in enumerate(dict.fromkeys(each.cell.series for each in results.cells if each.cell.series)):
        shift, style = 8 * order - 4, " outside" * order
        points = []
        for each in results.cells:
            if each.cell.series in ("", series) and each.overall is not None and each.cell.moves is not None:
                x = across(numbers.index(each.cell.moves)) + (shift if each.cell.series else 0)
                points.append((x, _dot(each.overall.estimate, each.cell.name)))
        drawing.curve(up, points, "ideal" if order else "whisker", f"dot{style}")
        x, last = points[-1]
        drawing.text(x + 12, up(last.value) + 4 + 12 * order - 6, series, "name start")
    return drawing.svg


TURN_STYLES = (("whisker", ""), ("ideal", " outside"), ("dotted", " plain"))
"""How the line and the points of each cell look in the plot by turn."""


def _turn_curves(results: Results) -> str:
    """The overall by turn, if each were the last: a curve for each cell, with its name at the end."""
    left, width, height, top = 64, 620, 340, 12
    cells = [each for each in results.cells if each.by_turn]
    edges = [edge for each in cells for score in each.by_turn for edge in (score.percent, *(score.interval or ()))]
    low, high = _range(edges)
    across, up = Scale(-0.3, results.turns - 0.7, left, width - 110), Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by turn, if each were the last")
    y_axis(drawing, up, ticks(low, high), left, width - 110, "overall, percent")
    steps_axis(drawing, across, enumerate(map(str, range(results.turns))), up.start, "turn")
    taken: list[float] = []
    for order, each in enumerate(cells):
        line, style = TURN_STYLES[order % len(TURN_STYLES)]
        shift = 7 * (order - (len(cells) - 1) / 2)
        points = [
            (across(turn) + shift, _dot(score, f"{each.cell.name}, {score.name}"))
            for turn, score in enumerate(each.by_turn)
        ]
        drawing.curve(up, points, line, f"dot{style}")
        x, last = points[-1]
        y = up(last.value) + 4
        while any(abs(y - other) < 14 for other in taken):
            y += 14
        taken.append(y)
        drawing.text(x + 12 - shift + 7, y, escaped(each.cell.name), "name start")
    return drawing.svg


def _dot(estimate: Estimate, name: str = "") -> Dot:
    return Dot(name, estimate.percent, estimate.interval)
