"""Reads PLY files of every encoding and detects truncated ones.

Open3D zero-fills the missing part of a truncated file and only prints a warning, so half a scan would pass for a room.
trimesh accepts truncated ascii files and rejects valid files that mix polygon sizes.

Format: Greg Turk, "The PLY Polygon File Format", 1994.
"""

import logging
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roomscout.rendering.geometry import Geometry, no_faces

_log = logging.getLogger(__name__)

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"ascii": "<", "binary_little_endian": "<", "binary_big_endian": ">"}
_HEADER_LIMIT_BYTES = 1 << 20
_COLOUR_NAMES = (("red", "green", "blue"), ("r", "g", "b"), ("diffuse_red", "diffuse_green", "diffuse_blue"))


@dataclass(frozen=True)
class _Property:
    """`type` is a numpy type code; `count_type` is the type code of a list's length, or None for a scalar."""

    name: str
    type: str
    count_type: str | None = None


@dataclass(frozen=True)
class _Element:
    name: str
    count: int
    properties: list[_Property]


@dataclass(frozen=True)
class _Header:
    encoding: str
    elements: list[_Element]
    size_bytes: int
    has_texture: bool


# A ragged column, whose lists vary in length, is a list of tuples.
Column = np.ndarray | list[tuple]
Table = dict[str, Column]


def read_ply(path: Path) -> Geometry:
    """The mesh or cloud in a PLY file. Triangulates polygons as fans, ignores alpha and, with a warning, textures.

    Raises ValueError if the file is not a PLY file or is incomplete.
    """
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header = _read_header(data[:_HEADER_LIMIT_BYTES].tobytes())
    if header.has_texture:
        _log.warning("%s: ignoring its texture; export the scan as GLB or OBJ to keep it", path)
    tables = _read_tables(header, data[header.size_bytes :])
    if "vertex" not in tables:
        raise ValueError("it has no vertices")
    if any(element.name == "tristrips" for element in header.elements):
        raise ValueError("its faces are triangle strips instead of triangles")
    vertices, faces = tables["vertex"], tables.get("face", {})
    positions = _columns(vertices, ("x", "y", "z"))
    triangles, polygons = _triangulate(faces)
    face_colours = _colours(faces)
    return Geometry(
        # float64 unless the file stores float32, which keeps the precision of large coordinates
        vertices=positions.astype(np.result_type(positions, np.float32), copy=False),
        faces=triangles,
        colours=_colours(vertices),
        face_colours=None if face_colours is None or not len(triangles) else face_colours[polygons],
    )


def _read_header(start: bytes) -> _Header:
    """Parse the header at the beginning of `start`; raises ValueError if it is missing or malformed."""
    if start.split(b"\n", 1)[0].strip() != b"ply":
        raise ValueError("it is not a PLY file")
    head, end, rest = start.partition(b"end_header")
    newline = rest.find(b"\n")
    if not end or newline < 0:
        raise ValueError("its header has no end_header line")
    encoding, has_texture = "", False
    elements: list[_Element] = []
    for line in head.decode("latin-1").splitlines()[1:]:
        match line.split():
            case ["format", name, *_]:
                encoding = name
            case ["comment", "TextureFile", *_]:
                has_texture = True
            case ["element", name, count]:
                elements.append(_Element(name, int(count), []))
            case ["property", "list", count_type, item_type, name] if elements:
                elements[-1].properties.append(_Property(name, _type(item_type), _type(count_type)))
            case ["property", item_type, name] if elements:
                elements[-1].properties.append(_Property(name, _type(item_type)))
    if encoding not in _BYTE_ORDERS:
        raise ValueError(f"its format {encoding!r} is not one of {', '.join(_BYTE_ORDERS)}")
    return _Header(encoding, elements, len(head) + len(end) + newline + 1, has_texture)


def _type(name: str) -> str:
    if name not in _TYPES:
        raise ValueError(f"its header has the unknown type {name!r}")
    return _TYPES[name]


def _read_tables(header: _Header, body: np.ndarray) -> dict[str, Table]:
    """The columns of every element up to the last one that is needed, by element name."""
    names = [element.name for element in header.elements]
    last = max((names.index(name) for name in ("vertex", "face") if name in names), default=-1)
    elements = header.elements[: last + 1]
    if header.encoding != "ascii":
        return _read_elements(elements, body, _BYTE_ORDERS[header.encoding])
    # Parse an ascii file into doubles, then read those like a binary file.
    try:
        numbers = np.fromstring(body.tobytes(), dtype="<f8", sep=" ")
    except ValueError as error:
        raise ValueError("its rows contain something that is not a number") from error
    doubles = [
        replace(e, properties=[_Property(p.name, "f8", p.count_type and "f8") for p in e.properties]) for e in elements
    ]
    tables = _read_elements(doubles, numbers.view(np.uint8), "<")
    for element in elements:
        for prop in element.properties:
            if not prop.count_type:
                tables[element.name][prop.name] = np.asarray(tables[element.name][prop.name]).astype(prop.type)
    return tables


