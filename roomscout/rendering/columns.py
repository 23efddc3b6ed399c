"""Finds coordinates and colours among the columns of a scan file, whatever their names and types."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from roomscout.rendering.tables import Column, FormatError, Table

_log = logging.getLogger(__name__)

# The zeroth real spherical harmonic, 1 / (2 sqrt(pi)).
SH_C0 = 0.28209479177387814
_POINT = r"(?:scalar|vertex|vert|points?|position|pos|p|coords?|location|world)"
_POSITION = re.compile(rf"({_POINT}*)([xyz])({_POINT}?)")
_CHANNELS = (("red", "green", "blue"), ("r", "g", "b"))
_F_DC = re.compile(r"(.*?)(?:f_|features_|sh_)?dc_?([012])")
_NUMBERED = re.compile(r"(.*?)(?:colou?rs?|rgba?|col|cd)_?[\[(:]?([0-3xyz])[\])]?")
_NUMBERS = ("012", "123", "xyz")
_PACKED = re.compile(r"(?:scalar_)?(?:packed_?|vertex_?|point_?|diffuse_?)*(?:a?rgba?|bgra?|colou?rs?)")
_LIST = re.compile(r"(?:vertex_?|point_?|face_?|corner_?|wedge_?)?(?:rgba?|colou?rs?)")
_GREY = re.compile(
    r"(?:scalar_)?(?:gr[ae]y(?:scale)?|luminance|intensity|reflectance|reflectivity|remission|amplitude|brightness)[_#\d]*"
)
_DIFFUSE, _NOT_DIFFUSE = re.compile(r"diffuse|albedo|base"), re.compile(r"spec|ambient|emis|normal|tangent")
_GREY_PERCENTILES = (1.0, 99.0)
_NAMES_SHOWN = 20
# Colours of 10, 12, 16 and 32 bits; a few values may be higher.
_FULL_SCALES, _HIGHEST_PERCENTILE = (1023, 4095, 65535, 2**32 - 1), 99.0


def positions(table: Table) -> np.ndarray:
    """The coordinates (N, 3) in this machine's byte order: the columns x, y and z in any case, or such as pos_x.

    Raises FormatError, naming the columns, if there are none.
    """
    axes = _axes(table)
    if axes is None:
        if "packed_position" in table:
            raise FormatError(
                "it is a compressed Gaussian splat of PlayCanvas, with packed_position instead of x, y and z",
                "save it as an uncompressed PLY, for example with PlayCanvas' splat-transform or SuperSplat",
            )
        raise FormatError(
            f"its rows have no x, y and z; the columns are {listed(table)}", "export it with columns of these names"
        )
    stacked = np.column_stack([table[name] for name in axes])
    # float64 unless the file stores float32, which keeps the precision of large coordinates
    return stacked.astype(np.result_type(stacked, np.float32), copy=False)


def has_positions(table: Table) -> bool:
    """Whether `positions` finds coordinates, or the packed ones that it names."""
    return _axes(table) is not None or "packed_position" in table


def _axes(table: Table) -> list[str] | None:
    """The names of the columns with the coordinates."""
    triples: dict[str, dict[str, str]] = {}
    for name in _scalars(table):
        if match := _POSITION.fullmatch(re.sub("[^a-z0-9]", "", name.lower())):
            triples.setdefault(match[1] + match[3], {}).setdefault(match[2], name)
    whole = [kind for kind, triple in triples.items() if len(triple) == 3]
    return [triples[min(whole, key=len)][axis] for axis in "xyz"] if whole else None


def colours(table: Table) -> np.ndarray | None:
    """(K, 3) uint8 from the columns that hold colours; None if none do.

    Takes, whatever their case: three columns whose names differ in red, green and blue (or r, g and b) alone, such as
    scalar_red; a splat's f_dc_0 to f_dc_2, as 0.5 + SH_C0 * f_dc (B. Kerbl et al., "3D Gaussian Splatting for Real-Time
    Radiance Field Rendering", 2023); numbered ones (color_0); one column with packed colours, as PCL's rgb; a list
    (MeshLab's colours of corners, averaged). Of several, the first that is not the same everywhere. Ignores alpha.

    The median of the values above 0 decides their range for the whole file, so a few outliers are clipped: 0 to 1 (of
    floats), 0 to 255, or else the least of 10, 12, 16 and 32 bits that holds nearly all.
    """
    found = None
    for candidate in _candidates(table):
        if len(candidate) < 2 or (candidate != candidate[0]).any():
            return candidate
        found = candidate if found is None else found
    return found


def greys(table: Table) -> tuple[str, np.ndarray] | None:
    """The name of the first column that holds a brightness, such as intensity, and its values as greys, (K, 3) uint8.

    Stretches the 1st to 99th percentile to 0 to 255. None if no such column has different values.
    """
    for name in _scalars(table):
        if _GREY.fullmatch(_plain(name)):
            values = np.nan_to_num(np.asarray(table[name], dtype=np.float64), posinf=0.0, neginf=0.0)
            darkest, brightest = np.percentile(values, _GREY_PERCENTILES) if len(values) else (0.0, 0.0)
            if brightest > darkest:
                grey = ((values - darkest) / (brightest - darkest) * 255).clip(0, 255).round().astype(np.uint8)
                return name, np.repeat(grey[:, None], 3, axis=1)
    return None


def colours_or_greys(path: Path, table: Table, others: Table | None = None) -> np.ndarray | None:
    """The `colours` of the rows, else their `greys`; says in one warning that a file has no colours.

    The warning also lists the numbers of `others`, the rows of faces.
    """
    if (found := colours(table)) is not None:
        return found
    others = others or {}
    names = listed({**table, **{name: others[name] for name in _scalars(others)}})
    if (grey := greys(table)) is not None:
        _log.warning("%s: no colours read; the columns are %s: drawing %s in grey", path, names, grey[0])
        return grey[1]
    _log.warning("%s: no colours read; the columns are %s", path, names)
    return None


def listed(table: Table) -> str:
    """The names of the columns, in words; of many, the first."""
    names = list(table)
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return (", ".join(names[:_NAMES_SHOWN]) or "none") + more


def _scalars(table: Table) -> list[str]:
    return [name for name, column in table.items() if isinstance(column, np.ndarray) and column.ndim == 1]


def _plain(name: str) -> str:
    """A name in lower case, with underscores between its words: vertexRed is vertex_red."""
    return re.sub(r"[\s.\-]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)).lower()


def _candidates(table: Table) -> Iterator[np.ndarray]:
    """The colours of the table, (K, 3) uint8, from the likeliest columns first."""
    for names in _named_triples(table):
        yield _as_bytes(np.column_stack([table[name] for name in names]))
    for names in _numbered_triples(table, _F_DC):
        harmonics = np.column_stack([table[name] for name in names]).astype(np.float64)
        yield _bytes_of_fractions(0.5 + SH_C0 * harmonics)
    for names in _numbered_triples(table, _NUMBERED):
        yield _as_bytes(np.column_stack([table[name] for name in names]))
    for name, column in table.items():
        if _PACKED.fullmatch(_plain(name)) and (packed := _packed(column, _plain(name))) is not None:
            yield packed
        elif _LIST.fullmatch(_plain(name)) and isinstance(column, np.ndarray) and column.ndim == 2:
            width = column.shape[1]
            if width in (3, 4):
                yield _as_bytes(column[:, :3])
            elif width and width % 3 == 0:
                yield _as_bytes(column.reshape(len(column), -1, 3).mean(axis=1, dtype=np.float64))


def _named_triples(table: Table) -> list[list[str]]:
    """The names of each red, green and blue column, the plainest first."""
    triples: dict[tuple[bool, str, str], dict[int, str]] = {}
    for name in _scalars(table):
        plain = _plain(name)
        for words in _CHANNELS:
            letter = words[0] == "r"
            for channel, word in enumerate(words):
                for match in re.finditer(word, plain):
                    rest = letter, plain[: match.start()], plain[match.end() :]
                    triples.setdefault(rest, {}).setdefault(channel, name)

    def rank(rest: tuple[bool, str, str]) -> int:
        words = f"{rest[1]}{rest[2]}"
        return 0 if not words else 1 if _DIFFUSE.search(words) else 3 if _NOT_DIFFUSE.search(words) else 2

    whole = [rest for rest, triple in triples.items() if len(triple) == 3]
    return [[triples[rest][channel] for channel in range(3)] for rest in sorted(whole, key=rank)]


def _numbered_triples(table: Table, pattern: re.Pattern[str]) -> list[list[str]]:
    """The names of each three columns that `pattern` matches with the numbers 0 to 2 or 1 to 3, or with x, y and z."""
    triples: dict[str, dict[str, str]] = {}
    for name in _scalars(table):
        if match := pattern.fullmatch(_plain(name)):
            triples.setdefault(match[1], {}).setdefault(match[2], name)
    found = [
        (triple, next((each for each in _NUMBERS if triple.keys() >= set(each)), "")) for triple in triples.values()
    ]
    return [[triple[number] for number in numbers] for triple, numbers in found if numbers]


def _as_bytes(values: np.ndarray) -> np.ndarray:
    """Colours (K, 3) of any type as uint8; see `colours` for their range."""
    if values.dtype == np.uint8:
        return values
    # Unsigned numbers, written as signed.
    if values.dtype.kind == "i" and values.dtype.itemsize < 4 and values.min(initial=0) < 0:
        values = values.astype(np.int64) % (1 << 8 * values.dtype.itemsize)
    numbers = np.nan_to_num(values.astype(np.float64), posinf=0.0, neginf=0.0)
    bright = numbers[numbers > 0]
    typical = float(np.median(bright)) if len(bright) else 0.0
    if values.dtype.kind == "f" and typical <= 1:
        return _bytes_of_fractions(numbers)
    if typical > 255:
        highest = np.percentile(bright, _HIGHEST_PERCENTILE)
        numbers = numbers * (255 / next((full for full in _FULL_SCALES if highest <= full), _FULL_SCALES[-1]))
    return numbers.clip(0, 255).round().astype(np.uint8)


def _bytes_of_fractions(values: np.ndarray) -> np.ndarray:
    return (np.nan_to_num(values).clip(0, 1) * 255).round().astype(np.uint8)


def _packed(column: Column, name: str) -> np.ndarray | None:
    """The colours (K, 3) uint8 of a column of 32-bit words; None if it holds something else.

    PCL's rgb and rgba are 0xAARRGGBB, and a float column has the bits of such a word. Other programs write the word's
    value as a float, or 0xRRGGBBAA.
    """
    if not isinstance(column, np.ndarray) or column.ndim != 1 or not len(column):
        return None
    kind, size = column.dtype.kind, column.dtype.itemsize
    native = column.astype(column.dtype.newbyteorder("="))
    if kind in "iu" and size >= 4:
        words = native.astype(np.int64) & 0xFFFFFFFF
    elif kind == "f" and (native == np.floor(native)).all() and 1 < native.max() < 2**32 and native.min() >= 0:
        words = native.astype(np.int64)
    elif kind == "f" and "rgb" in name:
        words = native.astype(np.float32).view(np.uint32).astype(np.int64)
    else:
        return None
    if words.max() <= 255:  # labels
        return None
    octets = words[:, None] >> np.array([24, 16, 8, 0]) & 0xFF
    first = octets[:, 0]
    alpha_is_last = (octets[:, 3] == 255).all() and not (first == first[0]).all()
    found = octets[:, :3] if alpha_is_last else octets[:, 1:]
    return (found[:, ::-1] if name.endswith(("bgr", "bgra")) else found).astype(np.uint8)
