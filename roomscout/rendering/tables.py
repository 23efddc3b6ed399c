"""Reads tables of numbers as PLY and PCD files hold them, in text or binary, and detects truncated ones."""

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

# A ragged column, whose lists vary in length, is a list of tuples.
Column = np.ndarray | list[tuple]
Table = dict[str, Column]
"""The columns of an element by name; of two with equal names, the second is called "NAME 2"."""

LINE_END = re.compile(rb"\r\n|\n|\r")
# Microsoft's C library writes NaN as 1.#QNAN, -1.#IND, 1.#R or nan(ind), and infinity as 1.#INF.
_NAN_WORD = re.compile(rb"(?i)[-+]?\d*\.?#[a-z]+0*|[-+]?nan\(\w*\)")
_BYTES_SHOWN = 60


class FormatError(ValueError):
    """A file cannot be read although it is whole. `fix` says what helps instead of another download."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


@dataclass(frozen=True)
class Property:
    """`type` is a numpy type code; `count_type` is the type code of a list's length, or None for a scalar."""

    name: str
    type: str
    count_type: str | None = None


@dataclass(frozen=True)
class Element:
    """One table: its rows have these properties, one after the other."""

    name: str
    count: int
    properties: tuple[Property, ...]

    @property
    def column_names(self) -> list[str]:
        """The unique name of each property's column."""
        names: list[str] = []
        for prop in self.properties:
            same = sum(prop.name == other.name for other in self.properties[: len(names)])
            names.append(f"{prop.name} {same + 1}" if same else prop.name)
        return names


def read_binary(elements: Sequence[Element], body: np.ndarray, order: str) -> list[Table]:
    """The table of each element from `body` (K,) uint8; `order` is numpy's byte order character.

    Raises ValueError if rows are missing.
    """
    return _read_elements(elements, body, order)[0]


def read_text(elements: Sequence[Element], body: np.ndarray) -> list[Table]:
    """The table of each element from rows of text, `body` (K,) uint8: one row a line, or broken anywhere.

    Integer columns with values that their type cannot hold, such as 0.5, become float64. Raises ValueError if rows are
    missing, and FormatError, naming the row, for a row that is too long or has a word that is not a number.
    """
    body = np.asarray(body)  # a plain array: each operation on a memory map makes another one
    rows = _Rows(body, sum(element.count for element in elements if element.properties))
    doubles = [
        replace(e, properties=tuple(Property(p.name, "f8", p.count_type and "f8") for p in e.properties))
        for e in elements
    ]
    rows.require_numbers(elements)
    if rows.complete and (wrong := _row_of_wrong_width(doubles, rows)):
        # The lines are not the rows. The file may be one stream of numbers.
        if not rows.one_per_line and (tables := _read_stream(doubles, _Rows(body, None))):
            return _typed(elements, tables)
        raise wrong
    return _typed(elements, _read_elements(doubles, rows.numbers.view(np.uint8), "<")[0])


class _Rows:
    """The first `count` lines of a text that are not blank, or all of them.

    `words` is the number of words of each line; `numbers` (K,) float64 has all of them, or those before a word that is
    not a number.
    """

    def __init__(self, body: np.ndarray, count: int | None) -> None:
        ends = np.append(np.flatnonzero((body == 10) | (body == 13)), len(body))
        blank = body <= 32
        starts = np.flatnonzero(~blank & np.append(True, blank[:-1]))
        words = np.diff(np.searchsorted(starts, ends), prepend=0)
        filled = np.flatnonzero(words)
        self.complete = count is not None and len(filled) >= count
        self.one_per_line = len(filled) == count
        self._ends = ends[filled[:count]]
        self._text = body[: self._ends[-1] if len(self._ends) else 0].tobytes()
        self.words = words[filled[:count]]
        text = _NAN_WORD.sub(b"nan", self._text) if b"#" in self._text or b"(" in self._text else self._text
        try:
            self.numbers = np.fromstring(text, dtype="<f8", sep=" ")
        except ValueError:  # as numpy 2 says that a word is not a number; numpy 1 returns the numbers before it
            self.numbers = np.zeros(0)

    def line(self, index: int) -> str:
        """The text of a line, shortened."""
        start = self._ends[index - 1] if index else 0
        text = self._text[start : self._ends[index]].decode("latin-1").split()
        words = " ".join(text)
        return words if len(words) <= _BYTES_SHOWN else f"{words[:_BYTES_SHOWN]}..."

    def require_numbers(self, elements: Sequence[Element]) -> None:
        """Raise FormatError, naming the row, if a word is not a number."""
        if len(self.numbers) == self.words.sum():
            return
        for index in range(len(self.words)):
            start = self._ends[index - 1] if index else 0
            for word in _NAN_WORD.sub(b"nan", self._text[start : self._ends[index]]).split():
                try:
                    float(word)
                except ValueError:
                    fix = "write numbers with a point, and blanks between them" if b"," in word else "correct the row"
                    why = f"{_place(elements, index)} contains {word.decode('latin-1')!r}, which is not a number"
                    raise FormatError(f"{why}: {self.line(index)!r}", fix) from None
        raise ValueError("its rows contain something that is not a number")


def _place(elements: Sequence[Element], line: int) -> str:
    """Which row of which element is in a line, in words."""
    for element in elements:
        if element.properties and line < element.count:
            return f"row {line + 1} of {element.name}"
        line -= element.count if element.properties else 0
    return "a row after the last"


