"""The plot of a study."""

from collections.abc import Iterable

from roomscout.analysis.report import svg
from roomscout.analysis.report.svg import Dot, Drawing, Scale, width_of, words_of
from roomscout.analysis.study.tables import Losses, Results, in_words, most_in
from roomscout.scoring.intervals import INTERVAL, Estimate

PANEL_PX, GAP_PX, ROW_PX, TOP_PX = 132, 40, 24, 30
"""The sizes of the panels of a ladder."""


def plot_of(results: Results) -> str:
    """The drawing as SVG for a page; empty without one."""
    drawing = drawing_of(results)
    return drawing.svg if drawing else ""


def drawing_of(results: Results) -> Drawing | None:
    """The overall of each cell with its interval, as curves by turn or moves; of a ladder, the losses. None without."""
    if results.losses:
        return _losses(results.losses)
    scored = [(result.cell, result.overall) for result in results.cells if result.overall is not None]
    if len(scored) < len(results.cells):
        return None
    if results.turns:
        by_turn = {result.cell.name: result.by_turn for result in results.cells if result.by_turn}
        edges = _range(score for scores in by_turn.values() for score in scores)
        curves = {name: dict(enumerate(_dot(score, name) for score in scores)) for name, scores in by_turn.items()}
        turns = list(map(str, range(results.turns)))
        return svg.curve_plot(curves, turns, edges, ("turn, if it were the last", _axis(edges)))
    edges = _range(overall for _, overall in scored)
    if numbers := sorted({cell.moves for cell, _ in scored if cell.moves is not None}):
        dots = [(cell.series, numbers.index(cell.moves or 0), _dot(score, cell.name)) for cell, score in scored]
        curves = {
            name: {place: dot for series, place, dot in dots if series in ("", name)}
            for name in dict.fromkeys(series for series, _, _ in dots if series)
        }
        return svg.curve_plot(curves, list(map(str, numbers)), edges, ("maximum number of moves", _axis(edges)))
    rows = [_dot(overall, cell.name) for cell, overall in scored]  # with a dashed line at the first one
    axis = f"{_axis(edges)}, with {INTERVAL}"
    return svg.dot_plot(rows, edges, "The overall of each cell with its interval", axis, (rows[0].value, "ideal"))


def _axis(edges: tuple[float, float]) -> str:
    """What an axis shows, and if it does not begin at 0, where it does."""
    return "overall (%)" + (f", axis from {edges[0]:.0f}" if edges[0] > 0 else "")


def _edges(scores: Iterable[Estimate]) -> list[float]:
    return [edge for score in scores for edge in (score.percent, *(score.interval or ()))]


def _range(scores: Iterable[Estimate]) -> tuple[float, float]:
    edges = _edges(scores)
    space = 0.08 * (max(edges) - min(edges)) or 5.0
    return max(0.0, min(edges) - space), min(100.0, max(edges) + space)


def _dot(estimate: Estimate, name: str) -> Dot:
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
