"""Reads OBJ files and their materials.

A reader of our own, because trimesh resolves negative indices from the end of the file and takes the options of a
texture for a part of its name, without saying so.

Formats: Wavefront Technologies, "Object Files (.obj)" and "MTL material format", 1995.
"""

import codecs
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.base.pictures import as_bytes, full_scale
from roomscout.rendering.geometry import NO_FACES, Geometry, triangulated
from roomscout.rendering.parts import OPAQUE_ALPHA, Material, MeshPart, merged, warn_of_loose_vertices
from roomscout.rendering.tables import numbers_of
from roomscout.rendering.textures import Picture, Pictures, Texture, Wrap, file_of, opacity_of

_log = logging.getLogger(__name__)

_LINES_AND_CURVES = (b"l ", b"curv", b"surf")
# An option of a texture, which comes before the name of its file, and its values.
_OPTION = re.compile(r"-(\w+)((?:\s+(?:on|off|[-+]?[\d.]+(?:e[-+]?\d+)?)(?=\s))+)\s+", re.IGNORECASE)
_NAMES_SHOWN = 5
MOST_MATERIALS = 10_000  # each takes a pass over all faces; scans have fewer


class _Lines:
    """The lines of a file, each without blanks around it, by how they begin."""

    def __init__(self, text: bytes) -> None:
        self._lines = [line.strip() for line in text.replace(b"\t", b" ").splitlines()]
        self._begin = np.array([line[:2] for line in self._lines], dtype="S2")

    def of(self, *keywords: bytes) -> np.ndarray:
        """(K,) the indices of the lines that begin with one of these, of two bytes or more."""
        indices = np.flatnonzero(np.isin(self._begin, [keyword[:2] for keyword in keywords]))
        if max(map(len, keywords)) == 2:
            return indices
        return np.array([index for index in indices if self._lines[index].startswith(keywords)], dtype=np.int64)

    def names(self, keyword: bytes) -> list[str]:
        names = (self._lines[index][len(keyword) :] for index in self.of(keyword))
        return [name.strip().decode("utf-8", "backslashreplace") for name in names]

    def after(self, keyword: bytes) -> list[bytes]:
        return [self._lines[index][len(keyword) :].partition(b" #")[0] for index in self.of(keyword)]

    def rows(self, keyword: bytes, least: int) -> np.ndarray:
        """(K, W) the numbers of each line of a keyword; raises ValueError unless all have as many, at least `least`."""
        lines = self.of(keyword)
        numbers, widths = numbers_of(self.after(keyword), lambda number: f"line {lines[number - 1] + 1}")
        needed = max(widths[0], least) if len(widths) else least
        wrong = np.flatnonzero(widths != needed)
        if len(wrong):
            raise ValueError(f"line {lines[wrong[0]] + 1} has {widths[wrong[0]]} numbers instead of {needed}")
        return numbers.reshape(-1, needed)


@dataclass(frozen=True, eq=False)
class _Material(Material):
    texture_name: str = ""  # of its file, "" without a usable texture
    scale: Sequence[float] = (1.0, 1.0)  # multiplies texture coordinates
    shift: Sequence[float] = (0.0, 0.0)  # moves texture coordinates then


