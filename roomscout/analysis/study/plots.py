"""The plot of a study."""

from collections.abc import Iterable

from roomscout.analysis.report import svg
from roomscout.analysis.report.svg import Dot, Drawing, Scale, ticks, width_of, words_of
from roomscout.analysis.study.tables import Losses, Results, in_words, most_in
from roomscout.scoring.intervals import INTERVAL, Estimate

PANEL_PX, GAP_PX, ROW_PX, TOP_PX = 132, 40, 24, 30
"""The sizes of the panels of a ladder."""
TURN_STYLES = (("whisker", "dot"), ("ideal", "dot outside"), ("dotted", "dot plain"))
"""How the line and the points of each cell or series look."""


def plot_of(results: Results) -> str:
    """The drawing as SVG for a page; empty without one."""
    drawing = drawing_of(results)
    return drawing.svg if drawing else ""


def drawing_of(results: Results) -> Drawing | None:
    """The overall of each cell with its interval, as curves by turn or moves; of a ladder, the losses. None without."""
    if results.losses:
        return _losses(results.losses)
    if any(result.overall is None for result in results.cells):
        return None
    if results.turns:
        return _turn_curves(results)
    if all(result.cell.moves is not None for result in results.cells):
        return _curves(results)
    # else a row for each cell, with a dashed line at the first one
    dots = [_dot(cell.overall, cell.cell.name) for cell in results.cells if cell.overall is not None]
    low, high = _range(result.overall for result in results.cells)
    label = "The overall of each cell with its interval"
    axis = f"{_axis(low)}, with {INTERVAL}"
    return svg.dot_plot(dots, (low, high), label, axis, 28, (dots[0].value, "ideal"))


def _axis(low: float) -> str:
    """What an axis shows, and if it does not begin at 0, where it does."""
    return "overall, percent" + (f" (from {low:.0f} on, not from 0)" if low > 0 else "")


def _edges(scores: Iterable[Estimate | None]) -> list[float]:
    return [edge for score in scores if score is not None for edge in (score.percent, *(score.interval or ()))]


def _range(scores: Iterable[Estimate | None]) -> tuple[float, float]:
    edges = _edges(scores)
    space = 0.08 * (max(edges) - min(edges)) or 5.0
    return max(0.0, min(edges) - space), min(100.0, max(edges) + space)


def _curves(results: Results) -> Drawing:
    """The overall by the number of moves, a curve for each series; the horizontal axis has a step per number."""
    width, height, top = svg.WIDEST, 280, 12
    low, high = _range(result.overall for result in results.cells)
    cells = [result.cell for result in results.cells]
    numbers = sorted({cell.moves for cell in cells if cell.moves is not None})
    names = list(dict.fromkeys(cell.series for cell in cells if cell.series))
    left = svg.left_of(ticks(low, high))
    right = width - 20 - width_of(names)
    across = Scale(-0.3, len(numbers) - 0.7, left, right)
    up = Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by the number of moves")
    svg.y_axis(drawing, up, ticks(low, high), left, right, _axis(low))
    svg.steps_axis(drawing, across, enumerate(map(str, numbers)), up.start, "maximum number of moves")
    for order, series in enumerate(names):
        shift = 8 * order - 4
        points = []
        for cell, result in zip(cells, results.cells, strict=True):
            if cell.series in ("", series) and result.overall is not None and cell.moves is not None:
                x = across(numbers.index(cell.moves)) + (shift if cell.series else 0)
                points.append((x, _dot(result.overall, cell.name)))
        line, look = TURN_STYLES[order]
        drawing.curve(up, points, line, look)
        x, last = points[-1]
        drawing.text(x + 12, up(last.value) + 4 + 14 * order - 7, series)
    return drawing


def _turn_curves(results: Results) -> Drawing:
    """The overall by turn, if each were the last: a curve for each cell, with its name at the end."""
    width, height, top = 620, 340, 12
    cells = [result for result in results.cells if result.by_turn]
    low, high = _range(score for result in cells for score in result.by_turn)
    left = svg.left_of(ticks(low, high))
    right = width - 30 - width_of(result.cell.name for result in cells)
    across = Scale(-0.3, results.turns - 0.7, left, right)
    up = Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by turn, if each were the last")
    svg.y_axis(drawing, up, ticks(low, high), left, right, _axis(low))
    svg.steps_axis(drawing, across, enumerate(map(str, range(results.turns))), up.start, "turn")
    taken: list[float] = []
    for order, result in enumerate(cells):
        name = result.cell.name
        line, look = TURN_STYLES[order % len(TURN_STYLES)]
        shift = 7 * (order - (len(cells) - 1) / 2)
        points = [
            (across(turn) + shift, _dot(score, f"{name}, {score.name}")) for turn, score in enumerate(result.by_turn)
        ]
        drawing.curve(up, points, line, look)
        x, last = points[-1]
        y = up(last.value) + 4
        while any(abs(y - other) < 14 for other in taken):
            y += 14
        taken.append(y)
        drawing.text(x + 12 - shift + 7, y, name)
    return drawing


def _dot(estimate: Estimate, name: str = "") -> Dot:
    return Dot(name, estimate.percent, estimate.interval)


def _losses(losses: Losses) -> Drawing:
    """A row for each score and a column of bars for each step: full bars are the one that is most."""
    edges = [0.0, *_edges(loss for of_score in losses.values() for loss in of_score)]
    low = min(edges) - 1.0
    high = max(edges) + 1.0
    left = 16 + width_of(losses)
    bottom = TOP_PX + ROW_PX * len(losses)
    steps = [loss.name for loss in next(iter(losses.values()))]
    drawing = Drawing(left + (PANEL_PX + GAP_PX) * len(steps), bottom + 44, "The points that each step loses, by task")
    for row, name in enumerate(losses):
        drawing.text(left - 12, TOP_PX + ROW_PX * (row + 0.5) + 4, words_of(name), "end")
    for place, step in enumerate(steps):
        start = left + (PANEL_PX + GAP_PX) * place
        scale = Scale(low, high, start, start + PANEL_PX)
        svg.x_axis(drawing, scale, TOP_PX - 4, bottom, "points lost")
        drawing.text(start + PANEL_PX / 2, TOP_PX - 14, step, "middle")
        for row, of_score in enumerate(losses.values()):
            loss = of_score[place]
            middle = TOP_PX + ROW_PX * (row + 0.5)
            low_end, high_end = sorted((scale(0), scale(loss.percent)))
            look = "bar" if step == most_in(of_score) else "bar lesser"
            drawing.rect(low_end, middle - 7, high_end - low_end, 14, look, f"{step}: {in_words(loss)}")
            if loss.interval:
                drawing.whisker(scale, loss.interval, middle)
        drawing.line(scale(0), TOP_PX - 4, scale(0), bottom, "axis")
    return drawing
