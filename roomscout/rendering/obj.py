"""Reads OBJ files and their materials.

A reader of our own, because trimesh resolves negative indices from the end of the file and takes the options of a
texture for a part of its name, without saying so.

Formats: Wavefront Technologies, "Object Files (.obj)" and "MTL material format", 1995.
"""

import codecs
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np

from roomscout.rendering.columns import as_bytes, full_scale
from roomscout.rendering.geometry import Geometry, no_faces
from roomscout.rendering.mtl import Mtl, MtlReader
from roomscout.rendering.parts import UNCOLOURED_GREY, MeshPart, merged, warn_of_loose_vertices

_log = logging.getLogger(__name__)

_CONTINUED = re.compile(rb"^(?!\s*#)(?:[^\n]*\\\n)+[^\n]*", re.MULTILINE)
_COMMENT = re.compile(rb"(?:^|\s)#.*")
_NOT_A_NUMBER = re.compile(rb"[+-]?(?:nan|inf|1\.#)", re.IGNORECASE)
_NAMES_SHOWN = 5
_FLOAT_CHARACTERS, _INDEX_CHARACTERS = b"0123456789+-.eE \t\n", b"0123456789- \t\n"


@dataclass
class _Lines:
    """Lines of one keyword, and their numbers in the file in runs."""

    lines: list[bytes] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=list)

    def add(self, lines: list[bytes], number: int) -> None:
        """Add consecutive lines, the first of which has this number."""
        self.starts.append((number, len(lines)))
        self.lines += lines

    def number(self, index: int) -> int:
        """The number in the file of a line."""
        for first, count in self.starts:
            if index < count:
                return first + index
            index -= count
        raise IndexError(index)


@dataclass
class _Content:
    """The lines of a file by keyword; of each run of faces, what was defined before it."""

    vertices: _Lines = field(default_factory=_Lines)
    uvs: _Lines = field(default_factory=_Lines)
    faces: _Lines = field(default_factory=_Lines)
    points: _Lines = field(default_factory=_Lines)
    # (vertices, texture coordinates, index of the material's name) of each run
    faces_after: list[tuple[int, int, int]] = field(default_factory=list)
    points_after: list[int] = field(default_factory=list)
    material_names: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    not_drawn: int = 0


@dataclass(frozen=True, eq=False)
class _Triangles:
    """Indices from 0 of vertices and texture coordinates (-1 if there are none), (M, 3) each; (M,) material names."""

    vertices: np.ndarray
    uvs: np.ndarray
    materials: np.ndarray


def read_obj(path: Path) -> Geometry:
    """The faces and points of an OBJ file with the colours or textures of its materials; a cloud if it has neither.

    Polygons are triangulated as fans. Vertex colours (`v x y z r g b`) may be 0 to 1 or 0 to 255. Logs what the file
    has and is not drawn. Raises ValueError, with the number of the line, if it is damaged.
    """
    content = _content(_text(path))
    vertices, colours = _vertices(content.vertices)
    triangles = _triangles(content, len(vertices))
    if content.not_drawn:
        _log.warning("%s: its lines, curves and free-form surfaces are not drawn (%d)", path, content.not_drawn)
    parts = list(_mesh_parts(path, content, vertices, colours, triangles))
    points = _points(content, len(vertices))
    if parts:
        warn_of_loose_vertices(path, len(vertices), np.concatenate([triangles.vertices.ravel(), points]))
    if len(points) or not parts:
        chosen = points if len(points) else slice(None)
        parts.append(MeshPart(vertices[chosen], no_faces(), None if colours is None else colours[chosen]))
    named = ", ".join(content.material_names[:_NAMES_SHOWN])
    return merged(path, parts, f"the materials {named}" if named else "neither materials nor colours of vertices")


def _text(path: Path) -> bytes:
    """The file with lines that end in a line feed."""
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\\\n" in data:  # joined lines are followed by empty ones, so that all others keep their numbers
        data = _CONTINUED.sub(lambda m: m[0].replace(b"\\\n", b" ") + b"\n" * m[0].count(b"\\\n"), data)
    return data


