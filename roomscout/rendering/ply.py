"""Reads PLY files: Greg Turk, "The PLY Polygon File Format", 1994.

Open3D zero-fills the missing part of a truncated file and only prints a warning, so half a scan would pass for a room.
trimesh accepts truncated ascii files and rejects valid files that mix polygon sizes. plyfile reads faces in a loop of
Python unless it knows their sizes.
"""

import logging
from pathlib import Path
from typing import BinaryIO

import numpy as np

from roomscout.rendering.geometry import NO_FACES, Geometry, triangulated
from roomscout.rendering.parts import warn_of_loose_vertices
from roomscout.rendering.splats import are_splats, read_splats
from roomscout.rendering.tables import Element, Property, Table, colours, colours_or_greys, positions, read_tables

_log = logging.getLogger(__name__)

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2",
    "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float32": "f4",
    "double": "f8", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}
_POLYGONS = ("vertex_indices", "vertex_index")
_DRAWN = ("vertex", "face")


def read_ply(path: Path) -> Geometry:
    """The mesh or cloud in a PLY file, coloured by `colours_or_greys`, with Gaussians by `read_splats`. Faces are the
    lists vertex_indices, whose colours override those of vertices unless all are the same. Ignores alpha and, with a
    warning, textures and other elements. Raises ValueError."""
    data = np.memmap(path, dtype=np.uint8, mode="r")
    with path.open("rb") as file:
        elements, byte_order, has_texture = _read_header(file)
        body = np.asarray(data[file.tell() :])
    names = [element.name for element in elements]
    if others := [element.name for element in elements if element.count and element.name not in _DRAWN]:
        _log.warning("%s: ignoring its elements %s; only vertex and face are drawn", path, ", ".join(others))
    last = max((index for index, name in enumerate(names) if name in _DRAWN), default=-1)
    tables = dict(zip(names, read_tables(elements[: last + 1], body, byte_order), strict=False))
    points = positions(tables.get("vertex", {}))
    triangles, rows = _triangles(tables.get("face", {}), points)
    face_colours = colours(tables["face"]) if len(triangles) else None
    warn_of_loose_vertices(path, len(points), triangles)
    if has_texture:
        _log.warning("%s: ignoring its texture; export the scan as GLB or OBJ to keep it", path)
    if has_texture or face_colours is not None:
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
            elements, _, _ = _read_header(file)
    except (OSError, ValueError):
        return False
    return any(are_splats(prop.name for prop in element.properties) for element in elements)


def _read_header(file: BinaryIO) -> tuple[list[Element], str, bool]:
    """The elements of a file, the order of its bytes, "" for text, and whether it names a texture. Reads up to the
    first byte of the rows; raises ValueError if the header is missing or malformed."""
    if file.readline().rstrip() != b"ply":
        raise ValueError("it is not a PLY file")
    encoding, has_texture = "", False
    elements: list[Element] = []
    for line in iter(file.readline, b""):
        match line.decode("latin-1").split():
            case ["end_header"] if encoding in _BYTE_ORDERS:
                return elements, _BYTE_ORDERS[encoding], has_texture
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


def _triangles(faces: Table, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M, 3) int32 triangles of all polygons, and (M,) the row of each. ValueError without vertices that exist."""
    if not faces or not len(next(iter(faces.values()))):
        return NO_FACES, np.zeros(0, dtype=np.int64)
    polygons = next((column for name, column in faces.items() if name.lower() in _POLYGONS), None)
    if polygons is None or (isinstance(polygons, np.ndarray) and polygons.ndim != 2):
        raise ValueError(f"its faces have no list {_POLYGONS[0]}; the columns are {', '.join(faces)}")
    triangles = [NO_FACES]
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
