"""Plots as lines, discs and texts: written as SVG for a page, as SVG that stands alone, and by `pdf` as PDF."""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from html import escape
from importlib import resources
from itertools import groupby, pairwise
from typing import NamedTuple

from roomscout.base.tables import with_interval
from roomscout.base.text import escaped

FONT_PX = 12  # of all texts in all plots
CHARACTER_PX = 7.4  # the mean width of a character in DejaVu Sans, which is wider than other fonts
WIDEST = 440  # what all plots of a page fit in, so that the page scales them alike
HEIGHT = 260  # of plots with a vertical axis
TOP, BOTTOM = 12, 44  # the space above a plot, and below it for its axis
ROW = 26  # the height of a row
CURVES = (("whisker", "dot"), ("ideal", "dot outside"), ("dotted", "dot plain"))
"""The looks of the line and of the points of each curve of a plot."""


LOOKS: Mapping[str, Mapping[str, str]] = {
    "text": {"fill": "ink"},
    "grid": {"stroke": "line"},
    "axis": {"stroke": "soft"},
    "ideal": {"stroke": "soft", "stroke-dasharray": "4 3"},
    "whisker": {"stroke": "ink", "stroke-width": "1.5"},
    "dotted": {"stroke": "ink", "stroke-width": "1.5", "stroke-dasharray": "1.5 3"},
    "bar": {"fill": "accent"},
    "bar lesser": {"fill": "accent", "fill-opacity": "0.35"},
    "bar exhausted": {"fill": "paper", "stroke": "accent", "stroke-dasharray": "3 2"},
    "dot": {"fill": "accent", "stroke": "paper", "stroke-width": "0.5", "fill-opacity": "0.65"},
    "dot outside": {"stroke": "accent", "stroke-width": "1.5"},
    "dot plain": {"fill": "ink", "stroke": "paper", "stroke-width": "0.5"},
    "mark blind": {"fill": "blind", "stroke": "paper", "stroke-width": "1.5"},
    "mark most_frequent": {"fill": "frequent", "stroke": "paper", "stroke-width": "1.5"},
}
"""How shapes look, in the words of SVG, with the names that colours have in palette.css. One without fill has none."""


class Outline(NamedTuple):
    """A line through points, or the area that it closes around."""

    points: tuple[tuple[float, float], ...]  # x and y
    closed: bool  # whether it is an area
    look: str  # a key of LOOKS
    about: str = ""  # what a page shows under the pointer


class Disc(NamedTuple):
    """A disc around a point."""

    x: float  # of the point
    y: float  # likewise
    radius: float  # in pixels
    look: str  # a key of LOOKS
    about: str = ""  # what a page shows under the pointer


class Words(NamedTuple):
    """A line of text."""

    x: float  # of its anchor
    y: float  # of its baseline
    text: str  # escaped
    anchor: str  # start, middle or end
    turned: bool  # whether it reads upwards
    look: str = "text"  # the look of all texts


@dataclass(frozen=True)
class Scale:
    """Maps values from `low` to `high` to pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """The pixel of a value."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most `most` round values from `low` to `high`, which differ by 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def number(value: float) -> str:
    """A number as axes show it: 1,200 and 0.5, without trailing zeros."""
    return f"{value:,.10g}"


def width_of(texts: Iterable[str]) -> float:
    """The pixels that the longest of some texts takes."""
    return CHARACTER_PX * max(map(len, texts), default=0)


def words_of(name: str) -> str:
    """The name of a type, a task or a part as a plot shows it."""
    return name.replace("_", " ")