def _read_elements(elements: list[_Element], body: np.ndarray, order: str) -> dict[str, Table]:
    """The columns of each element; `order` is numpy's byte order character."""
    tables: dict[str, Table] = {}
    for element in elements:
        dtype = _first_row_type(element, body, order)
        size = element.count * dtype.itemsize
        rows = body[:size].view(dtype) if size <= len(body) else None
        lists = [prop for prop in element.properties if prop.count_type]
        if rows is not None and all((rows[_count(p.name)] == dtype[p.name].shape[0]).all() for p in lists):
            tables[element.name] = {prop.name: rows[prop.name] for prop in element.properties}
        elif lists:
            tables[element.name], size = _read_ragged(element, body, order)
        else:
            raise _truncated(element, len(body) // dtype.itemsize)
        body = body[size:]
    return tables


def _count(name: str) -> str:
    """The name of the column that holds the lengths of the list `name`."""
    return f"{name} count"


def _first_row_type(element: _Element, body: np.ndarray, order: str) -> np.dtype:
    """The numpy type of the element's first row. In most files, the lists of all rows have the same lengths."""
    fields: list[tuple] = []
    for prop in element.properties:
        if not prop.count_type:
            fields.append((prop.name, order + prop.type))
            continue
        code, start = np.dtype(order + prop.count_type), np.dtype(fields).itemsize
        if element.count and start + code.itemsize > len(body):
            raise _truncated(element, 0)
        size = int(body[start : start + code.itemsize].view(code)[0]) if element.count else 0
        if size < 0:
            raise _truncated(element, 0)
        fields += [(_count(prop.name), code), (prop.name, order + prop.type, (size,))]
    return np.dtype(fields)


def _read_ragged(element: _Element, body: np.ndarray, order: str) -> tuple[Table, int]:
    """Read an element whose lists vary in length: its columns, and their size in bytes."""
    data, offset = body.tobytes(), 0
    columns: dict[str, list] = {prop.name: [] for prop in element.properties}
    for row in range(element.count):
        for prop in element.properties:
            size = 1
            try:
                if prop.count_type:
                    count = struct.Struct(order + np.dtype(prop.count_type).char)
                    size = int(count.unpack_from(data, offset)[0])
                    offset += count.size
                item = struct.Struct(f"{order}{size}{np.dtype(prop.type).char}")
                columns[prop.name].append(item.unpack_from(data, offset))
            except struct.error as error:
                raise _truncated(element, row) from error
            offset += item.size
    return {
        prop.name: columns[prop.name] if prop.count_type else np.array(columns[prop.name])[:, 0]
        for prop in element.properties
    }, offset


def _truncated(element: _Element, count: int) -> ValueError:
    return ValueError(
        f"truncated or damaged: its header declares {element.count} {element.name} rows, but only {count} can be read"
    )


def _columns(table: Table, names: tuple[str, ...]) -> np.ndarray:
    """The named columns, (K, len(names)), in this machine's byte order; raises ValueError if one is missing."""
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(f"its rows have no {' or '.join(missing)}")
    return np.column_stack([table[name] for name in names])


def _colours(table: Table) -> np.ndarray | None:
    """(K, 3) uint8, or None if the table has no colours. Scales floats from 0..1 and uint16 from 0..65535."""
    names = next((names for names in _COLOUR_NAMES if all(name in table for name in names)), None)
    if names is None:
        return None
    colours = _columns(table, names)
    if colours.dtype == np.uint8:
        return colours
    values = colours.astype(np.float64)
    if colours.dtype.kind == "f" and np.nanmax(values, initial=0.0) <= 1.0:
        values *= 255.0
    if colours.dtype == np.uint16:
        values /= 257.0
    return np.nan_to_num(values).clip(0, 255).round().astype(np.uint8)


def _triangulate(table: Table) -> tuple[np.ndarray, np.ndarray]:
    """(M, 3) int32 triangles, and (M,) the polygon that each is part of."""
    polygons = table.get("vertex_indices", table.get("vertex_index", []))
    if isinstance(polygons, np.ndarray):
        groups = [(np.arange(len(polygons)), polygons)]
    else:
        sizes = np.array([len(polygon) for polygon in polygons])
        groups = [
            (rows, np.array([polygons[row] for row in rows]))
            for rows in (np.flatnonzero(sizes == size) for size in np.unique(sizes))
        ]
    fans, sources = [no_faces()], [np.zeros(0, dtype=np.int64)]
    for rows, corners in groups:
        for second in range(1, corners.shape[1] - 1):
            fans.append(corners[:, [0, second, second + 1]].astype(np.int32))
            sources.append(rows)
    return np.concatenate(fans), np.concatenate(sources)