def _content(text: bytes) -> _Content:
    found = _Content()
    material = -1
    number = 1
    for start, group in groupby(map(bytes.strip, text.split(b"\n")), itemgetter(slice(2))):
        lines = list(group)
        match start.rstrip().lower():
            case b"v":
                found.vertices.add(lines, number)
            case b"vt":
                found.uvs.add(lines, number)
            case b"f":
                found.faces.add(lines, number)
                found.faces_after.append((len(found.vertices.lines), len(found.uvs.lines), material))
            case b"p":
                found.points.add(lines, number)
                found.points_after.append(len(found.vertices.lines))
            case b"us" if named := [line for line in lines if line[:6].lower() == b"usemtl"]:
                name = _name(named[-1][6:])
                if name not in found.material_names:
                    found.material_names.append(name)
                material = found.material_names.index(name)
            case b"mt":
                found.libraries += [_name(line[6:]) for line in lines if line[:6].lower() == b"mtllib"]
            case b"l" | b"cu" | b"su":
                words = [line.split()[0].lower() for line in lines]
                found.not_drawn += sum(word in (b"l", b"curv", b"curv2", b"surf") for word in words)
        number += len(lines)
    return found


def _name(text: bytes) -> str:
    try:
        return text.strip().decode()
    except UnicodeDecodeError:
        return text.strip().decode("latin-1")


def _numbers(text: bytes, characters: bytes, dtype: type, count: int) -> np.ndarray | None:
    """The `count` numbers in a text; None if it has others, or anything else."""
    if text.translate(None, characters):
        return None
    values: np.ndarray = np.fromstring(text, dtype=dtype, sep=" ")
    return values if len(values) == count else None


def _rows(lines: _Lines, keyword: bytes, least: int) -> tuple[np.ndarray, np.ndarray]:
    """The numbers of each line, (N, K) float64 with zeros behind those of a shorter line, and how many it has, (N,)."""
    counts = set(map(len, map(bytes.split, lines.lines)))
    if len(counts) == 1 and min(counts) > least:
        width = counts.pop() - 1
        text = b"\n".join(lines.lines).translate(None, keyword + keyword.upper())
        values = _numbers(text, _FLOAT_CHARACTERS, float, len(lines.lines) * width)
        if values is not None:
            return values.reshape(-1, width), np.full(len(lines.lines), width)
    found = []
    for index, line in enumerate(lines.lines):
        words = _COMMENT.sub(b"", line).split()[1:]
        try:
            found.append(np.array([np.nan if _NOT_A_NUMBER.match(word) else float(word) for word in words]))
        except ValueError as error:
            raise ValueError(f"line {lines.number(index)}: {error}") from None
        if len(words) < least:
            raise ValueError(f"line {lines.number(index)} has {len(words)} numbers instead of {least}")
    has = np.array([len(row) for row in found])
    rows = np.zeros((len(found), has.max()))
    rows[np.arange(rows.shape[1]) < has[:, None]] = np.concatenate(found)
    return rows, has


def _vertices(lines: _Lines) -> tuple[np.ndarray, np.ndarray | None]:
    """(N, 3) float64 positions and (N, 3) uint8 colours, or None."""
    if not lines.lines:
        return np.zeros((0, 3)), None
    rows, counts = _rows(lines, b"v", 3)
    positions, coloured = np.ascontiguousarray(rows[:, :3]), counts >= 6
    if not coloured.any():
        return positions, None
    values = rows[coloured, 3:6]
    colours = np.full((len(positions), 3), UNCOLOURED_GREY, dtype=np.uint8)
    colours[coloured] = as_bytes(values, full_scale(values))
    return positions, colours


def _uvs(lines: _Lines) -> np.ndarray:
    """(K, 2) float32, v up."""
    if not lines.lines:
        return np.zeros((0, 2), dtype=np.float32)
    pairs = _rows(lines, b"vt", 1)[0][:, :2]
    if pairs.shape[1] == 1:
        pairs = np.pad(pairs, ((0, 0), (0, 1)))
    return np.nan_to_num(pairs).astype(np.float32)


def _triangles(content: _Content, vertex_count: int) -> _Triangles:
    """Raises ValueError if an index is out of range."""
    rows = content.faces.lines
    sizes = [count for _, count in content.faces.starts]
    after = np.repeat(np.array(content.faces_after, dtype=np.int64).reshape(-1, 3), sizes, axis=0)
    forms: dict[tuple[int, int, int], list[int]] = {}
    for index, row in enumerate(rows):
        forms.setdefault((len(row.split()) - 1, row.count(b"/"), row.count(b"//")), []).append(index)
    found = []
    for (corners, slashes, empty), indices in forms.items():
        chosen = rows if len(forms) == 1 else [rows[index] for index in indices]
        for where, polygons in _polygons(content.faces, chosen, np.array(indices), corners, slashes, empty):
            if polygons.shape[1] < 3:
                content.not_drawn += len(polygons)
                continue
            vertices = _resolved(content.faces, where, polygons[..., 0], after[where, 0], vertex_count, "vertex")
            uvs = np.full_like(vertices, -1)
            if content.uvs.lines:
                count = len(content.uvs.lines)
                uvs = _resolved(content.faces, where, polygons[..., 1], after[where, 1], count, "texture coordinate")
            fans = [[0, corner, corner + 1] for corner in range(1, polygons.shape[1] - 1)]
            found.append(
                (vertices[:, fans].reshape(-1, 3), uvs[:, fans].reshape(-1, 3), np.repeat(after[where, 2], len(fans)))
            )
    if not found:
        return _Triangles(no_faces(), no_faces(), np.zeros(0, dtype=np.int64))
    vertices, uvs, materials = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return _Triangles(vertices.astype(np.int32), uvs.astype(np.int32), materials)


