"""Reads PLY files of every encoding and detects truncated ones.

Open3D zero-fills the missing part of a truncated file and only prints a warning, so half a scan would pass for a room.
trimesh rejects valid files that mix polygon sizes.

Format: Greg Turk, "The PLY Polygon File Format", 1994.
"""

import logging
import struct
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from PIL import Image

from rendering.geometry import Geometry, Texturing, no_faces
from rendering.textures import MISSING_TEXTURES, Texture, make_texture

_log = logging.getLogger(__name__)

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"ascii": "<", "binary_little_endian": "<", "binary_big_endian": ">"}
_HEADER_LIMIT_BYTES = 1 << 20
_COLOUR_NAMES = (("red", "green", "blue"), ("r", "g", "b"), ("diffuse_red", "diffuse_green", "diffuse_blue"))
_XYZ = ("x", "y", "z")
_FACE_NAMES = ("vertex_indices", "vertex_index")
# Names of a vertex's texture coordinates in files from MeshLab, Blender and CloudCompare.
_UV_NAMES = (("s", "t"), ("u", "v"), ("texture_u", "texture_v"))


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
    """`textures` are the names of the image files, indexed by `texnumber`."""

    encoding: str
    elements: list[_Element]
    size_bytes: int
    textures: list[str]


# A ragged column, whose lists vary in length, is a list of tuples.
Column = np.ndarray | list[tuple]
Table = dict[str, Column]


def read_ply(path: Path) -> Geometry:
    """The mesh or cloud in a PLY file. Triangulates polygons as fans and ignores alpha.

    Textures follow MeshLab: a comment "TextureFile NAME" for each image, and texture coordinates per face ("texcoord",
    with "texnumber" if there are several images) or per vertex. Logs unreadable images. Raises ValueError if the file
    is not a PLY file or is incomplete.
    """
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header = _read_header(data[:_HEADER_LIMIT_BYTES].tobytes())
    tables = _read_tables(header, data[header.size_bytes :])
    if "vertex" not in tables:
        raise ValueError("it has no vertices")
    if any(element.name == "tristrips" for element in header.elements):
        raise ValueError("its faces are triangle strips instead of triangles")
    vertices, faces = tables["vertex"], tables.get("face", {})
    positions = _columns(vertices, _XYZ, _dtype(vertices, _XYZ))
    fans = _triangulate(faces)
    texturing = _texturing(path, header.textures, vertices, faces, fans)
    face_colours = _colours(faces)
    return Geometry(
        vertices=positions,
        faces=fans.triangles,
        colours=_colours(vertices),
        face_colours=None if face_colours is None or not len(fans.triangles) else face_colours[fans.polygons],
        texturing=texturing,
    )


def _read_header(start: bytes) -> _Header:
    """Parse the header at the beginning of `start`; raises ValueError if it is missing or malformed."""
    if start.split(b"\n", 1)[0].strip() != b"ply":
        raise ValueError("it is not a PLY file")
    head, end, rest = start.partition(b"end_header")
    newline = rest.find(b"\n")
    if not end or newline < 0:
        raise ValueError("its header has no end_header line")
    encoding = ""
    elements: list[_Element] = []
    textures: list[str] = []
    for line in head.decode("latin-1").splitlines()[1:]:
        match line.split():
            case ["format", name, *_]:
                encoding = name
            case ["comment", "TextureFile", *words]:
                textures.append(" ".join(words))
            case ["element", name, count]:
                elements.append(_Element(name, int(count), []))
            case ["property", "list", count_type, item_type, name] if elements:
                elements[-1].properties.append(_Property(name, _type(item_type), _type(count_type)))
            case ["property", item_type, name] if elements:
                elements[-1].properties.append(_Property(name, _type(item_type)))
    if encoding not in _BYTE_ORDERS:
        raise ValueError(f"its format {encoding!r} is not one of {', '.join(_BYTE_ORDERS)}")
    return _Header(encoding, elements, len(head) + len(end) + newline + 1, textures)


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
    declared = {(e.name, p.name): p.type for e in elements for p in e.properties if not p.count_type}
    return {
        element: {name: _cast(column, declared.get((element, name))) for name, column in table.items()}
        for element, table in tables.items()
    }


