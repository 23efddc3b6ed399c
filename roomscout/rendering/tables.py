"""Reads the tables of numbers in PLY, PCD and OBJ files, and finds coordinates and colours among their columns."""

import logging
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roomscout.base.pictures import as_bytes, full_scale

_log = logging.getLogger(__name__)

Column = np.ndarray | list[tuple]  # a ragged column, whose lists vary in length, is a list of tuples
Table = dict[str, Column]  # the columns of an element by name

SH_C0 = 0.28209479177387814  # the zeroth real spherical harmonic, 1 / (2 sqrt(pi))
_CHANNELS = (("red", "green", "blue"), ("r", "g", "b"), ("diffuse_red", "diffuse_green", "diffuse_blue"))
HARMONICS = ("f_dc_0", "f_dc_1", "f_dc_2")
_GREY = re.compile(r"(intensity|reflectance|reflectivity|remission|amplitude|luminance|gr[ae]y)[_#\d]*")
_GREY_PERCENTILES = (1.0, 99.0)
_DEPTHS = (1023, 4095, 65535, 2**32 - 1)  # full brightness of 10, 12, 16 and 32 bits; a few values may be higher


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


def read_tables(elements: Sequence[Element], body: np.ndarray, order: str) -> list[Table]:
    """The table of each element from the rows in `body` (K,) uint8; `order` is numpy's byte order character, or "" for
    text. Raises ValueError if rows are missing or wrong."""
    if not order:
        return _read_text(elements, body.tobytes())
    tables = []
    for element in elements:
        table, size = _read_binary(element, body, order)
        tables.append(table)
        body = body[size:]
    return tables


def _read_binary(element: Element, body: np.ndarray, order: str) -> tuple[Table, int]:
    """The table of an element at the beginning of `body`, and its size in bytes."""
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
        code = np.dtype(order + prop.count_type)
        start = np.dtype(fields).itemsize
        first = body[start : start + code.itemsize] if element.count else np.zeros(code.itemsize, np.uint8)
        if len(first) < code.itemsize or not 0 <= first.view(code)[0] <= len(body):
            raise _truncated(element, 0)
        fields += [(f"{prop.name} count", code), (prop.name, order + prop.type, (int(first.view(code)[0]),))]
    return np.dtype(fields)


def _read_ragged(element: Element, data: bytes, order: str) -> tuple[Table, int]:
    """Read an element whose lists vary in length: its columns, and their size in bytes."""
    columns: dict[str, list[tuple]] = {prop.name: [] for prop in element.properties}
    forms = [
        (prop.name, prop.count_type and order + np.dtype(prop.count_type).char, np.dtype(prop.type).char)
        for prop in element.properties
    ]
    at = 0
    for row in range(element.count):
        for name, count_form, code in forms:
            try:
                size = 1
                if count_form:
                    size = int(struct.unpack_from(count_form, data, at)[0])
                    at += struct.calcsize(count_form)
                form = f"{order}{size}{code}"
                columns[name].append(struct.unpack_from(form, data, at))
            except (struct.error, ValueError, OverflowError) as error:  # a count that is negative, NaN or too large
                raise _truncated(element, row) from error
            at += struct.calcsize(form)
    return {
        prop.name: columns[prop.name] if prop.count_type else np.array(columns[prop.name], dtype=prop.type)[:, 0]
        for prop in element.properties
    }, at


def _read_text(elements: Sequence[Element], text: bytes) -> list[Table]:
    """The table of each element from rows of text; integer columns with other numbers become float64. Raises ValueError
    naming the row that is too long, too short or has a word that is no number, and if rows are missing."""
    lines = [line for line in text.splitlines() if line.strip()]
    tables = []
    for element in elements:
        rows = lines[: element.count]
        lines = lines[element.count :]
        if len(rows) < element.count:
            raise _truncated(element, len(rows))
        numbers, widths = numbers_of(rows, f"row {{}} of {element.name}".format)
        starts = np.cumsum(widths) - widths
        ends = starts.copy()
        for prop in element.properties:
            if prop.count_type:
                counts = numbers[ends.clip(max=len(numbers) - 1)]
                ends += np.where((counts >= 0) & (counts < len(numbers)), counts, 0).astype(np.int64)
            ends += 1
        wrong = np.flatnonzero(ends - starts != widths)
        if len(wrong):
            row = wrong[0]
            needed = (ends - starts)[row]
            raise ValueError(f"row {row + 1} of {element.name} has {widths[row]} numbers instead of {needed}")
        doubles = [replace(p, type="f8", count_type=p.count_type and "f8") for p in element.properties]
        table, _ = _read_binary(replace(element, properties=doubles), numbers.view(np.uint8), "=")
        for prop in element.properties:
            if not prop.count_type:
                table[prop.name] = _typed(np.asarray(table[prop.name]), prop.type)
        tables.append(table)
    return tables