@dataclass
class Drawing:
    """A picture. Coordinates are pixels from the upper left corner."""

    width: float  # in pixels
    height: float  # likewise
    label: str  # describes it to who cannot see it
    shapes: list[Outline | Disc | Words] = field(default_factory=list)  # from the back to the front

    def rect(self, x: float, y: float, width: float, height: float, look: str, about: str = "") -> None:
        """A rectangle."""
        right = x + max(width, 0)
        bottom = y + max(height, 0)
        self.shapes.append(Outline(((x, y), (right, y), (right, bottom), (x, bottom)), True, look, about))

    def line(self, x1: float, y1: float, x2: float, y2: float, look: str, about: str = "") -> None:
        """A line."""
        self.shapes.append(Outline(((x1, y1), (x2, y2)), False, look, about))

    def diamond(self, x: float, y: float, radius: float, look: str, about: str = "") -> None:
        """A square on its corner."""
        corners = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
        self.shapes.append(Outline(corners, True, look, about))

    def circle(self, x: float, y: float, radius: float, look: str, about: str = "") -> None:
        """A disc."""
        self.shapes.append(Disc(x, y, radius, look, about))

    def text(self, x: float, y: float, text: str, anchor: str = "start", turned: bool = False) -> None:
        """A line of text."""
        self.shapes.append(Words(x, y, escaped(text), anchor, turned))

    def whisker(self, scale: Scale, interval: Sequence[float], y: float, about: str = "") -> None:
        """A horizontal interval with its two ends."""
        self.line(scale(interval[0]), y, scale(interval[1]), y, "whisker", about)
        for edge in interval:
            self.line(scale(edge), y - 4, scale(edge), y + 4, "whisker")

    def curve(self, up: Scale, points: Sequence[tuple[float, "Dot"]], line: str, look: str) -> None:
        """A line through dots, each at its x in pixels, with their intervals upright."""
        for (x, one), (next_x, other) in pairwise(points):
            self.line(x, up(one.value), next_x, up(other.value), line)
        for x, dot in points:
            if dot.interval:
                self.line(x, up(dot.interval[0]), x, up(dot.interval[1]), "axis")
            dot.draw(self, x, up(dot.value), look)

    @property
    def svg(self) -> str:
        """The picture in a page, whose theme gives its colours and whose font it takes."""
        shares = f"width:{100 * self.width / max(self.width, WIDEST):.4g}%"
        limits = f"max-width:{1.3 * self.width:g}px;min-width:{0.75 * self.width:g}px"
        head = f'<svg class="plot" {self._box} style="{shares};{limits}" font-size="{FONT_PX}">'
        return head + self._elements({name: f"var(--{name})" for name in paper_colours()}) + "</svg>"

    @property
    def svg_alone(self) -> str:
        """The picture as a file: black on white, whatever shows it."""
        size = f'width="{self.width:g}" height="{self.height:g}"'
        font = f'font-family="sans-serif" font-size="{FONT_PX}"'
        white = f'<rect width="{self.width:g}" height="{self.height:g}" fill="#fff"/>'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {self._box} {font}>{white}'
        return f"{head}{self._elements(paper_colours())}</svg>\n"

    @property
    def _box(self) -> str:
        return f'viewBox="0 0 {self.width:g} {self.height:g}" role="img" aria-label="{escape(escaped(self.label))}"'

    def _elements(self, colours: Mapping[str, str]) -> str:
        groups = groupby(self.shapes, key=lambda shape: shape.look)
        return "".join(
            f"<g {_attributes(look, colours)}>{''.join(map(_element, shapes))}</g>" for look, shapes in groups
        )


@cache
def paper_colours() -> dict[str, str]:
    """The colours of the light theme by name, with black text."""
    palette = resources.files("roomscout.analysis.report") / "assets" / "palette.css"
    light = palette.read_text(encoding="utf-8").partition("}")[0]
    return {**dict(re.findall(r"--([a-z]+): (#[0-9a-f]+);", light)), "ink": "#000"}


def _attributes(look: str, colours: Mapping[str, str]) -> str:
    looks = {"fill": "none", **LOOKS[look]}
    return " ".join(f'{name}="{colours.get(value, value)}"' for name, value in looks.items())


def _element(shape: Outline | Disc | Words) -> str:
    if isinstance(shape, Words):
        turn = f' transform="rotate(-90 {shape.x:g} {shape.y:g})"' if shape.turned else ""
        return f'<text x="{shape.x:g}" y="{shape.y:g}" text-anchor="{shape.anchor}"{turn}>{escape(shape.text)}</text>'
    title = f"<title>{escape(escaped(shape.about))}</title>" if shape.about else ""
    if isinstance(shape, Disc):
        return f'<circle cx="{shape.x:.6g}" cy="{shape.y:.6g}" r="{shape.radius:g}">{title}</circle>'
    points = " ".join(f"{x:.6g},{y:.6g}" for x, y in shape.points)
    element = "polygon" if shape.closed else "polyline"
    return f'<{element} points="{points}">{title}</{element}>'


def x_axis(drawing: Drawing, scale: Scale, top: float, bottom: float, label: str) -> None:
    """A horizontal axis at `bottom` with grid lines up to `top`, as many as have room for their numbers."""
    values = ticks(scale.low, scale.high)
    for fewer in (5, 4, 3, 2, 1):
        if len(values) * (width_of(map(number, values)) + 12) > scale.end - scale.start:
            values = ticks(scale.low, scale.high, fewer)
    for value in values:
        drawing.line(scale(value), top, scale(value), bottom, "grid")
    steps_axis(drawing, scale, ((value, number(value)) for value in values), bottom, label)