def _polygons(
    lines: _Lines, rows: list[bytes], indices: np.ndarray, corners: int, slashes: int, empty: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Polygons with as many corners each: their lines (K,), and (K, corners, 2) indices of vertices and uvs.

    Missing indices are 0. All `rows` have as many corners, slashes, and double slashes.
    """
    per_corner = slashes // max(corners, 1) + 1
    if corners and slashes == (per_corner - 1) * corners and per_corner <= 3 and empty in (0, corners):
        text = b"\n".join(rows).translate(None, b"fF")
        if empty:
            text = text.replace(b"//", b" 0 ")
        numbers = _numbers(text.replace(b"/", b" "), _INDEX_CHARACTERS, np.int64, len(rows) * corners * per_corner)
        if numbers is not None:
            polygons = numbers.reshape(len(rows), corners, per_corner)[..., :2]
            yield indices, np.pad(polygons, ((0, 0), (0, 0), (0, 2 - polygons.shape[2])))
            return
    for index, row in zip(indices, rows, strict=True):
        words = _COMMENT.sub(b"", row).split()[1:]
        try:
            polygon = [[int(number or 0) for number in [*word.split(b"/"), b""][:2]] for word in words]
        except ValueError as error:
            raise ValueError(f"line {lines.number(index)}: {error}") from None
        yield np.array([index]), np.array(polygon, dtype=np.int64).reshape(1, -1, 2)


def _resolved(
    lines: _Lines, where: np.ndarray, stated: np.ndarray, before: np.ndarray, count: int, what: str
) -> np.ndarray:
    """(K, corners) indices from 0 for those in a file, which count from 1, or back from what was defined before.

    -1 for texture coordinates that are missing.
    """
    indices = np.where(stated < 0, stated + before[:, None], stated - 1)
    wrong = (indices >= count) | (indices < (0 if what == "vertex" else -1)) | ((stated < 0) & (indices < 0))
    if wrong.any():
        row, corner = np.argwhere(wrong)[0]
        line = lines.number(int(where[row]))
        raise ValueError(f"line {line}: a face refers to {what} {stated[row, corner]}, but there are {count}")
    return indices


def _points(content: _Content, vertex_count: int) -> np.ndarray:
    """(K,) indices of the vertices that are drawn as points."""
    found = [np.zeros(0, dtype=np.int64)]
    starts = np.repeat(content.points_after, [count for _, count in content.points.starts]).astype(np.int64)
    for index, line in enumerate(content.points.lines):
        try:
            stated = np.array([[int(word.split(b"/")[0]) for word in _COMMENT.sub(b"", line).split()[1:]]])
        except ValueError as error:
            raise ValueError(f"line {content.points.number(index)}: {error}") from None
        where = np.array([index])
        found.append(_resolved(content.points, where, stated, starts[where], vertex_count, "vertex")[0])
    return np.concatenate(found)


def _mesh_parts(
    path: Path, content: _Content, vertices: np.ndarray, colours: np.ndarray | None, triangles: _Triangles
) -> Iterator[MeshPart]:
    """One part for each material in use, and another for its faces without texture coordinates."""
    if not len(triangles.vertices):
        return
    uvs = _uvs(content.uvs)
    reader = MtlReader(path, content.libraries, content.material_names, has_uv=len(uvs) > 0)
    complete = (triangles.uvs >= 0).all(axis=1)
    for index in np.unique(triangles.materials):
        material = reader.material(content.material_names[index] if index >= 0 else None)
        here = triangles.materials == index
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
    see_through, partly = material.see_through(len(faces), face_uv)
    texture = None if face_uv is None else material.texture
    return MeshPart(vertices[used], faces, own, texture, face_uv, see_through, partly)
