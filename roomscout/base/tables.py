"""A table of texts: for a terminal, as Markdown, CSV, LaTeX and HTML. And the numbers in it, in words."""

import csv
import io
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from roomscout.base.text import csv_cell, escaped, escaped_text, in_latex

if TYPE_CHECKING:
    from markupsafe import Markup

LONG_CELL, LONG_TABLE, WIDE_TABLE = 48, 40, 50
"""In LaTeX, a left column with a cell of more characters wraps, a table of more rows is set in parts, and one with
longer lines spans both columns of a page."""


@dataclass(frozen=True)
class Table:
    """Rows of cells below heads."""

    heads: Sequence[str]  # of the columns
    rows: Sequence[Sequence[Any]]  # of texts, numbers or, for a page, Markup
    left: Collection[int] = (0,)  # the places of the columns that are aligned left, all others right
    overall: bool = False  # whether the last row sums up the others: set apart in LaTeX and HTML

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], left: Collection[int] = (0,)) -> Self:
        """A table of rows by head, all with the same heads; there must be one row."""
        return cls(list(rows[0]), [list(row.values()) for row in rows], left)

    @property
    def _texts(self) -> list[list[str]]:
        """The heads and the rows as texts, without markup."""
        return [[str(_plain(cell)) for cell in row] for row in (self.heads, *self.rows)]

    def lines(self) -> list[str]:
        """The table for a terminal, with cells `escaped`."""
        cells = [[escaped(cell) for cell in row] for row in self._texts]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        return [
            "  ".join(
                cell.ljust(width) if place in self.left else cell.rjust(width)
                for place, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in cells
        ]

    def lines_with(self, texts: Iterable[Iterable[str]]) -> list[str]:
        """The table for a terminal, with the texts of each row indented below it, without empty ones."""
        head, *rows = self.lines()
        lines = [head]
        for row, below in zip(rows, texts, strict=True):
            lines += [row, *(f"    {escaped(text)}" for text in below if text)]
        return lines

    def markdown(self) -> list[str]:
        """The table as lines of Markdown, whose texts `in_markdown` makes safe."""
        marks = ["---" if place in self.left else "---:" for place in range(len(self.heads))]
        cells = [[cell.replace("|", "\\|") for cell in row] for row in self._texts]
        head, *rows = (f"| {' | '.join(row)} |" for row in cells)
        return [head, f"|{'|'.join(marks)}|", *rows]

    def csv(self) -> str:
        """The table as CSV, without cells that a spreadsheet takes for formulas."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerows([csv_cell(_plain(cell)) for cell in row] for row in (self.heads, *self.rows))
        return text.getvalue()

    def latex(self, caption: str) -> list[str]:
        """The table as lines of LaTeX for the packages booktabs and graphicx, scaled down to the width of the text. The
        caption gives its label."""
        heads, *rows = self._texts
        lines = [" & ".join("--" if cell == "-" else in_latex(cell) for cell in row) + r" \\" for row in rows]
        if self.overall:
            lines.insert(-1, r"\midrule")
        wide = "table*" if max(map(len, self.lines())) > WIDE_TABLE else "table"
        columns = [self._latex_column(place) for place in range(len(heads))]
        head = " & ".join(map(_latex_head, heads, columns))
        written = []
        for start in range(0, len(lines), LONG_TABLE):
            title = f"{caption}, continued {start // LONG_TABLE}" if start else caption
            label = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            written += [
                rf"\begin{{{wide}}}",
                r"\centering\setlength{\tabcolsep}{4pt}",
                rf"\caption{{{in_latex(title)}}}\label{{tab:{label}}}",
                r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
                rf"\begin{{tabular}}{{{''.join(columns)}}}",
                r"\toprule",
                rf"{head} \\",
                r"\midrule",
                *lines[start : start + LONG_TABLE],
                r"\bottomrule",
                r"\end{tabular}}",
                rf"\end{{{wide}}}",
            ]
        return written

    def _latex_column(self, place: int) -> str:
        if place not in self.left:
            return "r"
        return r"p{0.45\linewidth}" if max(len(row[place]) for row in self._texts) > LONG_CELL else "l"

    def html(self, css: str = "scores") -> "Markup":
        """The table as HTML of this class, with all texts escaped but Markup. On a phone, a table of the class "stack"
        shows each row as a block, with the heads beside the cells."""
        from markupsafe import Markup

        def row_of(row: Sequence[Any], last: bool) -> Markup:
            name, *cells = (cell if isinstance(cell, Markup) else escaped_text(str(cell)) for cell in row)
            columns = Markup("").join(
                Markup('<td data-label="{}">{}</td>').format(head, cell)
                for head, cell in zip(self.heads[1:], cells, strict=True)
            )
            marked = Markup(' class="overall"') if last and self.overall else ""
            return Markup('<tr{}><th scope="row">{}</th>{}</tr>\n').format(marked, name, columns)

        heads = Markup("").join(Markup('<th scope="col">{}</th>').format(head) for head in self.heads)
        rows = Markup("").join(row_of(row, row is self.rows[-1]) for row in self.rows)
        return Markup(
            '<div class="scroll"><table class="{}">\n<thead><tr>{}</tr></thead>\n<tbody>\n{}</tbody>\n</table></div>'
        ).format(css, heads, rows)


def latex_text(tables: Mapping[str, Table]) -> str:
    """Tables by their captions as the text of a LaTeX file."""
    lines = [r"% \usepackage{booktabs,graphicx}"]
    for caption, table in tables.items():
        lines += table.latex(caption)
    return "".join(f"{line}\n" for line in lines)


def _latex_head(head: str, column: str) -> str:
    """A head of a column that does not wrap, a word below the other; "95 %" and "B - A" are one word."""
    if column not in "lr":
        return in_latex(head)
    words = r"\\".join(map(in_latex, re.split("(?<!-) (?![%-])", head)))
    return rf"\shortstack[{column}]{{\strut {words}}}"


def _plain(cell: Any) -> Any:
    """A cell; of Markup, the text that it shows."""
    return cell.striptags() if hasattr(cell, "striptags") else cell


def decimal(value: float | None, form: str = ".1f") -> str:
    """A number in a format; a dash for none."""
    return "-" if value is None else format(value, form)


def interval_in_words(interval: Sequence[float] | None, form: str = ".1f") -> str:
    """An interval, such as "41.2 to 50.3"; a dash for none."""
    return " to ".join(format(edge, form) for edge in interval) if interval else "-"


def with_interval(value: float, interval: Sequence[float] | None) -> str:
    """A value and its interval, such as "41.2 (38.0 to 44.1)"."""
    return f"{value:.1f}" + (f" ({interval_in_words(interval)})" if interval else "")


def p_in_words(value: float | None) -> str:
    """A p-value; a dash for none."""
    return "<0.001" if value is not None and value < 0.001 else decimal(value, ".3f")
