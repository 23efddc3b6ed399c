"""Finds coordinates and colours among the columns of a scan file, and the range of colours."""

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from roomscout.rendering.tables import Table

_log = logging.getLogger(__name__)

# The zeroth real spherical harmonic, 1 / (2 sqrt(pi)).
SH_C0 = 0.28209479177387814
_CHANNELS = (("red", "green", "blue"), ("r", "g", "b"), ("diffuse_red", "diffuse_green", "diffuse_blue"))
HARMONICS = ("f_dc_0", "f_dc_1", "f_dc_2")
_GREY = re.compile(r"(intensity|reflectance|reflectivity|remission|amplitude|luminance|gr[ae]y)[_#\d]*")
_GREY_PERCENTILES = (1.0, 99.0)
# Full brightness of colours of 10, 12, 16 and 32 bits; a few values may be higher.
_DEPTHS, _HIGHEST_PERCENTILE = (1023, 4095, 65535, 2**32 - 1), 99.0


def plain_name(name: str) -> str:
    """The name of a column in lower case, without what CloudCompare puts before it."""
    return name.lower().removeprefix("scalar_")


def by_plain_name(table: Table) -> dict[str, np.ndarray]:
    """The columns of numbers by their plain names."""
    return {
        plain_name(name): column
        for name, column in table.items()
        if isinstance(column, np.ndarray) and column.ndim == 1
    }


def positions(table: Table) -> np.ndarray:
    """The coordinates (N, 3) in this machine's byte order; raises ValueError, which names the columns, without them."""
    columns = by_plain_name(table)
    if not columns.keys() >= set("xyz"):
        raise ValueError(f"its rows have no x, y and z; the columns are {', '.join(table)}")
    stacked = np.column_stack([columns[axis] for axis in "xyz"])
    # float64 unless the file stores float32, which keeps the precision of large coordinates
    return stacked.astype(np.result_type(stacked, np.float32), copy=False)


def colours(table: Table) -> np.ndarray | None:
    """(K, 3) uint8 from the columns that hold colours, whatever the case of their names; None if none do.

    Takes red, green and blue (or r, g and b; diffuse_red, ...), a splat's f_dc_0 to f_dc_2, as 0.5 + SH_C0 * f_dc (B.
    Kerbl et al., "3D Gaussian Splatting for Real-Time Radiance Field Rendering", 2023), and PCL's packed rgb. Of
    several, the first that is not the same everywhere. Ignores alpha.
    """
    found = None
    for candidate in _candidates(table):
        if len(candidate) < 2 or (candidate != candidate[0]).any():
            return candidate
        found = candidate if found is None else found
    return found


def _candidates(table: Table) -> Iterator[np.ndarray]:
    columns = by_plain_name(table)
    for names in _CHANNELS:
        if columns.keys() >= set(names):
            values = np.column_stack([columns[name] for name in names])
            yield as_bytes(values, full_scale(values, _DEPTHS))
    if columns.keys() >= set(HARMONICS):
        yield as_bytes(0.5 + SH_C0 * np.column_stack([columns[name] for name in HARMONICS]).astype(np.float64), 1.0)
    for name in ("rgb", "rgba"):
        if name in columns and (words := _packed_words(columns[name])) is not None:
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


def full_scale(values: np.ndarray, depths: Sequence[float] = (65535,)) -> float:
    """Full brightness of colours of any shape: 1 (of floats), 255, or the least of `depths` that holds nearly all.

    The median of the values above 0 decides between them, so that a few outliers are clipped.
    """
    bright = values[values > 0].astype(np.float64)
    typical = float(np.median(bright)) if len(bright) else 0.0
    if values.dtype.kind == "f" and typical <= 1:
        return 1.0
    if typical <= 255:
        return 255.0
    highest = np.percentile(bright, _HIGHEST_PERCENTILE)
    return next((each for each in depths if highest <= each), depths[-1])


def as_bytes(values: np.ndarray, full: float) -> np.ndarray:
    """Colours of any numbers and shape as uint8, where `full` is full brightness; clips what is beyond, NaN is 0."""
    if values.dtype == np.uint8 and full == 255:
        return values
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    return (numbers * (255 / full)).clip(0, 255).round().astype(np.uint8)


def colours_or_greys(path: Path, table: Table) -> np.ndarray | None:
    """The `colours` of the rows, else an intensity in grey, (K, 3) uint8; warns of a file without colours.

    The greys stretch the 1st to 99th percentile to 0 to 255.
    """
    if (found := colours(table)) is not None:
        return found
    for name, column in by_plain_name(table).items():
        if _GREY.fullmatch(name):
            values = np.nan_to_num(column.astype(np.float64), posinf=0.0, neginf=0.0)
            darkest, brightest = np.percentile(values, _GREY_PERCENTILES) if len(values) else (0.0, 0.0)
            if brightest > darkest:
                _log.warning("%s: no colours read; drawing its %s in grey", path, name)
                grey = ((values - darkest) / (brightest - darkest) * 255).clip(0, 255).round().astype(np.uint8)
                return np.repeat(grey[:, None], 3, axis=1)
    _log.warning("%s: no colours read; the columns are %s", path, ", ".join(table))
    return None