def _row_of_wrong_width(elements: Sequence[Element], rows: _Rows) -> ValueError | None:
    """The error of the first line that has more or fewer numbers than its row needs."""
    first, starts = 0, np.cumsum(rows.words) - rows.words
    for element in elements:
        if not element.properties:
            continue
        lines = slice(first, first + element.count)
        needed = _ends_of_rows(element, rows.numbers, starts[lines]) - starts[lines]
        for row in np.flatnonzero(needed != rows.words[lines])[:1]:
            has, index = rows.words[lines][row], first + int(row)
            why = f"{_place(elements, index)} has {has} values instead of {needed[row]}: {rows.line(index)!r}"
            if has < needed[row]:
                return ValueError(f"truncated or damaged: {why}")
            return FormatError(why, "correct its header or its rows")
        first += element.count
    return None


def _ends_of_rows(element: Element, numbers: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """(R,) where each of the element's rows, which begin at `starts`, ends in `numbers` according to its lists."""
    at = starts.copy()
    for prop in element.properties:
        if prop.count_type:
            counts = numbers[np.minimum(at, len(numbers) - 1)]
            at += np.where((counts >= 0) & (counts < len(numbers)), counts, 0).astype(np.int64)
        at += 1
    return at


def _read_stream(elements: Sequence[Element], rows: _Rows) -> list[Table] | None:
    """The tables from a text whose lines are not its rows; None if it has other than exactly the numbers of these."""
    try:
        tables, rest = _read_elements(elements, rows.numbers.view(np.uint8), "<")
    except ValueError:
        return None
    return None if len(rest) else tables


def _typed(elements: Sequence[Element], tables: list[Table]) -> list[Table]:
    """The columns of doubles in the types that the header declares, where these can hold them.

    Packed colours may be written as the value of a word, which float32 would round.
    """
    for element, table in zip(elements, tables, strict=True):
        for name, prop in zip(element.column_names, element.properties, strict=True):
            if prop.count_type:
                continue
            values = np.asarray(table[name])
            with np.errstate(invalid="ignore", over="ignore"):
                typed = values.astype(prop.type)
            if (typed == values).all() or (typed.dtype.kind == "f" and not _are_words(values)):
                table[name] = typed
    return tables


def _are_words(values: np.ndarray) -> bool:
    """Whether all of (K,) float64 may be the values of 32-bit words."""
    return bool(((values >= 0) & (values < 2**32) & (values == np.floor(values))).all())


def _read_elements(elements: Sequence[Element], body: np.ndarray, order: str) -> tuple[list[Table], np.ndarray]:
    """The table of each element, and the rest of the body."""
    tables: list[Table] = []
    for element in elements:
        dtype = _first_row_type(element, body, order)
        size = element.count * dtype.itemsize
        rows = body[:size].view(dtype) if dtype.itemsize and size <= len(body) else None
        lists = [index for index, prop in enumerate(element.properties) if prop.count_type]
        if not element.properties:
            tables.append({})
        elif rows is not None and all((rows[f"count {i}"] == dtype[f"value {i}"].shape[0]).all() for i in lists):
            tables.append({name: rows[f"value {index}"] for index, name in enumerate(element.column_names)})
        elif lists:
            table, size = _read_ragged(element, body, order)
            tables.append(table)
        else:
            raise truncated(element, len(body) // dtype.itemsize)
        body = body[size:]
    return tables, body


def _first_row_type(element: Element, body: np.ndarray, order: str) -> np.dtype:
    """The numpy type of the element's first row. In most files, the lists of all rows have the same lengths."""
    fields: list[tuple] = []
    for index, prop in enumerate(element.properties):
        if not prop.count_type:
            fields.append((f"value {index}", order + prop.type))
            continue
        code, start = np.dtype(order + prop.count_type), np.dtype(fields).itemsize
        if element.count and start + code.itemsize > len(body):
            raise truncated(element, 0)
        size = int(body[start : start + code.itemsize].view(code)[0]) if element.count else 0
        if not 0 <= size <= len(body):
            raise truncated(element, 0)
        fields += [(f"count {index}", code), (f"value {index}", order + prop.type, (size,))]
    return np.dtype(fields)


def _read_ragged(element: Element, body: np.ndarray, order: str) -> tuple[Table, int]:
    """Read an element whose lists vary in length: its columns, and their size in bytes."""
    data, offset = body.tobytes(), 0
    columns: list[list[tuple]] = [[] for _ in element.properties]
    for row in range(element.count):
        for column, prop in zip(columns, element.properties, strict=True):
            size = 1
            try:
                if prop.count_type:
                    count = struct.Struct(order + _struct_code(prop.count_type))
                    size = int(count.unpack_from(data, offset)[0])
                    offset += count.size
                item = struct.Struct(f"{order}{size}{_struct_code(prop.type)}")
                column.append(item.unpack_from(data, offset))
            except (struct.error, ValueError, OverflowError) as error:  # a count that is negative, NaN or too large
                raise truncated(element, row) from error
            offset += item.size
    return {
        name: column if prop.count_type else np.array(column, dtype=prop.type)[:, 0]
        for name, column, prop in zip(element.column_names, columns, element.properties, strict=True)
    }, offset


def _struct_code(code: str) -> str:
    return {"i8": "q", "u8": "Q"}.get(code) or np.dtype(code).char


def truncated(element: Element, count: int) -> ValueError:
    """The error of an element of which only `count` rows are there."""
    return ValueError(
        f"truncated or damaged: its header declares {element.count} {element.name} rows, but only {count} can be read"
    )
