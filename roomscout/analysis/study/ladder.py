"""Which step of a ladder loses the points: what each cell lacks to the next one, and the last one to 100 percent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from roomscout.analysis.compare.answers import Answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.compare.conditions import PROTOCOL
from roomscout.analysis.report.svg import Dot, Drawing, Scale, ticks, x_axis
from roomscout.base.text import escaped
from roomscout.scoring.intervals import Estimate, estimates

Losses = Mapping[str, tuple[Estimate, ...]]
"""For each score, the percentage points that each step loses; together with the first cell's percent they are 100."""
NAME_PX, PANEL_PX, GAP_PX, ROW_PX, TOP_PX = 7, 132, 18, 24, 30


def losses_of(steps: Sequence[str], runs: Sequence[Answers]) -> Losses:
    """The losses of a ladder's runs, which must have the same questions; intervals are paired by scene."""
    pairs = [compare(neighbours, (PROTOCOL,)).pairs[0] for neighbours in pairwise(runs)]
    last = {each.name: each for each in estimates(runs[-1].rows, runs[-1].benchmark)}
    found: dict[str, tuple[Estimate, ...]] = {}
    for place, score in enumerate(pairs[0].differences):
        rest = last[score.name]
        interval = (100 - rest.interval[1], 100 - rest.interval[0]) if rest.interval else None
        gained = [pair.differences[place] for pair in pairs]
        all_steps = [*gained, Estimate("", 100 - rest.percent, rest.scenes, interval)]
        found[score.name] = tuple(replace(each, name=step) for each, step in zip(all_steps, steps, strict=True))
    return found


def largest(of_score: Sequence[Estimate]) -> Estimate:
    """The step that loses most."""
    return max(of_score, key=lambda each: each.percent)


def loss_plot(losses: Losses) -> str:
    """A row for each score and a column of bars for each step, as SVG: full bars are the largest of their row."""
    every = [each for of_score in losses.values() for each in of_score]
    edges = [0.0, *(edge for each in every for edge in (each.percent, *(each.interval or ())))]
    low, high = min(edges) - 1.0, max(edges) + 1.0
    left, bottom = 16 + NAME_PX * max(map(len, losses)), TOP_PX + ROW_PX * len(losses)
    steps = [each.name for each in next(iter(losses.values()))]
    drawing = Drawing(left + (PANEL_PX + GAP_PX) * len(steps), bottom + 44, "The points that each step loses, by task")
    for row, name in enumerate(losses):
        drawing.text(left - 12, TOP_PX + ROW_PX * (row + 0.5) + 4, escaped(name), "name end")
    for place, step in enumerate(steps):
        start = left + (PANEL_PX + GAP_PX) * place
        scale = Scale(low, high, start, start + PANEL_PX)
        x_axis(drawing, scale, ticks(low, high, 4), TOP_PX - 4, bottom, "points lost")
        drawing.text(start + PANEL_PX / 2, TOP_PX - 14, step, "label middle")
        for row, of_score in enumerate(losses.values()):
            each, middle = of_score[place], TOP_PX + ROW_PX * (row + 0.5)
            about, ends = Dot(step, each.percent, each.interval).in_words, sorted((scale(0), scale(each.percent)))
            css = "bar" if each is largest(of_score) else "bar lesser"
            drawing.rect(ends[0], middle - 7, ends[1] - ends[0], 14, css, f"{step}: {about}")
            if each.interval:
                drawing.whisker(scale, each.interval, middle)
        drawing.line(scale(0), TOP_PX - 4, scale(0), bottom, "axis")
    return drawing.svg
