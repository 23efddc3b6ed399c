"""Writes a drawing as PDF: at its own size, 96 pixels an inch, with the used part of a TrueType font in it."""

import logging
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.analysis.report.svg import FONT_PX, LOOKS, Disc, Drawing, Outline, Words, paper_colours
from roomscout.analysis.verbs import write_text, writing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.patches import Patch

log = logging.getLogger(__name__)

PDF_NEEDS = "matplotlib"
PX_PER_INCH = 96
POINT_PX = PX_PER_INCH / 72
ALIGNED = {"start": "left", "middle": "center", "end": "right"}  # matplotlib's words for anchors
SETTINGS: Any = {"pdf.fonttype": 42, "font.family": "DejaVu Sans", "lines.scale_dashes": False}
"""Of matplotlib, which brings the font. Type 42 is TrueType; many journals refuse Type 3."""


def write_plot(drawing: Drawing, path: Path) -> None:
    """Write a drawing as SVG and as PDF, to a path without a suffix; raises RunError."""
    write_text(path.with_name(f"{path.name}.svg"), drawing.svg_alone)
    with writing(path.with_name(f"{path.name}.pdf")) as draft, warnings.catch_warnings(record=True) as lacking:
        write_pdf(drawing, draft)
    if lacking:  # such as "Glyph 27169 missing from font(s) DejaVu Sans"
        log.warning("%s.pdf has boxes for letters that its font lacks; %s.svg has the letters", path.name, path.name)


def write_pdf(drawing: Drawing, path: Path) -> None:
    """Write a drawing to a file, with the package PDF_NEEDS; raises OSError."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    logging.getLogger("fontTools").setLevel(logging.WARNING)  # else it tells of each glyph
    with rc_context(SETTINGS):
        figure = Figure(figsize=(drawing.width / PX_PER_INCH, drawing.height / PX_PER_INCH))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, drawing.width), ylim=(drawing.height, 0))
        axes.axis("off")
        for order, shape in enumerate(drawing.shapes):
            if isinstance(shape, Words):
                _write(axes, shape, order)
            else:
                axes.add_patch(_patch(shape, order))
        about = {"Title": drawing.label, "Creator": "RoomScout", "CreationDate": None}
        figure.savefig(path, format="pdf", metadata=about)


def _write(axes: "Axes", words: Words, order: int) -> None:
    axes.text(
        words.x,
        words.y,
        words.text,
        ha=ALIGNED[words.anchor],
        va="baseline",
        rotation=90 if words.turned else 0,
        rotation_mode="anchor",
        fontsize=FONT_PX / POINT_PX,
        color=paper_colours()["ink"],
        parse_math=False,
        zorder=order,
    )


def _patch(shape: Outline | Disc, order: int) -> "Patch":
    from matplotlib.colors import to_rgba
    from matplotlib.patches import Circle, Polygon

    look = LOOKS[shape.look]
    colours = paper_colours()
    dashes = [float(length) / POINT_PX for length in look.get("stroke-dasharray", "").split()]
    style = {
        "facecolor": to_rgba(colours.get(look.get("fill", ""), "none"), float(look.get("fill-opacity", 1))),
        "edgecolor": colours.get(look.get("stroke", ""), "none"),
        "linewidth": float(look.get("stroke-width", 1)) / POINT_PX,
        "linestyle": (0, dashes) if dashes else "solid",
        "zorder": order,
    }
    if isinstance(shape, Disc):
        return Circle((shape.x, shape.y), shape.radius, **style)
    return Polygon(shape.points, closed=shape.closed, **style)