def _cast(column: Column, code: str | None) -> Column:
    return column.astype(code) if code and isinstance(column, np.ndarray) else column


def _read_elements(elements: list[_Element], body: np.ndarray, order: str) -> dict[str, Table]:
    """The columns of each element; `order` is numpy's byte order character."""
    tables: dict[str, Table] = {}
    offset = 0
    for element in elements:
        sizes = _first_list_sizes(element, body, offset, order)
        dtype = _row_type(element, sizes, order)
        end = offset + element.count * dtype.itemsize
        rows = body[offset:end].view(dtype) if end <= len(body) else None
        if rows is not None and all((rows[_count(name)] == size).all() for name, size in sizes.items()):
            tables[element.name] = {prop.name: rows[prop.name] for prop in element.properties}
        elif sizes:
            tables[element.name], end = _read_ragged(element, body, offset, order)
        else:
            raise _truncated(element, (len(body) - offset) // dtype.itemsize)
        offset = end
    return tables


def _count(name: str) -> str:
    """The name of the column that holds the lengths of the list `name`."""
    return f"{name} count"


def _first_list_sizes(element: _Element, body: np.ndarray, offset: int, order: str) -> dict[str, int]:
    """The length of each list in the element's first row. In most files, all rows have the same lengths."""
    sizes: dict[str, int] = {}
    for prop in element.properties:
        if prop.count_type:
            code = np.dtype(order + prop.count_type)
            if element.count and offset + code.itemsize > len(body):
                raise _truncated(element, 0)
            sizes[prop.name] = int(body[offset : offset + code.itemsize].view(code)[0]) if element.count else 0
            offset += code.itemsize
        offset += np.dtype(prop.type).itemsize * sizes.get(prop.name, 1)
    if any(size < 0 for size in sizes.values()):
        raise _truncated(element, 0)
    return sizes


def _row_type(element: _Element, sizes: dict[str, int], order: str) -> np.dtype:
    """The numpy type of a row whose lists have the given sizes."""
    fields: list[tuple] = []
    for prop in element.properties:
        if prop.count_type:
            fields.append((_count(prop.name), order + prop.count_type))
            fields.append((prop.name, order + prop.type, (sizes[prop.name],)))
        else:
            fields.append((prop.name, order + prop.type))
    return np.dtype(fields)


def _read_ragged(element: _Element, body: np.ndarray, offset: int, order: str) -> tuple[Table, int]:
    """Read an element whose lists vary in length: its columns, and the offset after the last row."""
    data = body.tobytes()
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


def _columns(table: Table, names: tuple[str, ...], dtype: type) -> np.ndarray:
    """The named columns, (K, len(names)); raises ValueError if one is missing."""
    missing = [name for name in names if name not in table]
    if missing:
        raise ValueError(f"its rows have no {' or '.join(missing)}")
    first = np.asarray(table[names[0]])
    columns: np.ndarray = np.empty((len(first), len(names)), dtype=dtype)
    for index, name in enumerate(names):
        columns[:, index] = table[name]
    return columns


def _dtype(table: Table, names: tuple[str, ...]) -> type:
    """float32 if the file stores float32, else float64, which keeps the precision of large coordinates."""
    types = {np.asarray(table[name]).dtype.newbyteorder("=") for name in names if name in table}
    return np.float32 if types == {np.dtype(np.float32)} else np.float64


def _present_names(table: Table, choices: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
    """The first of `choices` whose columns are all in the table."""
    return next((names for names in choices if all(name in table for name in names)), None)


def _colours(table: Table) -> np.ndarray | None:
    """(K, 3) uint8, or None if the table has no colours. Scales floats from 0..1 and uint16 from 0..65535."""
    names = _present_names(table, _COLOUR_NAMES)
    if names is None:
        return None
    kind = np.asarray(table[names[0]]).dtype.newbyteorder("=")
    if kind == np.uint8:
        return _columns(table, names, np.uint8)
    values = _columns(table, names, np.float64)
    if kind.kind == "f" and np.nanmax(values, initial=0.0) <= 1.0:
        values *= 255.0
    if kind == np.uint16:
        values /= 257.0
    return np.nan_to_num(values).clip(0, 255).round().astype(np.uint8)


@dataclass(frozen=True, eq=False)
class _Fans:
    """`triangles` (M, 3) int32 vertex indices; `polygons` (M,) the polygon each triangle is part of; `corners` (M, 3)
    the positions of its vertices in that polygon."""

    triangles: np.ndarray
    polygons: np.ndarray
    corners: np.ndarray


def _triangulate(table: Table) -> _Fans:
    polygons = next((table[name] for name in _FACE_NAMES if name in table), [])
    if isinstance(polygons, np.ndarray):
        groups = [(np.arange(len(polygons)), polygons)]
    else:
        sizes = np.array([len(polygon) for polygon in polygons])
        groups = [
            (rows, np.array([polygons[row] for row in rows]))
            for rows in (np.flatnonzero(sizes == size) for size in np.unique(sizes))
        ]
    fans, sources, corners = [no_faces()], [np.zeros(0, dtype=np.int64)], [no_faces()]
    for rows, vertices in groups:
        for second in range(1, vertices.shape[1] - 1):
            corner = np.array([[0, second, second + 1]])
            fans.append(vertices[:, corner[0]].astype(np.int32))
            sources.append(rows)
            corners.append(corner.repeat(len(rows), axis=0))
    return _Fans(np.concatenate(fans), np.concatenate(sources), np.concatenate(corners))


def _texturing(path: Path, names: list[str], vertices: Table, faces: Table, fans: _Fans) -> Texturing | None:
    """The texturing of the triangles; None if the file has no texture coordinates or no image can be read."""
    face_uv, has_uv = _face_uv(vertices, faces, fans)
    if not has_uv.any():
        return None
    textures = [_read_texture(path.parent / name) for name in names]
    numbers = np.asarray(faces["texnumber"]).astype(np.int32)[fans.polygons] if "texnumber" in faces else 0
    face_image = np.where(has_uv & (numbers >= 0), numbers, -1)
    # The last entry stands for numbers beyond the images that the header names.
    readable = np.array([*(texture is not None for texture in textures), False])
    missing = (face_image >= 0) & ~readable[np.minimum(face_image, len(textures))]
    if missing.any():
        _log.warning(MISSING_TEXTURES, path, 1, 1)
        face_image[missing] = -1
    if (face_image < 0).all():
        return None
    unused = np.zeros((1, 1, 3), dtype=np.uint8)  # keeps the numbering; no face refers to an unreadable image
    return Texturing(face_uv, face_image, tuple(unused if each is None else each.pixels for each in textures))


def _face_uv(vertices: Table, faces: Table, fans: _Fans) -> tuple[np.ndarray, np.ndarray]:
    """Texture coordinates (M, 3, 2) float32, u right and v up, and (M,) bool: which triangles have them."""
    if "texcoord" in faces:
        column = faces["texcoord"]
        sizes = np.array([len(row) for row in column], dtype=np.int64)
        if (sizes % 2).any():
            raise ValueError("the texture coordinates of its faces are not pairs")
        pairs = np.concatenate([*column, (0.0, 0.0)]).reshape(-1, 2).astype(np.float32)
        has_uv = fans.corners.max(axis=1, initial=0) < sizes[fans.polygons] // 2
        first = (np.cumsum(sizes) - sizes)[fans.polygons] // 2
        return pairs[np.where(has_uv[:, None], first[:, None] + fans.corners, -1)], has_uv
    names = _present_names(vertices, _UV_NAMES)
    has_uv = np.full(len(fans.triangles), names is not None)
    if names is None:
        return np.zeros((len(has_uv), 3, 2), dtype=np.float32), has_uv
    return _columns(vertices, names, np.float32)[fans.triangles], has_uv


def _read_texture(path: Path) -> Texture | None:
    """The image in a file, or None if it cannot be read."""
    try:
        with Image.open(path) as image:
            return make_texture(image)
    except (OSError, Image.DecompressionBombError):
        return None