def numbers_of(lines: Sequence[bytes], place: Callable[[int], str]) -> tuple[np.ndarray, np.ndarray]:
    """All numbers of the lines, (K,) float64, and how many each line has, (R,) int64. Raises ValueError, which begins
    with the `place` of a line by its number from 1, for a word that is not a number."""
    widths = np.fromiter((len(line.split()) for line in lines), np.int64, len(lines))
    try:
        numbers = np.fromstring(b" ".join(lines), dtype="<f8", sep=" ")
    except ValueError:  # numpy 2 says so that a word is not a number; numpy 1 returns the numbers before it
        numbers = np.zeros(0)
    if len(numbers) == widths.sum():
        return numbers, widths
    for number, line in enumerate(lines, start=1):
        for word in line.split():
            try:
                float(word)
            except ValueError:
                raise ValueError(f"{place(number)}: {word.decode('latin-1')!r} is not a number") from None
    raise ValueError("its rows contain something that is not a number")


def _typed(values: np.ndarray, code: str) -> np.ndarray:
    """Doubles in the type that the header declares, if it can hold them; it may not hold packed colours."""
    with np.errstate(invalid="ignore", over="ignore"):
        typed = values.astype(code)
    are_words = ((values >= 0) & (values < 2**32) & (values == np.floor(values))).all()
    return typed if (typed == values).all() or (typed.dtype.kind == "f" and not are_words) else values


def _truncated(element: Element, count: int) -> ValueError:
    what = f"its header declares {element.count} {element.name} rows, but only {count} can be read"
    return ValueError(f"truncated or damaged: {what}")


def plain_name(name: str) -> str:
    """The name of a column in lower case, without what CloudCompare puts before it."""
    return name.lower().removeprefix("scalar_")


def by_plain_name(table: Table) -> dict[str, np.ndarray]:
    """The columns of numbers by their plain names."""
    numbers = {name: column for name, column in table.items() if isinstance(column, np.ndarray) and column.ndim == 1}
    return {plain_name(name): column for name, column in numbers.items()}


def positions(table: Table) -> np.ndarray:
    """The coordinates (N, 3) in this machine's byte order; raises ValueError, which names the columns, without them."""
    columns = by_plain_name(table)
    if not columns.keys() >= set("xyz"):
        raise ValueError(f"its rows have no x, y and z; the columns are {', '.join(table)}")
    stacked = np.column_stack([columns[axis] for axis in "xyz"])
    # float64 unless the file stores float32, which keeps the precision of large coordinates
    return stacked.astype(np.result_type(stacked, np.float32), copy=False)


def colours(table: Table) -> np.ndarray | None:
    """(K, 3) uint8 from the columns that hold colours, whatever the case of their names; None if none do. Takes red,
    green and blue (or r, g and b; diffuse_red, ...), a splat's f_dc_0 to f_dc_2, as 0.5 + SH_C0 * f_dc (B. Kerbl et
    al., "3D Gaussian Splatting for Real-Time Radiance Field Rendering", 2023), and PCL's packed rgb. Of several, the
    first that is not the same everywhere. Ignores alpha."""
    candidates = list(_candidates(table))
    varied = [rgb for rgb in candidates if (rgb != rgb[:1]).any()]
    return next(iter(varied + candidates), None)


def _candidates(table: Table) -> Iterator[np.ndarray]:
    columns = by_plain_name(table)
    for names in _CHANNELS:
        if columns.keys() >= set(names):
            values = np.column_stack([columns[name] for name in names])
            yield as_bytes(values, full_scale(values, _DEPTHS))
    if columns.keys() >= set(HARMONICS):
        yield as_bytes(0.5 + SH_C0 * np.column_stack([columns[name] for name in HARMONICS]).astype(np.float64), 1.0)
    for name in ("rgb", "rgba"):
        words = _packed_words(columns[name]) if name in columns else None
        if words is not None:
            yield (words[:, None] >> np.array([16, 8, 0]) & 0xFF).astype(np.uint8)


def _packed_words(column: np.ndarray) -> np.ndarray | None:
    """(K,) int64 words 0xAARRGGBB: of integers, or of floats that have the bits or the value of a word; else None."""
    native = column.astype(column.dtype.newbyteorder("="))
    if native.dtype.kind != "f":
        words = native.astype(np.int64) & 0xFFFFFFFF
    elif (native == np.floor(native)).all() and 1 < native.max(initial=0) < 2**32 and native.min() >= 0:
        words = native.astype(np.int64)
    else:
        words = native.astype(np.float32).view(np.uint32).astype(np.int64)
    return words if words.max(initial=0) > 255 else None  # else they are labels


def colours_or_greys(path: Path, table: Table) -> np.ndarray | None:
    """The `colours` of the rows, else the 1st to the 99th percentile of an intensity in grey; warns without colours."""
    rgb = colours(table)
    if rgb is not None:
        return rgb
    for name, column in by_plain_name(table).items():
        if _GREY.fullmatch(name) and len(column):
            values = np.nan_to_num(column.astype(np.float64), posinf=0.0, neginf=0.0)
            darkest, brightest = np.percentile(values, _GREY_PERCENTILES)
            if brightest > darkest:
                _log.warning("%s: no colours read; drawing its %s in grey", path, name)
                grey = ((values - darkest) / (brightest - darkest) * 255).clip(0, 255).round().astype(np.uint8)
                return np.repeat(grey[:, None], 3, axis=1)
    _log.warning("%s: no colours read; the columns are %s", path, ", ".join(table))
    return None
