"""Plots as inline SVG. Classes give colours and fonts from report.css, so that plots follow its theme."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from roomscout.base.tables import with_interval
from roomscout.base.text import escaped


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


class Drawing:
    """An SVG picture. Coordinates are pixels from the upper left corner; texts are escaped."""

    def __init__(self, width: float, height: float, label: str):
        """`label` describes the picture to those who cannot see it."""
        self.width = width
        self._parts = [
            f'<svg class="plot" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
            f'style="max-width:{1.3 * width:g}px;min-width:{0.75 * width:g}px">'
        ]

    def rect(self, x: float, y: float, width: float, height: float, css: str, about: str = "") -> None:
        """A rectangle; `about` is shown when the pointer is over it."""
        self._add("rect", css, about, x=x, y=y, width=max(width, 0), height=max(height, 0))

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str, about: str = "") -> None:
        """A line."""
        self._add("line", css, about, x1=x1, y1=y1, x2=x2, y2=y2)

    def circle(self, x: float, y: float, radius: float, css: str, about: str = "") -> None:
        """A disc."""
        self._add("circle", css, about, cx=x, cy=y, r=radius)

    def diamond(self, x: float, y: float, radius: float, css: str, about: str = "") -> None:
        """A square on its corner."""
        points = ((x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y))
        self._add("polygon", css, about, points=" ".join(f"{px:g},{py:g}" for px, py in points))

    def whisker(self, scale: Scale, interval: Sequence[float], y: float, about: str = "") -> None:
        """A horizontal interval with its two ends."""
        self.line(scale(interval[0]), y, scale(interval[1]), y, "whisker", about)
        for edge in interval:
            self.line(scale(edge), y - 4, scale(edge), y + 4, "whisker")

    def curve(self, up: Scale, points: Sequence[tuple[float, "Dot"]], line: str, css: str) -> None:
        """A line through dots, each at its x in pixels, with their intervals upright."""
        for (x, one), (next_x, other) in pairwise(points):
            self.line(x, up(one.value), next_x, up(other.value), line)
        for x, dot in points:
            if dot.interval:
                self.line(x, up(dot.interval[0]), x, up(dot.interval[1]), "axis")
            dot.draw(self, x, up(dot.value), css)

    def text(self, x: float, y: float, text: str, css: str = "", turned: bool = False) -> None:
        """A text; `css` has its anchor ("start", "middle" or "end"). With `turned`, it reads upwards."""
        turn = f' transform="rotate(-90 {x:g} {y:g})"' if turned else ""
        self._parts.append(f'<text x="{x:g}" y="{y:g}" class="{css}"{turn}>{escape(escaped(text))}</text>')

    def _add(self, element: str, css: str, about: str, **values: float | str) -> None:
        attributes = " ".join(
            f'{name}="{value:.6g}"' if isinstance(value, float | int) else f'{name}="{value}"'
            for name, value in values.items()
        )
        title = f"<title>{escape(escaped(about))}</title>" if about else ""
        self._parts.append(f'<{element} class="{css}" {attributes}>{title}</{element}>')

    @property
    def svg(self) -> str:
        """The finished picture."""
        return "".join([*self._parts, "</svg>"])


def x_axis(drawing: Drawing, scale: Scale, values: Sequence[float], top: float, bottom: float, label: str) -> None:
    """A horizontal axis at `bottom` with labelled grid lines up to `top`."""
    for value in values:
        drawing.line(scale(value), top, scale(value), bottom, "grid")
    steps_axis(drawing, scale, ((value, number(value)) for value in values), bottom, label)


def y_axis(drawing: Drawing, scale: Scale, values: Sequence[float], left: float, right: float, label: str) -> None:
    """A vertical axis at `left` with labelled grid lines as far as `right`. `scale` starts at the bottom."""
    for value in values:
        drawing.line(left, scale(value), right, scale(value), "grid")
        drawing.text(left - 6, scale(value) + 4, number(value), "tick end")
    drawing.line(left, scale.start, left, scale.end, "axis")
    drawing.text(left - 40, (scale.start + scale.end) / 2, label, "label middle", turned=True)


def steps_axis(drawing: Drawing, scale: Scale, steps: Iterable[tuple[float, str]], y: float, label: str) -> None:
    """A horizontal axis at `y` with the names of some values, without grid lines."""
    for value, name in steps:
        drawing.text(scale(value), y + 16, name, "tick middle")
    drawing.line(scale.start, y, scale.end, y, "axis")
    drawing.text((scale.start + scale.end) / 2, y + 34, label, "label middle")


@dataclass(frozen=True)
class Dot:
    """A value of a plot with its interval, if it has one."""

    name: str  # of its row
    value: float  # on the scale of the plot
    interval: tuple[float, float] | None  # its edges on the same scale; None without one
    about: str = ""  # what is shown over it, by default its name, its value and its interval
    radius: float = 5  # in pixels

    def draw(self, drawing: Drawing, x: float, y: float, css: str = "dot") -> None:
        """Draw it at a place."""
        drawing.circle(x, y, self.radius, css, self.about or f"{self.name}: {with_interval(self.value, self.interval)}")


def dot_plot(
    dots: Sequence[Dot],
    edges: tuple[float, float],
    label: str,
    axis: str,
    left: float,
    row_height: float,
    mark: tuple[float, str],
) -> str:
    """A row for each dot, as SVG; `mark` is the value and the class of a vertical line."""
    width, top = 450, 10
    bottom = top + row_height * len(dots) + 4
    drawing = Drawing(width, bottom + 44, label)
    scale = Scale(*edges, left, width - 20)
    x_axis(drawing, scale, ticks(*edges), top - 4, bottom, axis)
    drawing.line(scale(mark[0]), top - 4, scale(mark[0]), bottom, mark[1])
    for row, dot in enumerate(dots):
        middle = top + row_height * (row + 0.5)
        drawing.text(left - 8, middle + 4, dot.name, "name end")
        if dot.interval:
            drawing.whisker(scale, dot.interval, middle)
        dot.draw(drawing, scale(dot.value), middle)
    return drawing.svg
