"""Reads PCD point clouds, the format of the Point Cloud Library.

Open3D reads 8-byte coordinates as 0, ignores colours in separate fields, and pads truncated ascii files.

Format: "The PCD (Point Cloud Data) file format", https://pointclouds.org/documentation/tutorials/pcd_file_format.html
"""

import struct
from pathlib import Path

import numpy as np

from roomscout.rendering.columns import colours_or_greys, positions
from roomscout.rendering.geometry import Geometry, no_faces
from roomscout.rendering.tables import Element, Property, Table, read_binary, read_text

_HEADER_LIMIT_LINES = 100


def read_pcd(path: Path) -> Geometry:
    """The cloud in a PCD file; see `columns.colours` for where its colours may be.

    Raises ValueError if the file is not a PCD file or is incomplete, and FormatError if it is complete but of no use.
    """
    header, body = _split(path)
    element = _element(header)
    match header["DATA"]:
        case ["ascii"]:
            (table,) = read_text([element], body)
        case ["binary"]:
            (table,) = read_binary([element], body, "<")
        case ["binary_compressed"]:
            table = _read_compressed(element, body.tobytes())
        case other:
            raise ValueError(f"its DATA is {' '.join(other)!r} instead of ascii, binary or binary_compressed")
    return Geometry(positions(table), no_faces(), colours_or_greys(path, table))


def _split(path: Path) -> tuple[dict[str, list[str]], np.ndarray]:
    """The values of the header by keyword, and the bytes after it."""
    header: dict[str, list[str]] = {}
    with path.open("rb") as file:
        for _ in range(_HEADER_LIMIT_LINES):
            words = file.readline().decode("latin-1").split()
            if words:
                header[words[0].upper()] = words[1:]
            if "DATA" in header:
                return header, np.frombuffer(file.read(), dtype=np.uint8)
    raise ValueError("its header has no DATA line")


def _element(header: dict[str, list[str]]) -> Element:
    """The table that the header declares. A field of several numbers becomes as many columns."""
    fields = header.get("FIELDS", header.get("COLUMNS", []))
    sizes, types = header.get("SIZE", []), header.get("TYPE", [])
    counts = header.get("COUNT", ["1"] * len(fields))
    try:
        size = header["WIDTH"][0], header["HEIGHT"][0]
        points = int(header["POINTS"][0]) if "POINTS" in header else int(size[0]) * int(size[1])
        properties = tuple(
            Property(name if int(count) == 1 else f"{name}_{index}", _code(kind, width))
            for name, width, kind, count in zip(fields, sizes, types, counts, strict=True)
            for index in range(int(count))
        )
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError("its header has no valid FIELDS, SIZE, TYPE, COUNT and POINTS lines") from error
    if points < 0:
        raise ValueError(f"its header declares {points} points")
    return Element("point", points, properties)


def _code(kind: str, width: str) -> str:
    """The numpy type code of a PCD type; raises ValueError."""
    code = f"{kind.lower()}{int(width)}"
    if code not in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"):
        raise ValueError(f"its header has the unknown type {kind} of size {width}")
    return code


def _read_compressed(element: Element, body: bytes) -> Table:
    """The table of a compressed body: its columns one after the other, in Marc Lehmann's LZF."""
    if len(body) < 8:
        raise ValueError("truncated or damaged: it ends in its header")
    compressed, size = struct.unpack_from("<II", body)
    if len(body) - 8 < compressed:
        raise ValueError(f"truncated or damaged: its header declares {compressed} bytes, but it has {len(body) - 8}")
    needed = element.count * sum(np.dtype(prop.type).itemsize for prop in element.properties)
    if size != needed:
        raise ValueError(f"truncated or damaged: its {element.count} points need {needed} bytes, but it has {size}")
    data, start = _lzf_decompressed(body[8 : 8 + compressed], size), 0
    table: Table = {}
    for name, prop in zip(element.column_names, element.properties, strict=True):
        column = np.frombuffer(data, f"<{prop.type}", element.count, start)
        table[name] = column
        start += column.nbytes
    return table


def _lzf_decompressed(data: bytes, size: int) -> bytes:
    """The `size` bytes that LZF compressed to `data`; raises ValueError if they are not there.

    A control byte below 32 is followed by as many literal bytes and one; others hold a length in 3 bits, which 7
    extends by the next byte, and with the byte after them a distance back in 13 bits.
    """
    out, at, end = bytearray(), 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            start = len(out) - ((control & 31) << 8) - data[at] - 1
            at += 1
            if start < 0:
                raise ValueError("damaged: its compressed data refers to bytes before its beginning")
            length += 2
            piece = bytes(out[start : start + length])
            out += (piece * (length // len(piece) + 1))[:length]  # it may overlap what it writes, and then repeats
    except IndexError:
        raise ValueError("damaged: its compressed data ends too early") from None
    if len(out) != size:
        raise ValueError(f"damaged: its compressed data has {len(out)} bytes instead of {size}")
    return bytes(out)
