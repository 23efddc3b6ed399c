"""Reads PCD point clouds, the format of the Point Cloud Library.

Open3D reads 8-byte coordinates as 0, ignores colours in separate fields, and pads truncated ascii files.

Format: "The PCD (Point Cloud Data) file format", https://pointclouds.org/documentation/tutorials/pcd_file_format.html
"""

import struct
from pathlib import Path

import numpy as np

from roomscout.rendering.geometry import NO_FACES, Geometry
from roomscout.rendering.tables import Element, Property, Table, colours_or_greys, positions, read_tables

_CODES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8")


def read_pcd(path: Path) -> Geometry:
    """The cloud in a PCD file, coloured by `colours_or_greys`. Raises ValueError if it is damaged, or no PCD file."""
    header: dict[str, list[str]] = {}
    with path.open("rb") as file:
        for line in iter(file.readline, b""):
            keyword, *values = line.decode("latin-1").split() or [""]
            header[keyword] = values
            if keyword == "DATA":
                break
        body = np.frombuffer(file.read(), dtype=np.uint8)
    element = _element(header, len(body))
    match header["DATA"]:
        case ["ascii"]:
            (table,) = read_tables([element], body, "")
        case ["binary"]:
            (table,) = read_tables([element], body, "<")
        case ["binary_compressed"]:
            table = _read_compressed(element, body.tobytes())
        case _:
            raise ValueError("its DATA is none of ascii, binary and binary_compressed")
    return Geometry(positions(table), NO_FACES, colours_or_greys(path, table))


def _element(header: dict[str, list[str]], size: int) -> Element:
    """The table that the header declares before `size` bytes, which LZF may expand 88 times. A field of several
    numbers, and padding, become columns with a number."""
    try:
        counts = header.get("COUNT", ["1"] * len(header["FIELDS"]))
        width = sum(map(int, counts))
        if width > 88 * size:
            raise ValueError(f"truncated: its header declares {width:,} numbers a point, and {size:,} bytes follow")
        properties: list[Property] = []
        fields = zip(header["FIELDS"], header["TYPE"], header["SIZE"], counts, strict=True)
        for place, (name, kind, number_bytes, count) in enumerate(fields):
            names = [f"{name}_{place}_{index}" for index in range(int(count))]
            if count == "1" and name != "_":
                names = [name]
            properties += [Property(column, f"{kind.lower()}{number_bytes}") for column in names]
        if unknown := sorted({prop.type for prop in properties} - set(_CODES)):
            raise ValueError(f"its header has the unknown types {', '.join(unknown)}")
        return Element("point", int(header["POINTS"][0]), properties)
    except (KeyError, IndexError) as error:
        raise ValueError("its header lacks one of the lines FIELDS, SIZE, TYPE, COUNT, POINTS and DATA") from error


def _read_compressed(element: Element, body: bytes) -> Table:
    """The table of a compressed body: its columns one after the other, in Marc Lehmann's LZF."""
    compressed, size = struct.unpack_from("<II", body)
    if len(body) - 8 < compressed:
        raise ValueError(f"truncated: its header declares {compressed} bytes, but it has {len(body) - 8}")
    data = _lzf_decompressed(body[8 : 8 + compressed])
    if len(data) != size:
        raise ValueError(f"its compressed data has {len(data)} bytes instead of {size}")
    table: Table = {}
    start = 0
    for prop in element.properties:
        column = np.frombuffer(data, f"<{prop.type}", element.count, start)
        table[prop.name] = column
        start += column.nbytes
    return table


def _lzf_decompressed(data: bytes) -> bytes:
    """What LZF compressed to `data`. A control byte below 32 is followed by as many literal bytes and one; others hold
    a length in 3 bits, which 7 extends by the next byte, and with the byte after them a distance back in 13 bits."""
    out = bytearray()
    at = 0
    while at < len(data):
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
            raise ValueError("its compressed data refers to bytes before its beginning")
        length += 2
        piece = bytes(out[start : start + length])
        out += (piece * (length // len(piece) + 1))[:length]  # it may overlap what it writes, and then repeats
    return bytes(out)
