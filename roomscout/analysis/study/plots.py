"""The plot of a study, as SVG."""

from collections.abc import Sequence

from roomscout.analysis.report.svg import Dot, Drawing, Scale, dot_plot, steps_axis, ticks, x_axis, y_axis
from roomscout.analysis.study.tables import Losses, Results, most_in
from roomscout.scoring.intervals import INTERVAL, Estimate

NAME_PX, PANEL_PX, GAP_PX, ROW_PX, TOP_PX = 7, 132, 18, 24, 30
"""The width of a character of a name at most, and the sizes of the panels of a ladder."""
TURN_STYLES = (("whisker", ""), ("ideal", " outside"), ("dotted", " plain"))
"""How the line and the points of each cell look in the plot by turn."""


def plot_of(results: Results) -> str:
    """The overall of each cell with its interval as SVG, as curves by turn or moves; of a ladder, the losses."""
    if results.losses:
        return _losses(results.losses)
    if any(each.overall is None for each in results.cells):
        return ""
    if results.turns:
        return _turn_curves(results)
    if all(each.cell.moves is not None for each in results.cells):
        return _curves(results)
    # else a row for each cell, with a dashed line at the first one
    dots = [_dot(each.overall.estimate, each.cell.name) for each in results.cells if each.overall is not None]
    left = 16 + NAME_PX * max(len(each.name) for each in dots)
    low, high = _range(_edges(results))
    label = "The overall of each cell with its interval"
    axis = f"{_axis(low)}, with {INTERVAL}"
    return dot_plot(dots, (low, high), label, axis, left, 28, (dots[0].value, "ideal"))


def _axis(low: float) -> str:
    """What an axis shows, and if it does not begin at 0, where it does."""
    return "overall, percent" + (f" (from {low:.0f} on, not from 0)" if low > 0 else "")


def _edges(results: Results) -> list[float]:
    scores = [each.overall for each in results.cells if each.overall is not None]
    return [edge for each in scores for edge in (each.estimate.percent, *(each.estimate.interval or ()))]


def _range(values: Sequence[float]) -> tuple[float, float]:
    space = 0.08 * (max(values) - min(values)) or 5.0
    return max(0.0, min(values) - space), min(100.0, max(values) + space)


def _curves(results: Results) -> str:
    """The overall by the number of moves, a curve for each series; the horizontal axis has a step per number."""
    left, right, width, height, top = 64, 70, 450, 280, 12
    low, high = _range(_edges(results))
    numbers = sorted({each.cell.moves for each in results.cells if each.cell.moves is not None})
    across = Scale(-0.3, len(numbers) - 0.7, left, width - right)
    up = Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by the number of moves")
    y_axis(drawing, up, ticks(low, high), left, width - right, _axis(low))
    steps_axis(drawing, across, enumerate(map(str, numbers)), up.start, "maximum number of moves")
    for order, series in enumerate(dict.fromkeys(each.cell.series for each in results.cells if each.cell.series)):
        shift = 8 * order - 4
        style = " outside" * order
        points = []
        for each in results.cells:
            if each.cell.series in ("", series) and each.overall is not None and each.cell.moves is not None:
                x = across(numbers.index(each.cell.moves)) + (shift if each.cell.series else 0)
                points.append((x, _dot(each.overall.estimate, each.cell.name)))
        drawing.curve(up, points, "ideal" if order else "whisker", f"dot{style}")
        x, last = points[-1]
        drawing.text(x + 12, up(last.value) + 4 + 12 * order - 6, series, "name start")
    return drawing.svg


def _turn_curves(results: Results) -> str:
    """The overall by turn, if each were the last: a curve for each cell, with its name at the end."""
    left, width, height, top = 64, 620, 340, 12
    cells = [each for each in results.cells if each.by_turn]
    edges = [edge for each in cells for score in each.by_turn for edge in (score.percent, *(score.interval or ()))]
    low, high = _range(edges)
    across = Scale(-0.3, results.turns - 0.7, left, width - 110)
    up = Scale(low, high, height - 48, top)
    drawing = Drawing(width, height, "The overall by turn, if each were the last")
    y_axis(drawing, up, ticks(low, high), left, width - 110, _axis(low))
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
        drawing.text(x + 12 - shift + 7, y, each.cell.name, "name start")
    return drawing.svg


def _dot(estimate: Estimate, name: str = "") -> Dot:
    return Dot(name, estimate.percent, estimate.interval)


def _losses(losses: Losses) -> str:
    """A row for each score and a column of bars for each step, as SVG: full bars are the one that is most."""
    every = [each for of_score in losses.values() for each in of_score]
    edges = [0.0, *(edge for each in every for edge in (each.percent, *(each.interval or ())))]
    low = min(edges) - 1.0
    high = max(edges) + 1.0
    left = 16 + NAME_PX * max(map(len, losses))
    bottom = TOP_PX + ROW_PX * len(losses)
    steps = [each.name for each in next(iter(losses.values()))]
    drawing = Drawing(left + (PANEL_PX + GAP_PX) * len(steps), bottom + 44, "The points that each step loses, by task")
    for row, name in enumerate(losses):
        drawing.text(left - 12, TOP_PX + ROW_PX * (row + 0.5) + 4, name, "name end")
    for place, step in enumerate(steps):
        start = left + (PANEL_PX + GAP_PX) * place
        scale = Scale(low, high, start, start + PANEL_PX)
        x_axis(drawing, scale, ticks(low, high, 4), TOP_PX - 4, bottom, "points lost")
        drawing.text(start + PANEL_PX / 2, TOP_PX - 14, step, "label middle")
        for row, of_score in enumerate(losses.values()):
            each = of_score[place]
            middle = TOP_PX + ROW_PX * (row + 0.5)
            about = Dot(step, each.percent, each.interval).in_words
            ends = sorted((scale(0), scale(each.percent)))
            css = "bar" if each.name == most_in(of_score) else "bar lesser"
            drawing.rect(ends[0], middle - 7, ends[1] - ends[0], 14, css, f"{step}: {about}")
            if each.interval:
                drawing.whisker(scale, each.interval, middle)
        drawing.line(scale(0), TOP_PX - 4, scale(0), bottom, "axis")
    return drawing.svg
