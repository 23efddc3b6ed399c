"""Reads tables of numbers as PLY, PCD and OBJ files hold them, in text or binary, and detects truncated ones."""

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

# A ragged column, whose lists vary in length, is a list of tuples.
Column = np.ndarray | list[tuple]
Table = dict[str, Column]
"""The columns of an element by name."""

# Microsoft's C library writes NaN as 1.#QNAN or -1.#IND, and infinity as 1.#INF.
_NAN_WORD = re.compile(rb"[-+]?\d\.#[A-Z]+\d*")


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
    properties: list[Property]


def read_binary(element: Element, body: np.ndarray, order: str) -> tuple[Table, int]:
    """The table of an element at the beginning of `body` (K,) uint8, and its size in bytes.

    `order` is numpy's byte order character. Raises ValueError if rows are missing.
    """
    dtype = _first_row_type(element, body, order)
    size = element.count * dtype.itemsize
    lists = [prop.name for prop in element.properties if prop.count_type]
    if size <= len(body):
        rows = body[:size].view(dtype) if size else np.zeros(0, dtype)
        if all((rows[f"{name} count"] == dtype[name].shape[0]).all() for name in lists):
            return {prop.name: rows[prop.name] for prop in element.properties}, size
    if lists:
        return _read_ragged(element, body.tobytes(), order)
    raise _truncated(element, len(body) // dtype.itemsize)


def _first_row_type(element: Element, body: np.ndarray, order: str) -> np.dtype:
    """The numpy type of the element's first row. In most files, the lists of all rows have the same lengths."""
    fields: list[tuple] = []
    for prop in element.properties:
        if not prop.count_type:
            fields.append((prop.name, order + prop.type))
            continue
        code, start = np.dtype(order + prop.count_type), np.dtype(fields).itemsize
        first = body[start : start + code.itemsize] if element.count else np.zeros(code.itemsize, np.uint8)
        if len(first) < code.itemsize or not 0 <= first.view(code)[0] <= len(body):
            raise _truncated(element, 0)
        fields += [(f"{prop.name} count", code), (prop.name, order + prop.type, (int(first.view(code)[0]),))]
    return np.dtype(fields)


def _read_ragged(element: Element, data: bytes, order: str) -> tuple[Table, int]:
    """Read an element whose lists vary in length: its columns, and their size in bytes."""
    columns: dict[str, list[tuple]] = {prop.name: [] for prop in element.properties}
    codes = [
        (columns[prop.name], prop.count_type and np.dtype(prop.count_type).char, np.dtype(prop.type).char)
        for prop in element.properties
    ]
    at = 0
    for row in range(element.count):
        for column, count_code, code in codes:
            try:
                size = 1
                if count_code:
                    size = int(struct.unpack_from(order + count_code, data, at)[0])
                    at += struct.calcsize(order + count_code)
                form = f"{order}{size}{code}"
                column.append(struct.unpack_from(form, data, at))
            except (struct.error, ValueError, OverflowError) as error:  # a count that is negative, NaN or too large
                raise _truncated(element, row) from error
            at += struct.calcsize(form)
    return {
        prop.name: columns[prop.name] if prop.count_type else np.array(columns[prop.name], dtype=prop.type)[:, 0]
        for prop in element.properties
    }, at


def read_text(elements: Sequence[Element], text: bytes) -> list[Table]:
    """The table of each element from rows of text, one a line.

    Integer columns with values that their type cannot hold, such as 0.5, become float64. Raises ValueError, which names
    the row, for a row that is too long, too short or has a word that is not a number, and if rows are missing.
    """
    lines, tables = [line for line in text.splitlines() if line.strip()], []
    for element in elements:
        rows, lines = lines[: element.count], lines[element.count :]
        if len(rows) < element.count:
            raise _truncated(element, len(rows))
        numbers, widths = numbers_of(rows, f"row {{}} of {element.name}".format)
        _require_widths(element, numbers, widths)
        doubles = [replace(p, type="f8", count_type=p.count_type and "f8") for p in element.properties]
        table, _ = read_binary(replace(element, properties=doubles), numbers.view(np.uint8), "=")
        for prop in element.properties:
            if not prop.count_type:
                table[prop.name] = _typed(np.asarray(table[prop.name]), prop.type)
        tables.append(table)
    return tables


def numbers_of(lines: Sequence[bytes], place: Callable[[int], str]) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of the lines, (K,) float64, and how many each line has, (R,) int64.

    Raises ValueError, which begins with the `place` of a line by its number from 1, for a word that is not a number.
    """
    widths = np.fromiter((len(line.split()) for line in lines), np.int64, len(lines))
    text = b" ".join(lines)
    try:
        numbers = np.fromstring(_NAN_WORD.sub(b"nan", text) if b"#" in text else text, dtype="<f8", sep=" ")
    except ValueError:  # numpy 2 says so that a word is not a number; numpy 1 returns the numbers before it
        numbers = np.zeros(0)
    if len(numbers) == widths.sum():
        return numbers, widths
    for number, line in enumerate(lines, start=1):
        for word in _NAN_WORD.sub(b"nan", line).split():
            try:
                float(word)
            except ValueError:
                raise ValueError(f"{place(number)}: {word.decode('latin-1')!r} is not a number") from None
    raise ValueError("its rows contain something that is not a number")


def _require_widths(element: Element, numbers: np.ndarray, widths: np.ndarray) -> None:
    """Raise ValueError, which names the row, if one has more or fewer numbers than its properties need."""
    starts = np.cumsum(widths) - widths
    at = starts.copy()
    for prop in element.properties:
        if prop.count_type:
            counts = numbers[at.clip(max=len(numbers) - 1)]
            at += np.where((counts >= 0) & (counts < len(numbers)), counts, 0).astype(np.int64)
        at += 1
    for row in np.flatnonzero(at - starts != widths)[:1]:
        needed = (at - starts)[row]
        raise ValueError(f"row {row + 1} of {element.name} has {widths[row]} numbers instead of {needed}")


def _typed(values: np.ndarray, code: str) -> np.ndarray:
    """Doubles in the type that the header declares, if it can hold them.

    Packed colours may be written as the value of a word, which float32 would round.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        typed = values.astype(code)
    are_words = ((values >= 0) & (values < 2**32) & (values == np.floor(values))).all()
    return typed if (typed == values).all() or (typed.dtype.kind == "f" and not are_words) else values


def _truncated(element: Element, count: int) -> ValueError:
    return ValueError(
        f"truncated or damaged: its header declares {element.count} {element.name} rows, but only {count} can be read"
    )