def y_axis(drawing: Drawing, scale: Scale, values: Sequence[float], left: float, right: float, label: str) -> None:
    """A vertical axis at `left` with labelled grid lines as far as `right`. `scale` starts at the bottom."""
    for value in values:
        drawing.line(left, scale(value), right, scale(value), "grid")
        drawing.text(left - 6, scale(value) + 4, number(value), "end")
    drawing.line(left, scale.start, left, scale.end, "axis")
    drawing.text(14, (scale.start + scale.end) / 2, label, "middle", turned=True)


def left_of(values: Iterable[float]) -> float:
    """Where a vertical axis with these values stands."""
    return 30 + width_of(map(number, values))


def steps_axis(drawing: Drawing, scale: Scale, steps: Iterable[tuple[float, str]], y: float, label: str) -> None:
    """A horizontal axis at `y` with the names of some values, without grid lines."""
    for value, name in steps:
        drawing.text(scale(value), y + 16, name, "middle")
    drawing.line(scale.start, y, scale.end, y, "axis")
    drawing.text((scale.start + scale.end) / 2, y + 34, label, "middle")


@dataclass(frozen=True)
class Dot:
    """A value of a plot with its interval, if it has one."""

    name: str  # of its row
    value: float  # on the scale of the plot
    interval: tuple[float, float] | None  # its edges on the same scale; None without one
    about: str = ""  # what is shown over it, by default its name, its value and its interval
    radius: float = 5  # in pixels

    def draw(self, drawing: Drawing, x: float, y: float, look: str = "dot") -> None:
        """Draw it at a place."""
        about = self.about or f"{self.name}: {with_interval(self.value, self.interval)}"
        drawing.circle(x, y, self.radius, look, about)


def row_plot(
    rows: Sequence[tuple[str, str]], edges: tuple[float, float], label: str, axis: str, top: float = TOP
) -> tuple[Drawing, Scale, list[float]]:
    """A drawing above a horizontal axis from one edge to the other, with the scale of that and the middle of each row.
    A row has a name at its left end and a text at its right."""
    left = 16 + width_of(name for name, _ in rows)
    right = 16 + width_of(text for _, text in rows)
    width = max(WIDEST, left + 140 + right)
    bottom = top + ROW * len(rows) + 4
    drawing = Drawing(width, bottom + BOTTOM, label)
    scale = Scale(*edges, left, width - right)
    x_axis(drawing, scale, top - 4, bottom, axis)
    middles = [top + ROW * (row + 0.5) for row in range(len(rows))]
    for middle, (name, text) in zip(middles, rows, strict=True):
        drawing.text(left - 8, middle + 4, name, "end")
        drawing.text(width - 4, middle + 4, text, "end")
    return drawing, scale, middles


def dot_plot(
    dots: Sequence[Dot], edges: tuple[float, float], label: str, axis: str, mark: tuple[float, str]
) -> Drawing:
    """A row for each dot; `mark` is the value and the look of a vertical line."""
    drawing, scale, middles = row_plot([(dot.name, "") for dot in dots], edges, label, axis)
    drawing.line(scale(mark[0]), TOP - 4, scale(mark[0]), middles[-1] + ROW / 2 + 4, mark[1])
    for middle, dot in zip(middles, dots, strict=True):
        if dot.interval:
            drawing.whisker(scale, dot.interval, middle)
        dot.draw(drawing, scale(dot.value), middle)
    return drawing


def curve_plot(
    curves: Mapping[str, Mapping[int, Dot]], steps: Sequence[str], edges: tuple[float, float], axes: tuple[str, str]
) -> Drawing:
    """A curve of dots by the place of their step for each name, which stands at its end. `axes` are the labels of the
    steps and of the values, which go from one edge to the other."""
    drawing = Drawing(WIDEST + width_of(curves), HEIGHT, f"Curves of {axes[1]} by {axes[0]}")
    values = ticks(*edges, 5)
    left = left_of(values)
    right = drawing.width - 30 - width_of(curves)
    across = Scale(-0.5, len(steps) - 0.5, left, right)
    up = Scale(*edges, HEIGHT - BOTTOM, TOP)
    y_axis(drawing, up, values, left, right, axes[1])
    every = 1 if len(steps) <= 20 else 5
    steps_axis(drawing, across, list(enumerate(steps))[::every], up.start, axes[0])
    names: list[float] = []
    for order, (name, dots) in enumerate(curves.items()):
        shift = 7 * (order - (len(curves) - 1) / 2)
        line, look = CURVES[order % len(CURVES)]
        points = [(across(place) + shift, dot) for place, dot in dots.items()]
        drawing.curve(up, points, line, look)
        y = up(points[-1][1].value)
        while any(abs(y - other) < FONT_PX + 2 for other in names):
            y += FONT_PX + 2
        names.append(y)
        if name:
            drawing.circle(right + 16, y, 4, look)
            drawing.text(right + 25, y + 4, name)
    return drawing
