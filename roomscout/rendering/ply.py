"""Reads PLY files of every encoding.

Open3D zero-fills the missing part of a truncated file and only prints a warning, so half a scan would pass for a room.
trimesh accepts truncated ascii files and rejects valid files that mix polygon sizes.

Format: Greg Turk, "The PLY Polygon File Format", 1994.
"""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.rendering.columns import colours, colours_or_greys, has_positions, listed, positions
from roomscout.rendering.geometry import Geometry, no_faces
from roomscout.rendering.parts import warn_of_loose_vertices
from roomscout.rendering.splats import are_splats, read_splats
from roomscout.rendering.tables import LINE_END, Column, Element, FormatError, Property, Table, read_binary, read_text

_log = logging.getLogger(__name__)

_TYPES = {
    "char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "bool": "u1", "short": "i2", "int16": "i2",
    "ushort": "u2", "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "int64": "i8",
    "uint64": "u8", "half": "f2", "float16": "f2", "float": "f4", "float32": "f4", "double": "f8", "float64": "f8",
}  # fmt: skip
_BYTE_ORDERS = {"ascii": "<", "binary_little_endian": "<", "binary_big_endian": ">"}
_HEADER_LIMIT_BYTES = 1 << 20
_UTF8_MARK = b"\xef\xbb\xbf"
_END = re.compile(rb"(?:^|[\r\n])[ \t]*end_header[ \t]*(\r\n|\n|\r)")
# Lists that hold a polygon's vertices, by name, and elements that hold no polygons although they may have a list.
_OF_VERTICES = re.compile(r"(?i)vert|ind|corner|point|poly")
_NOT_VERTICES = re.compile(r"(?i)(?<!ver)tex|uv|normal|colou?r")
_NOT_FACES = re.compile(r"(?i)edge|line|camera|material|range_grid")
_RESTART = -1


@dataclass(frozen=True)
class _Header:
    encoding: str
    elements: list[Element]
    size_bytes: int
    has_texture: bool


def read_ply(path: Path) -> Geometry:
    """The mesh or cloud in a PLY file; see `columns.colours` for where its colours may be.

    Triangulates polygons as fans, ignores alpha and, with a warning, textures. Faces are the lists of integers of any
    element but those of edges, and strips of triangles. Colours of faces override those of vertices unless they are the
    same everywhere. See `read_splats` for Gaussian splats.

    Raises ValueError if the file is not a PLY file or is incomplete, and FormatError if it is complete but of no use.
    """
    data = np.memmap(path, dtype=np.uint8, mode="r")
    header = _read_header(data[:_HEADER_LIMIT_BYTES].tobytes())
    tables = _read_tables(header, np.asarray(data[header.size_bytes :]))
    named = list(zip(header.elements, tables, strict=False))
    # The element of the vertices is called vertex, by whatever case; in some files, points.
    called_so = [index for index, (element, _) in enumerate(named) if element.name.lower() == "vertex"]
    like = [index for index, (_, table) in enumerate(named) if has_positions(table)]
    if not called_so + like:
        names = ", ".join(element.name for element in header.elements) or "none"
        raise FormatError(f"it has no vertices; its elements are {names}", "export it with its vertices")
    at = (called_so + like)[0]
    vertices = named.pop(at)[1]
    points = positions(vertices)
    faces = [_Faces.read(element, table, len(points)) for element, table in named if _may_have_faces(element)]
    triangles = np.concatenate([no_faces(), *(each.triangles for each in faces)])
    materials = next((table for element, table in named if element.name.lower() == "material"), {})
    face_colours = _face_colours([each for each in faces if len(each.triangles)], materials)
    warn_of_loose_vertices(path, len(points), triangles)
    for element, table in named:
        if element.count and has_positions(table):
            _log.warning("%s: ignoring the %d points of its element %s", path, element.count, element.name)
    if not len(triangles) and (edges := sum(e.count for e in header.elements if "edge" in e.name.lower())):
        _log.warning("%s: drawing its vertices as points: it has %d edges, but no faces", path, edges)
    if header.has_texture:
        _log.warning("%s: ignoring its texture; export the scan as GLB or OBJ to keep it", path)
        vertex_colours = colours(vertices)
    elif face_colours is not None:
        vertex_colours = colours(vertices)
    else:
        vertex_colours = colours_or_greys(path, vertices, {name: c for each in faces for name, c in each.table.items()})
    if face_colours is not None and vertex_colours is not None and _uniform(face_colours):
        face_colours = None
    splats = None if len(triangles) else read_splats(path, vertices, points)
    return Geometry(points, triangles, vertex_colours, face_colours, splats=splats)


