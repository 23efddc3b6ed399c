"""Meshes of one material each, as glTF and OBJ files have them, and how they become one geometry."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from roomscout.rendering.discs import disc_mesh, downsampled
from roomscout.rendering.geometry import NO_FACES, Geometry, Texturing, cleaned, coloured, compact
from roomscout.rendering.textures import Opacity, Texture, tinted

_log = logging.getLogger(__name__)

UNCOLOURED_GREY = 160  # of points without colours in a file whose other parts have some
OPAQUE_ALPHA = 0.5  # surfaces with less are left out: glass, and what textures cut out
_NEARLY_OPAQUE = 0.98  # a surface with more alpha is drawn opaque without a word
_LOOSE_SHARE = 0.1  # fewer vertices without faces are normal: editors leave them behind


@dataclass(frozen=True, eq=False)
class MeshPart:
    """A mesh with one material, or points."""

    vertices: np.ndarray  # (N, 3) float
    faces: np.ndarray  # (M, 3) int32; M = 0 for points
    colours: np.ndarray | None = None  # (N, 3) uint8, which multiply the texture
    texture: Texture | None = None  # drawn at `face_uv`
    face_uv: np.ndarray | None = None  # (M, 3, 2) float32 coordinates of the texture, v up
    see_through: np.ndarray | None = None  # (M,) bool: which faces are transparent; None if none are
    partly: bool = False  # whether other faces have some transparency, which is not drawn

    def only(self, chosen: np.ndarray, face_uv: np.ndarray | None = None) -> "MeshPart":
        """Some of the faces, which `chosen` (M,) selects, with the vertices that they use."""
        faces, vertices, colours = compact(self.faces[chosen], self.vertices, self.colours)
        return MeshPart(vertices, faces, colours, face_uv=face_uv)

    def placed(self, transform: np.ndarray) -> "MeshPart":
        """The part moved by a (4, 4) matrix."""
        if (transform == np.eye(4)).all():
            return self
        return replace(self, vertices=self.vertices @ transform[:3, :3].T + transform[:3, 3])


@dataclass(frozen=True, eq=False)
class Material:
    """A colour or a texture, and transparency."""

    constant: np.ndarray | None = None  # (3,) uint8 sRGB of meshes without vertex colours; None if they are shaded
    texture: Texture | None = None  # has `factor` and `glow` already
    is_multiplied: bool = True  # whether vertex colours multiply the texture, and else are replaced
    alpha: float = 1.0  # 0 to 1, which multiplies the alpha of vertices
    opacity: Opacity | None = None  # of the texture's texels; None if all are opaque
    cutoff: float | None = OPAQUE_ALPHA  # below this alpha, surfaces are transparent; None for opaque materials
    factor: np.ndarray = field(default_factory=lambda: np.ones(3))  # 0 to 1, multiplies vertex colours in linear light
    glow: np.ndarray = field(default_factory=lambda: np.zeros(3, np.uint8))  # (3,) sRGB, which surfaces show at least

    def part(self, mesh: MeshPart, alpha: np.ndarray | None = None) -> MeshPart:
        """The mesh in this material, with its texture if there is a `face_uv`. Its vertices may have `alpha` (N,).
        Faces are transparent by the largest alpha of their corners or by all texels that they may show."""
        see_through, partly = None, False
        if self.cutoff is not None and len(mesh.faces):
            most = np.full(len(mesh.faces), self.alpha) if alpha is None else self.alpha * alpha[mesh.faces].max(axis=1)
            below = most < self.cutoff
            partial = most < _NEARLY_OPAQUE
            if self.opacity is not None and mesh.face_uv is not None:
                none, all_ = self.opacity.of_faces(mesh.face_uv)
                below = below | none
                partial = ~all_
            see_through = below if below.any() else None
            partly = bool((partial & ~below).any())
        colours, texture = mesh.colours, None
        if mesh.face_uv is not None:
            texture = self.texture
            if colours is not None and (not self.is_multiplied or (colours == 255).all()):
                colours = None
        elif colours is not None:
            colours = np.maximum(tinted(colours, self.factor), self.glow)
        elif self.constant is not None:
            colours = np.tile(self.constant, (len(mesh.vertices), 1))
        return replace(mesh, colours=colours, texture=texture, see_through=see_through, partly=partly)


def merged(path: Path, parts: Sequence[MeshPart], has: str) -> Geometry:
    """All parts as one geometry: a mesh if any is one, with points as discs; else a cloud. Logs what is not drawn. If
    no part has colours, that is logged with what the file `has` instead. Raises ValueError if there is nothing."""
    if parts and all(part.colours is None and part.texture is None for part in parts):
        _log.warning("%s: no colours read; it has %s", path, has)
    meshes = [part for part in _without_see_through(path, parts) if len(part.faces)]
    points = [part for part in parts if len(part.vertices) and not len(part.faces)]
    clouds = [cleaned(Geometry(part.vertices, NO_FACES, part.colours), math.inf) for part in points]
    if not meshes and not clouds:
        raise ValueError("it contains neither a mesh nor a point cloud")
    if not meshes:
        return _concatenated(clouds, [])
    if clouds:
        cloud = _concatenated(clouds, [])
        centre = np.round(np.median(cloud.vertices, axis=0))  # float32 resolves small discs only near the origin
        near, known_colours = downsampled(path.stem, (cloud.vertices - centre).astype(np.float32), cloud.colours)
        vertices, faces, colours = disc_mesh(near, known_colours)
        meshes.append(MeshPart(vertices + centre, faces, colours))
    textures = list(dict.fromkeys(part.texture for part in meshes if part.texture))
    return _concatenated([coloured(cleaned(_as_geometry(part, textures), math.inf)) for part in meshes], textures)


def warn_of_loose_vertices(path: Path, count: int, drawn: np.ndarray) -> None:
    """Log that many of `count` vertices are not among the indices `drawn` of faces and points; not if none is."""
    used = np.zeros(count, dtype=bool)
    used[drawn.ravel()] = True
    loose = count - int(used.sum())
    if _LOOSE_SHARE * count < loose < count:
        fix = "if they are points of the scan, save it without faces"
        _log.warning("%s: not drawing %d of its %d vertices, which no face uses; %s", path, loose, count, fix)


def _without_see_through(path: Path, parts: Sequence[MeshPart]) -> list[MeshPart]:
    """The parts without their transparent faces, unless all are transparent; logs both."""
    total = sum(len(part.faces) for part in parts)
    count = sum(int(part.see_through.sum()) for part in parts if part.see_through is not None)
    if partly := sum(part.partly for part in parts):
        _log.warning("%s: partly transparent surfaces are drawn opaque, in %d of its meshes", path, partly)
    if count == total:
        if count:
            _log.warning("%s: all its surfaces are transparent; they are drawn opaque", path)
        return list(parts)
    if count:
        _log.warning("%s: left out %d of %d triangles, which are more transparent than opaque", path, count, total)
    kept = []
    for part in parts:
        if part.see_through is not None:
            face_uv = None if part.face_uv is None else part.face_uv[~part.see_through]
            part = replace(part, faces=part.faces[~part.see_through], face_uv=face_uv)
        kept.append(part)
    return kept


def _as_geometry(part: MeshPart, textures: Sequence[Texture]) -> Geometry:
    """The mesh, whose texturing has an index of `textures`, or -1, for each face, and no images yet."""
    if not textures:
        return Geometry(part.vertices, part.faces, part.colours)
    colours = part.colours
    face_uv = part.face_uv
    index = -1
    if part.texture is not None:
        index = textures.index(part.texture)
        colours = np.full((len(part.vertices), 3), 255, dtype=np.uint8) if colours is None else colours
    if face_uv is None:
        face_uv = np.zeros((len(part.faces), 3, 2), dtype=np.float32)
    texturing = Texturing(face_uv, np.full(len(face_uv), index, dtype=np.int32), ())
    return Geometry(part.vertices, part.faces, colours, texturing=texturing)


def _concatenated(geometries: Sequence[Geometry], textures: Sequence[Texture]) -> Geometry:
    """Concatenate. If only some have colours, the others become grey. Each texture becomes one image that repeats."""
    colours, texturing = None, None
    if any(part.colours is not None for part in geometries):
        columns = []
        for part in geometries:
            grey = np.full((len(part.vertices), 3), UNCOLOURED_GREY, dtype=np.uint8)
            own = grey if part.colours is None else part.colours
            columns.append(own)
        colours = np.concatenate(columns)
    if textures:
        texturings = [part.texturing for part in geometries if part.texturing]
        face_uv = np.concatenate([texturing.face_uv for texturing in texturings])
        face_image = np.concatenate([texturing.face_image for texturing in texturings])
        images = []
        for index, texture in enumerate(textures):
            textured = face_image == index
            pixels, face_uv[textured] = texture.unrolled(face_uv[textured])
            images.append(pixels)
        texturing = Texturing(face_uv, face_image, tuple(images))
    offsets = np.cumsum([0, *(len(part.vertices) for part in geometries[:-1])])
    faces = np.concatenate([part.faces + offset for part, offset in zip(geometries, offsets, strict=True)])
    vertices = np.concatenate([part.vertices for part in geometries])
    return Geometry(vertices, faces.astype(np.int32), colours, texturing=texturing)
