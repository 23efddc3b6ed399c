"""Reads OBJ files and their materials.

A reader of our own, because trimesh resolves negative indices from the end of the file and takes the options of a
texture for a part of its name, without saying so.

Formats: Wavefront Technologies, "Object Files (.obj)" and "MTL material format", 1995.
"""

import codecs
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.rendering.columns import as_bytes, full_scale
from roomscout.rendering.geometry import Geometry, no_faces
from roomscout.rendering.mtl import Mtl, MtlReader
from roomscout.rendering.parts import OPAQUE_ALPHA, MeshPart, merged, transparency, warn_of_loose_vertices
from roomscout.rendering.tables import numbers_of

_log = logging.getLogger(__name__)

_LINES_AND_CURVES = (b"l ", b"curv", b"surf")
_NAMES_SHOWN = 5


class _Lines:
    """The lines of a file, each without blanks around it, by how they begin."""

    def __init__(self, text: bytes) -> None:
        self._lines = [line.strip() for line in text.replace(b"\t", b" ").splitlines()]
        self._begin = np.array([line[:2] for line in self._lines], dtype="S2")

    def of(self, *keywords: bytes) -> np.ndarray:
        """(K,) the indices of the lines that begin with one of these, of two bytes or more."""
        found = np.flatnonzero(np.isin(self._begin, [keyword[:2] for keyword in keywords]))
        if max(map(len, keywords)) == 2:
            return found
        return np.array([index for index in found if self._lines[index].startswith(keywords)], dtype=np.int64)

    def names(self, keyword: bytes) -> list[str]:
        """What follows a keyword in each of its lines."""
        found = (self._lines[index][len(keyword) :] for index in self.of(keyword))
        return [name.strip().decode("utf-8", "backslashreplace") for name in found]

    def after(self, keyword: bytes) -> list[bytes]:
        """What follows a keyword in each of its lines, without a comment."""
        return [self._lines[index][len(keyword) :].partition(b" #")[0] for index in self.of(keyword)]

    def rows(self, keyword: bytes, least: int) -> np.ndarray:
        """(K, W) the numbers of each line of a keyword; raises ValueError unless all have as many, at least `least`."""
        lines = self.of(keyword)
        numbers, widths = numbers_of(self.after(keyword), lambda number: f"line {lines[number - 1] + 1}")
        needed = max(widths[0], least) if len(widths) else least
        for row in np.flatnonzero(widths != needed)[:1]:
            raise ValueError(f"line {lines[row] + 1} has {widths[row]} numbers instead of {needed}")
        return numbers.reshape(-1, needed)


@dataclass(frozen=True, eq=False)
class _Triangles:
    """Indices from 0 of vertices and texture coordinates (-1 if there are none), (M, 3) each; (M,) the face of each."""

    vertices: np.ndarray
    uvs: np.ndarray
    faces: np.ndarray