def has_splats(path: Path) -> bool:
    """Whether a file is a PLY file of Gaussian splats, judged by its header; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            header = _read_header(file.read(1 << 16))
    except (OSError, ValueError):
        return False
    return any(are_splats(element.column_names) for element in header.elements)


def _read_header(start: bytes) -> _Header:
    """Parse the header at the beginning of `start`; raises ValueError if it is missing or malformed."""
    mark = len(_UTF8_MARK) if start.startswith(_UTF8_MARK) else 0
    if not re.match(rb"(?i)\s*ply[ \t]*[\r\n]", start[mark:]):
        raise ValueError("it is not a PLY file")
    end = _END.search(start)
    if end is None:
        raise ValueError("its header has no end_header line")
    lines = LINE_END.split(start[mark : end.start()])
    line_end = end[1]
    if line_end == b"\r\n" and b"\n" not in start[: end.start(1)]:
        line_end = b"\r"  # all lines end so; the \n is the first byte of the rows
    encoding, has_texture = "", False
    elements: list[Element] = []
    for line in (line.decode("latin-1") for line in lines):
        words = line.split()
        # Keywords may be in capitals; names of properties keep their case.
        match [*(word.lower() for word in words[:2]), *words[2:]]:
            case ["format", name, *_]:
                encoding = name
            case ["comment", "texturefile", *_]:
                has_texture = True
            case ["element", _, *_, count] if re.fullmatch(r"\+?\d+", count):
                elements.append(Element("_".join(words[1:-1]), int(count), ()))
            case ["property", "list", count_type, item_type, *name] if name and elements:
                _append(elements, Property("_".join(name), _type(item_type), _type(count_type)))
            case ["property", item_type, *name] if name and elements:
                _append(elements, Property("_".join(name), _type(item_type)))
            case ["element" | "property", *_]:
                raise ValueError(f"its header has the malformed line {line.strip()!r}")
    if encoding not in _BYTE_ORDERS:
        raise ValueError(f"its format {encoding!r} is not one of {', '.join(_BYTE_ORDERS)}")
    return _Header(encoding, elements, end.start(1) + len(line_end), has_texture)


def _append(elements: list[Element], prop: Property) -> None:
    last = elements[-1]
    elements[-1] = Element(last.name, last.count, (*last.properties, prop))


def _type(name: str) -> str:
    if name.lower() not in _TYPES:
        raise ValueError(f"its header has the unknown type {name!r}")
    return _TYPES[name.lower()]


def _read_tables(header: _Header, body: np.ndarray) -> list[Table]:
    """The table of every element up to the last one that is needed."""
    needed = [index for index, element in enumerate(header.elements) if _may_be_needed(element)]
    elements = header.elements[: max(needed, default=-1) + 1]
    if header.encoding == "ascii":
        return read_text(elements, body)
    return read_binary(elements, body, _BYTE_ORDERS[header.encoding])


def _may_be_needed(element: Element) -> bool:
    empty: Table = {name: np.zeros(0) for name in element.column_names}
    return element.name.lower() in ("vertex", "material") or has_positions(empty) or _may_have_faces(element)


def _may_have_faces(element: Element) -> bool:
    """Whether an element other than the vertices may hold faces."""
    return (
        element.name.lower() != "vertex"
        and not _NOT_FACES.search(element.name)
        and (any(prop.count_type for prop in element.properties) or bool(re.search(r"(?i)face|poly", element.name)))
    )


@dataclass(frozen=True)
class _Faces:
    """The faces of one element: `triangles` (M, 3) int32, the row that each is part of, (M,), and all columns."""

    triangles: np.ndarray
    rows: np.ndarray
    table: Table

    @classmethod
    def read(cls, element: Element, table: Table, num_vertices: int) -> "_Faces":
        """Raises FormatError if the element has rows but no list of vertices, or ones that are not there."""
        lists = [
            (name, prop)
            for name, prop in zip(element.column_names, element.properties, strict=True)
            if prop.count_type and (prop.type[0] in "iu" or _OF_VERTICES.search(name))
        ]
        chosen = [name for name, _ in lists if name.lower() in ("vertex_indices", "vertex_index")]
        others = [name for name, _ in lists if not _NOT_VERTICES.search(name)]
        chosen = (chosen or [name for name in others if _OF_VERTICES.search(name)] or others)[:1]
        if not element.count or not chosen:
            if element.count and re.search(r"(?i)face|poly", element.name):
                why = f"its element {element.name} has no list of vertices; its columns are {listed(table)}"
                raise FormatError(why, "export its faces as a list called vertex_indices")
            return cls(no_faces(), np.zeros(0, dtype=np.int64), table)
        column = table[chosen[0]]
        read = _strips if "strip" in element.name.lower() else _polygons
        triangles, rows = read(column)
        _require_vertices(element, triangles, rows, num_vertices)
        return cls(triangles.astype(np.int32), rows, table)


def _polygons(polygons: Column) -> tuple[np.ndarray, np.ndarray]:
    """(M, 3) triangles of fans, and (M,) the polygon that each is part of."""
    if isinstance(polygons, np.ndarray):
        groups = [(np.arange(len(polygons)), polygons)]
    else:
        sizes = np.array([len(polygon) for polygon in polygons])
        groups = [
            (rows, np.array([polygons[row] for row in rows]))
            for rows in (np.flatnonzero(sizes == size) for size in np.unique(sizes))
        ]
    fans, sources = [np.zeros((0, 3), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for rows, corners in groups:
        for second in range(1, corners.shape[1] - 1):
            fans.append(_integers(corners[:, [0, second, second + 1]]))
            sources.append(rows)
    return np.concatenate(fans), np.concatenate(sources)


def _strips(strips: Column) -> tuple[np.ndarray, np.ndarray]:
    """(M, 3) triangles of strips, and (M,) the row that each is part of. An index of -1 begins another strip.

    Every second triangle of a strip is turned over, so that all have the winding of the first.
    """
    triangles, sources = [np.zeros((0, 3), dtype=np.int64)], [np.zeros(0, dtype=np.int64)]
    for row, strip in enumerate(strips):
        corners = _integers(np.asarray(strip))
        corners = np.where(corners == 2**32 - 1, _RESTART, corners)
        index = np.arange(len(corners))
        begins = np.maximum.accumulate(np.where(corners == _RESTART, index + 1, 0))
        three = np.lib.stride_tricks.sliding_window_view(corners, 3) if len(corners) > 2 else corners[:0].reshape(0, 3)
        whole = (three != _RESTART).all(axis=1)
        odd = (index - begins)[: len(three)] % 2 == 1
        triangles.append(np.where(odd[:, None], three[:, [1, 0, 2]], three)[whole])
        sources.append(np.full(int(whole.sum()), row))
    return np.concatenate(triangles), np.concatenate(sources)


def _integers(corners: np.ndarray) -> np.ndarray:
    """Indices as int64; raises ValueError if one is not a whole number."""
    with np.errstate(invalid="ignore"):
        whole = corners.astype(np.int64)
    if corners.dtype.kind in "iu":
        return whole
    if (whole != corners).any():
        raise ValueError(f"a face refers to vertex {corners[whole != corners][0]:g}, which is not a whole number")
    return whole


def _require_vertices(element: Element, triangles: np.ndarray, rows: np.ndarray, num_vertices: int) -> None:
    """Raise FormatError, naming the row, if a face refers to a vertex that does not exist."""
    wrong = ((triangles < 0) | (triangles >= num_vertices)).any(axis=1)
    if not wrong.any():
        return
    first = int(np.flatnonzero(wrong)[rows[wrong].argmin()])
    vertex = next(index for index in triangles[first] if not 0 <= index < num_vertices)
    why = f"row {rows[first] + 1} of {element.name}: a face refers to a vertex that does not exist, {vertex}"
    counts_from_1 = triangles.min() == 1 and triangles.max() == num_vertices
    raise FormatError(
        why,
        "count vertices from 0 instead of 1" if counts_from_1 else f"it has {num_vertices} vertices: export it again",
    )


def _face_colours(faces: Sequence[_Faces], materials: Table) -> np.ndarray | None:
    """(M, 3) uint8 colours of all triangles: of their rows, or of the materials of these; None if some have none."""
    found = []
    for each in faces:
        of_rows = colours(each.table)
        index = each.table.get("material_index", each.table.get("material_indices"))
        if of_rows is None and isinstance(index, np.ndarray) and (of_materials := colours(materials)) is not None:
            of_rows = of_materials[index.astype(np.int64).clip(0, len(of_materials) - 1)]
        if of_rows is None:
            return None
        found.append(of_rows[each.rows])
    return np.concatenate(found) if found else None


def _uniform(values: np.ndarray) -> bool:
    return bool((values == values[0]).all())
