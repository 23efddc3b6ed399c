"""Reads PLY files: Greg Turk, "The PLY Polygon File Format", 1994.

Open3D zero-fills the missing part of a truncated file and only prints a warning, so half a scan would pass for a room.
trimesh accepts truncated ascii files and rejects valid files that mix polygon sizes. plyfile reads faces in a loop of
Python unless it knows their sizes.
"""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from roomscout.rendering.geometry import Geometry, no_faces, triangulated
from roomscout.rendering.parts import warn_of_loose_vertices
from roomscout.rendering.splats import are_splats, read_splats
from roomscout.rendering.tables import (
    Element,
    Property,
    Table,
    colours,
    colours_or_greys,
    positions,
    read_binary,
    read_text,
)

_log = logging.getLogger(__name__)

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_POLYGONS = ("vertex_indices", "vertex_index")


@dataclass(frozen=True)
class _Header:
    byte_order: str
    elements: list[Element]
    has_texture: bool
    size_bytes: int


def read_ply(path: Path) -> Geometry:
    """The mesh or cloud in a PLY file, coloured by `colours_or_greys`, with Gaussians by `read_splats`. Faces are the
    lists vertex_indices, whose colours override those of vertices unless all are the same. Ignores alpha and, with a
    warning, textures and other elements. Raises ValueError."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    with path.open("rb") as file:
        header = _read_header(file)
    elements = [element.name for element in header.elements if element.count]
    others = [name for name in elements if name not in ("vertex", "face")]
    if others:
        _log.warning("%s: ignoring its elements %s; only vertex and face are drawn", path, ", ".join(others))
    tables = _read_tables(header, np.asarray(data[header.size_bytes :]))
    points = positions(tables.get("vertex", {}))
    triangles, rows = _triangles(tables.get("face", {}), points)
    face_colours = colours(tables["face"]) if len(triangles) else None
    warn_of_loose_vertices(path, len(points), triangles)
    if header.has_texture:
        _log.warning("%s: ignoring its texture; export the scan as GLB or OBJ to keep it", path)
    if header.has_texture or face_colours is not None:
        vertex_colours = colours(tables["vertex"])
    else:
        vertex_colours = colours_or_greys(path, tables["vertex"])
    if face_colours is not None:
        uniform = (face_colours == face_colours[0]).all()
        face_colours = None if uniform and vertex_colours is not None else face_colours[rows]
    splats = None if len(triangles) else read_splats(path, tables["vertex"], points)
    return Geometry(points, triangles, vertex_colours, face_colours, splats=splats)


def has_splats(path: Path) -> bool:
    """Whether a file is a PLY file of Gaussian splats, judged by its header; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            elements = _read_header(file).elements
    except (OSError, ValueError):
        return False
    return any(are_splats(prop.name for prop in element.properties) for element in elements)


def _read_header(file: BinaryIO) -> _Header:
    """Parse the header, up to the first byte of the rows; raises ValueError if it is missing or malformed."""
    if file.readline().rstrip() != b"ply":
        raise ValueError("it is not a PLY file")
    encoding, has_texture = "", False
    elements: list[Element] = []
    for line in iter(file.readline, b""):
        match line.decode("latin-1").split():
            case ["end_header"] if encoding in _BYTE_ORDERS:
                return _Header(_BYTE_ORDERS[encoding], elements, has_texture, file.tell())
            case ["format", encoding, _] if encoding in _BYTE_ORDERS:
                pass
            case ["comment", word, *_] if word.lower() == "texturefile":
                has_texture = True
            case ["element", name, count] if count.isdecimal():
                elements.append(Element(name.lower(), int(count), []))
            case ["property", "list", count_type, kind, name] if {count_type, kind} <= _TYPES.keys() and elements:
                elements[-1].properties.append(Property(name, _TYPES[kind], _TYPES[count_type]))
            case ["property", kind, name] if kind in _TYPES and elements:
                elements[-1].properties.append(Property(name, _TYPES[kind]))
            case ["comment" | "obj_info", *_] | []:
                pass
            case _:
                raise ValueError(f"its header has the malformed line {line.decode('latin-1').strip()!r}")
    raise ValueError("its header has no end_header line")


def _read_tables(header: _Header, body: np.ndarray) -> dict[str, Table]:
    """The tables of all elements up to the last one that is needed, by name."""
    needed = [index for index, element in enumerate(header.elements) if element.name in ("vertex", "face")]
    elements = header.elements[: max(needed, default=-1) + 1]
    names = [element.name for element in elements]
    if not header.byte_order:
        return dict(zip(names, read_text(elements, body.tobytes()), strict=True))
    tables: dict[str, Table] = {}
    for element in elements:
        table, size = read_binary(element, body, header.byte_order)
        tables[element.name] = table
        body = body[size:]
    return tables


def _triangles(faces: Table, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M, 3) int32 triangles of all polygons, and (M,) the row of each. Raises ValueError if there are rows without a
    list of vertices, or vertices that do not exist."""
    if not faces or not len(next(iter(faces.values()))):
        return no_faces(), np.zeros(0, dtype=np.int64)
    polygons = next((column for name, column in faces.items() if name.lower() in _POLYGONS), None)
    if polygons is None or (isinstance(polygons, np.ndarray) and polygons.ndim != 2):
        raise ValueError(f"its faces have no list {_POLYGONS[0]}; the columns are {', '.join(faces)}")
    triangles = [no_faces()]
    sources = [np.zeros(0, dtype=np.int64)]
    if isinstance(polygons, np.ndarray):
        by_size = [(np.arange(len(polygons)), polygons)]
    else:
        sizes = np.array([len(polygon) for polygon in polygons])
        rows_of = [np.flatnonzero(sizes == size) for size in np.unique(sizes)]
        by_size = [(rows, np.array([polygons[row] for row in rows])) for rows in rows_of]
    for rows, corners in by_size:
        if ((corners < 0) | (corners >= len(points)) | (corners % 1 != 0)).any():
            raise ValueError(f"a face refers to a vertex that does not exist: there are {len(points)}, counted from 0")
        places, of = triangulated(corners.astype(np.int64), points)
        triangles.append(corners[of[:, None], places].astype(np.int32))
        sources.append(rows[of])
    return np.concatenate(triangles), np.concatenate(sources)