def read_obj(path: Path) -> Geometry:
    """The faces and points of an OBJ file with the colours or textures of its materials; a cloud if it has neither.

    Polygons are triangulated as fans. Vertex colours (`v x y z r g b`) may be 0 to 1 or 0 to 255. Logs what the file
    has and is not drawn. Raises ValueError, with the number of the line, if it is damaged.
    """
    lines = _Lines(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    rows = lines.rows(b"v ", 3)
    vertices, colours = np.ascontiguousarray(rows[:, :3]), None
    if rows.shape[1] >= 6:
        colours = as_bytes(rows[:, 3:6], full_scale(rows[:, 3:6]))
    triangles, points = _triangles(lines), _points(lines)
    if undrawn := len(lines.of(*_LINES_AND_CURVES)):
        _log.warning("%s: its lines, curves and free-form surfaces are not drawn (%d)", path, undrawn)
    # The material of each triangle: an index of `names`, or -1.
    used = lines.names(b"usemtl")
    names = list(dict.fromkeys(used))
    index_of = np.array([*map(names.index, used), -1])
    materials = index_of[np.searchsorted(lines.of(b"usemtl"), lines.of(b"f ")[triangles.faces]) - 1]
    parts = list(_mesh_parts(path, lines, names, materials, vertices, colours, triangles))
    if parts:
        warn_of_loose_vertices(path, len(vertices), np.concatenate([triangles.vertices.ravel(), points]))
    if len(points) or not parts:
        chosen = points if len(points) else slice(None)
        parts.append(MeshPart(vertices[chosen], no_faces(), None if colours is None else colours[chosen]))
    named = ", ".join(names[:_NAMES_SHOWN])
    return merged(path, parts, f"the materials {named}" if named else "neither materials nor colours of vertices")


def _triangles(lines: _Lines) -> _Triangles:
    """The triangles of all faces; raises ValueError if a face is malformed or an index out of range."""
    where, faces = lines.of(b"f "), lines.after(b"f ")

    def place(number: int) -> str:
        return f"line {where[number - 1] + 1}"

    plain = [face.replace(b"//", b" 0 ").replace(b"/", b" ") for face in faces]
    numbers, widths = numbers_of(plain, place)
    corners = np.array([len(face.split()) for face in faces], dtype=np.int64)
    for row in np.flatnonzero((corners == 0) | (widths % corners.clip(1) != 0))[:1]:
        raise ValueError(f"{place(row + 1)}: the corners of a face have different forms")
    per_corner = widths // corners.clip(1)
    # Faces with as many corners of the same form are read at once, in the order of their first ones.
    forms = 8 * corners + 2 * per_corner + np.array([b"//" in face for face in faces], dtype=np.int64)
    starts = np.cumsum(widths) - widths
    found = [(no_faces(), no_faces(), np.zeros(0, dtype=np.int64))]
    for first in np.sort(np.unique(forms, return_index=True)[1]):
        rows, size, each = np.flatnonzero(forms == forms[first]), corners[first], per_corner[first]
        polygons = numbers[starts[rows][:, None] + np.arange(size * each)].reshape(-1, size, each)
        vertices = _resolved(polygons[..., 0], where[rows], lines.of(b"v "), "vertex")
        uvs = np.full_like(vertices, -1)
        if each > 1 and len(lines.of(b"vt")):
            uvs = _resolved(polygons[..., 1], where[rows], lines.of(b"vt"), "texture coordinate")
        fans = [[0, corner, corner + 1] for corner in range(1, size - 1)]
        if fans:
            found.append((vertices[:, fans].reshape(-1, 3), uvs[:, fans].reshape(-1, 3), np.repeat(rows, len(fans))))
    vertices, uvs, sources = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return _Triangles(vertices.astype(np.int32), uvs.astype(np.int32), sources)


def _resolved(stated: np.ndarray, where: np.ndarray, defined: np.ndarray, what: str) -> np.ndarray:
    """(K, corners) indices from 0 for those in lines `where` (K,), which count from 1, or back from the line.

    `defined` are the lines that define what they refer to. -1 for texture coordinates that are missing. Raises
    ValueError, with the line, if an index is out of range.
    """
    before = np.searchsorted(defined, where)
    indices = np.where(stated < 0, stated + before[:, None], stated - 1)
    wrong = (stated % 1 != 0) | (indices >= len(defined)) | ((indices < 0) & ((stated != 0) | (what == "vertex")))
    for row, corner in np.argwhere(wrong)[:1]:
        raise ValueError(
            f"line {where[row] + 1}: a face refers to {what} {stated[row, corner]:g}, but there are {len(defined)}"
        )
    return indices.astype(np.int64)


def _points(lines: _Lines) -> np.ndarray:
    """(K,) indices of the vertices that are drawn as points."""
    where = lines.of(b"p ")
    numbers, widths = numbers_of(lines.after(b"p "), lambda number: f"line {where[number - 1] + 1}")
    return _resolved(numbers[:, None], np.repeat(where, widths), lines.of(b"v "), "vertex")[:, 0]


def _mesh_parts(
    path: Path,
    lines: _Lines,
    names: list[str],
    materials: np.ndarray,
    vertices: np.ndarray,
    colours: np.ndarray | None,
    triangles: _Triangles,
) -> Iterator[MeshPart]:
    """One part for each material in use, and another for its faces without texture coordinates."""
    uvs = np.nan_to_num(lines.rows(b"vt", 2)[:, :2]).astype(np.float32)
    reader = MtlReader(path, lines.names(b"mtllib"), names)
    complete = (triangles.uvs >= 0).all(axis=1)
    for index in np.unique(materials):
        material = reader.material(names[index]) if index >= 0 else Mtl()
        here = materials == index
        textured = here & complete if material.texture else np.zeros(len(here), dtype=bool)
        if material.texture and (bare := int((here & ~complete).sum())):
            reader.problem(f"{bare} triangles with the texture {material.texture_name} have no texture coordinates")
        for chosen, has_texture in ((textured, True), (here & ~textured, False)):
            if chosen.any():
                face_uv = uvs[triangles.uvs[chosen]] if has_texture else None
                yield _part(material, vertices, colours, triangles.vertices[chosen], face_uv)


def _part(
    material: Mtl, vertices: np.ndarray, colours: np.ndarray | None, faces: np.ndarray, face_uv: np.ndarray | None
) -> MeshPart:
    used, faces = np.unique(faces, return_inverse=True)
    faces = faces.reshape(-1, 3).astype(np.int32)
    own = None if colours is None else colours[used]
    if face_uv is not None:
        face_uv = face_uv * np.array(material.scale, np.float32) + np.array(material.shift, np.float32)
        own = own if material.is_plain else None
    elif own is None and material.constant is not None:
        own = np.tile(material.constant, (len(used), 1))
    alpha = np.full(len(faces), material.alpha)
    see_through, partly = transparency(alpha, OPAQUE_ALPHA, material.opacity, face_uv)
    texture = material.texture if face_uv is not None else None
    return MeshPart(vertices[used], faces, own, texture, face_uv, see_through, partly)