class _Materials(Pictures):
    def __init__(self, scan: Path, libraries: Sequence[str], used: Sequence[str]) -> None:
        super().__init__(scan)
        self._statements: dict[str, dict[str, str]] = {}
        self._file_of: dict[str, Path] = {}
        self._textures: dict[tuple[object, ...], Texture] = {}
        names: list[str] = []
        for line in libraries:  # it names one file, whose name may have blanks, or several
            names += line.split() if line.count(".mtl") > 1 else [line]
        complete = True
        for name in names:
            try:
                file = file_of(scan, name)
                statements = _statements(file)
            except OSError as error:
                complete = False
                self.problem(f"drawing without a material file: {error}")
                continue
            self._statements.update(statements)
            self._file_of.update(dict.fromkeys(statements, file))
        unknown = [name for name in used if name not in self._statements]
        if complete and unknown:
            self.problem(f"its .mtl files do not have its materials {', '.join(unknown[:_NAMES_SHOWN])}")

    def material(self, name: str) -> _Material:
        """The material of this name; one without colour if it is unknown."""
        statements = self._statements.get(name, {})
        beside = self._file_of.get(name, self.scan)
        diffuse = _colour(statements.get("kd"))
        emitted = _colour(statements.get("ke"))
        brightest = diffuse if diffuse is None or emitted is None else np.maximum(diffuse, emitted)
        constant = None if brightest is None else (255 * brightest).round().astype(np.uint8)
        alpha = float(statements.get("d", "1").split()[-1])  # after an option, as in `d -halo 0.5`
        options, file = _options_and_name(statements.get("map_kd") or statements.get("map_ke") or "")
        if not file:
            return _Material(constant, alpha=alpha)
        picture = self._picture(beside, file)
        if picture is None:
            return _Material(alpha=alpha)  # shading shows shapes where a texture cannot be used
        tint = np.ones(3)
        if diffuse is not None and diffuse.any() and "map_kd" in statements:
            tint = diffuse / diffuse.max()  # a hue is meant: exporters write any brightness beside a texture
        wrap: Wrap = "clamp" if options.get("clamp") == ["on"] else "repeat"
        key = (beside.parent, file, tint.tobytes(), wrap)
        if key not in self._textures:
            pixels = picture.pixels if (tint == 1).all() else (picture.pixels * tint).round().astype(np.uint8)
            self._textures[key] = Texture(pixels, (wrap, wrap))
        texture = self._textures[key]
        cut_out = statements.get("map_d")
        mask = self._picture(beside, _options_and_name(cut_out)[1]) if cut_out else picture
        opacity = None
        if mask is not None and (cut_out or mask.alpha is not None):
            mask_alpha = mask.pixels[..., 0] if mask.alpha is None else mask.alpha
            opacity = opacity_of(mask_alpha, OPAQUE_ALPHA, (wrap, wrap))
        scale = [float(value) for value in options.get("s", [])] + [1.0, 1.0]
        shift = [float(value) for value in options.get("o", [])] + [0.0, 0.0]
        is_plain = bool((texture.pixels == texture.pixels[0, 0]).all())
        return _Material(
            constant, texture, is_plain, alpha, opacity, texture_name=file, scale=scale[:2], shift=shift[:2]
        )

    def _picture(self, beside: Path, name: str) -> Picture | None:
        """A texture, named relative to its .mtl file or to the scan; None if it cannot be used, which is logged."""
        return self.picture((beside.parent, name), name, lambda: file_of(self.scan, name, beside).read_bytes())


def _statements(file: Path) -> dict[str, dict[str, str]]:
    """By material: what follows each keyword, in lower case, of a .mtl file."""
    materials: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in file.read_bytes().removeprefix(codecs.BOM_UTF8).replace(b"\t", b" ").splitlines():
        keyword, _, rest = line.decode("utf-8", "backslashreplace").strip().partition(" ")
        if keyword == "newmtl":
            current = materials.setdefault(rest.strip(), {})
        else:
            current[keyword.lower()] = rest.strip()
    return materials


def _colour(text: str | None) -> np.ndarray | None:
    """(3,) floats, 0 to 1; None if there are none, or they are a spectrum."""
    try:
        return np.array([float(word) for word in (text or "").split()[:3]]).reshape(3).clip(0, 1)
    except ValueError:
        return None


def _options_and_name(text: str) -> tuple[dict[str, list[str]], str]:
    options: dict[str, list[str]] = {}
    while match := _OPTION.match(text):
        options[match[1].lower()] = match[2].lower().split()
        text = text[match.end() :]
    return options, text


def read_obj(path: Path) -> Geometry:
    """The faces and points of an OBJ file with the colours or textures of its materials; a cloud if it has neither.
    Vertex colours (`v x y z r g b`) may be 0 to 1 or 0 to 255. Logs what the file has and is not drawn. Raises
    ValueError, with the number of the line, if it is damaged."""
    lines = _Lines(path.read_bytes().removeprefix(codecs.BOM_UTF8))
    rows = lines.rows(b"v ", 3)
    vertices = np.ascontiguousarray(rows[:, :3])
    colours = None
    if rows.shape[1] >= 6:
        colours = as_bytes(rows[:, 3:6], full_scale(rows[:, 3:6]))
    corners, uvs, sources = _triangles(lines, vertices)
    where = lines.of(b"p ")
    drawn, widths = numbers_of(lines.after(b"p "), lambda number: f"line {where[number - 1] + 1}")
    points = _resolved(drawn[:, None], np.repeat(where, widths), lines.of(b"v "), "vertex")[:, 0]
    if undrawn := len(lines.of(*_LINES_AND_CURVES)):
        _log.warning("%s: its lines, curves and free-form surfaces are not drawn (%d)", path, undrawn)
    # The material of each triangle: an index of `names`, or -1.
    used = lines.names(b"usemtl")
    names = list(dict.fromkeys(used))
    if len(names) > MOST_MATERIALS:
        raise ValueError(f"it has {len(names):,} materials, more than {MOST_MATERIALS:,}")
    numbers = {name: number for number, name in enumerate(names)}
    index_of = np.array([*(numbers[name] for name in used), -1])
    materials = index_of[np.searchsorted(lines.of(b"usemtl"), lines.of(b"f ")[sources]) - 1]
    parts = list(_mesh_parts(path, lines, names, materials, MeshPart(vertices, corners, colours), uvs))
    if parts:
        warn_of_loose_vertices(path, len(vertices), np.concatenate([corners.ravel(), points]))
    if len(points) or not parts:
        chosen = points if len(points) else slice(None)
        point_colours = None if colours is None else colours[chosen]
        parts.append(MeshPart(vertices[chosen], NO_FACES, point_colours))
    named = ", ".join(names[:_NAMES_SHOWN])
    contents = f"the materials {named}" if named else "neither materials nor colours of vertices"
    return merged(path, parts, contents)


