"""Tables of texts, as Markdown and for a terminal, and the numbers in them."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from roomscout.base.text import csv_cell
from roomscout.scoring.intervals import LEVEL

INTERVAL = f"{round(100 * LEVEL)} % interval"
"""The head of a column of intervals."""


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """A table as lines of Markdown. The columns at the places `left` are aligned left, all others right."""
    marks = ["---" if place in left else "---:" for place in range(len(heads))]
    cells = [heads, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    head, *others = (f"| {' | '.join(each)} |" for each in cells)
    return [head, f"|{'|'.join(marks)}|", *others]


def table_lines(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> list[str]:
    """A table as lines with aligned columns: all left, or with `numbers` all but the first one right."""
    cells = [heads, *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [str.ljust, *([str.rjust if numbers else str.ljust] * (len(widths) - 1))]
    return [
        "  ".join(align(text, width) for align, text, width in zip(aligned, each, widths, strict=True)).rstrip()
        for each in cells
    ]


def csv_of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys, of which there must be one, as CSV."""
    text = io.StringIO()
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows({name: csv_cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def decimal(value: float | None, form: str = ".1f") -> str:
    """A number in a format; a dash for none."""
    return "-" if value is None else format(value, form)


def interval_in_words(interval: tuple[float, float] | None, form: str = ".1f") -> str:
    """An interval, such as "41.2 to 50.3"; a dash for none."""
    return " to ".join(format(edge, form) for edge in interval) if interval else "-"


def p_in_words(value: float | None) -> str:
    """A p-value; a dash for none."""
    return "<0.001" if value is not None and value < 0.001 else decimal(value, ".3f")


def counted(count: int, noun: str) -> str:
    """A number of things, such as "1 question" or "1,200 questions"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