def _triangles(lines: _Lines, points: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Indices from 0 of the vertices and texture coordinates (-1 for none) of all triangles, (M, 3) each, and (M,) the
    face of each, whose vertices are at `points` (N, 3). Raises ValueError if a face is malformed or an index wrong."""
    where = lines.of(b"f ")
    faces = lines.after(b"f ")

    def place(number: int) -> str:
        return f"line {where[number - 1] + 1}"

    plain = [face.replace(b"//", b" 0 ").replace(b"/", b" ") for face in faces]
    numbers, widths = numbers_of(plain, place)
    corners = np.array([len(face.split()) for face in faces], dtype=np.int64)
    wrong = np.flatnonzero((corners == 0) | (widths % corners.clip(1) != 0))
    if len(wrong):
        raise ValueError(f"{place(wrong[0] + 1)}: the corners of a face have different forms")
    per_corner = widths // corners.clip(1)
    # Faces with as many corners of the same form are read at once, in the order of their first ones.
    forms = 8 * corners + 2 * per_corner + np.array([b"//" in face for face in faces], dtype=np.int64)
    starts = np.cumsum(widths) - widths
    triangles = [NO_FACES]
    triangle_uvs = [NO_FACES]
    sources = [np.zeros(0, dtype=np.int64)]
    for first in np.sort(np.unique(forms, return_index=True)[1]):
        rows = np.flatnonzero(forms == forms[first])
        shape = (corners[first], per_corner[first])
        polygons = numbers[starts[rows][:, None] + np.arange(widths[first])].reshape(-1, *shape)
        vertices = _resolved(polygons[..., 0], where[rows], lines.of(b"v "), "vertex")
        uvs = np.full_like(vertices, -1)
        if per_corner[first] > 1 and len(lines.of(b"vt")):
            uvs = _resolved(polygons[..., 1], where[rows], lines.of(b"vt"), "texture coordinate")
        places, of = triangulated(vertices, points)
        triangles.append(vertices[of[:, None], places].astype(np.int32))
        triangle_uvs.append(uvs[of[:, None], places].astype(np.int32))
        sources.append(rows[of])
    return np.concatenate(triangles), np.concatenate(triangle_uvs), np.concatenate(sources)


def _resolved(stated: np.ndarray, where: np.ndarray, defined: np.ndarray, what: str) -> np.ndarray:
    """(K, corners) indices from 0 for those in lines `where` (K,), which count from 1, or back from the line; -1 for
    missing texture coordinates. `defined` are the lines that they refer to. Raises ValueError for one out of range."""
    before = np.searchsorted(defined, where)
    indices = np.where(stated < 0, stated + before[:, None], stated - 1)
    wrong = (stated % 1 != 0) | (indices >= len(defined)) | ((indices < 0) & ((stated != 0) | (what == "vertex")))
    if wrong.any():
        row, corner = np.argwhere(wrong)[0]
        raise ValueError(
            f"line {where[row] + 1}: a face refers to {what} {stated[row, corner]:g}, but there are {len(defined)}"
        )
    return indices.astype(np.int64)


def _mesh_parts(
    path: Path, lines: _Lines, names: list[str], materials: np.ndarray, mesh: MeshPart, uvs: np.ndarray
) -> Iterator[MeshPart]:
    """One part for each material in use, and another for its faces without texture coordinates."""
    coordinates = np.nan_to_num(lines.rows(b"vt", 2)[:, :2]).astype(np.float32)
    reader = _Materials(path, lines.names(b"mtllib"), names)
    complete = (uvs >= 0).all(axis=1)
    for index in np.unique(materials):
        material = reader.material(names[index]) if index >= 0 else _Material()
        own = materials == index
        textured = own & complete if material.texture else np.zeros(len(own), dtype=bool)
        bare = own & ~textured
        if material.texture and bare.any():
            what = f"{np.count_nonzero(bare)} triangles with the texture {material.texture_name}"
            reader.problem(f"{what} have no texture coordinates")
        if textured.any():
            face_uv = coordinates[uvs[textured]] * np.array(material.scale, np.float32)
            yield material.part(mesh.only(textured, face_uv + np.array(material.shift, np.float32)))
        if bare.any():
            yield material.part(mesh.only(bare))
