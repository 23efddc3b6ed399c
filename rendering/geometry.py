"""Vertices, faces and colours as they come out of a file, and what is done to them before they make a scene."""

from dataclasses import dataclass, replace

import numpy as np

# A coordinate beyond this is a reading error like NaN, and float32 has no centimetres left there.
FARTHEST_M = 1e6
# Meshes with more faces get smooth instead of flat shading, since flat shading triples the vertices.
FLAT_SHADING_MAX_FACES = 1_000_000


class SceneError(Exception):
    """A scan that cannot be read: one sentence that names the file and the mend."""


@dataclass(frozen=True, eq=False)
class Texturing:
    """Images and where each face lies in them.

    `face_uv` (M, 3, 2) float32: per face and corner, u to the right and v *up* in units of the image, repeating
    outside 0..1. `face_image` (M,) int32: index into `images`, or -1 for a face that has vertex colours.
    `images`: (h, w, 3) uint8 RGB each.
    """

    face_uv: np.ndarray
    face_image: np.ndarray
    images: tuple[np.ndarray, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.face_uv.nbytes + self.face_image.nbytes + sum(image.nbytes for image in self.images)


@dataclass(frozen=True, eq=False)
class Geometry:
    """A triangle mesh, or a cloud where `faces` is empty.

    `vertices` (N, 3) float metres; `faces` (M, 3) int32; `colours` (N, 3) uint8 or None; `face_colours` (M, 3)
    uint8 or None, which go before `colours`; `texturing` or None, which goes before both.
    """

    vertices: np.ndarray
    faces: np.ndarray
    colours: np.ndarray | None = None
    face_colours: np.ndarray | None = None
    texturing: Texturing | None = None

    def with_faces(self, keep: np.ndarray) -> "Geometry":
        """The geometry with only the faces that `keep` (a mask or indices) selects; vertices stay."""
        texturing = self.texturing and replace(
            self.texturing, face_uv=self.texturing.face_uv[keep], face_image=self.texturing.face_image[keep]
        )
        face_colours = None if self.face_colours is None else self.face_colours[keep]
        return replace(self, faces=self.faces[keep], face_colours=face_colours, texturing=texturing)


def no_faces() -> np.ndarray:
    """The (0, 3) int32 faces of a cloud."""
    return np.zeros((0, 3), dtype=np.int32)


def cleaned(geometry: Geometry, farthest_m: float = FARTHEST_M) -> Geometry:
    """The geometry without vertices that are NaN, infinite or absurdly far from the origin, and without faces that
    touch one or use one vertex twice; for a mesh also without vertices that no face uses. A mesh that loses all its
    faces becomes a cloud.

    Raises ValueError when a face refers to a vertex that does not exist.
    """
    finite = (np.abs(geometry.vertices) < farthest_m).all(axis=1)
    faces = geometry.faces
    if len(faces) and (faces.min() < 0 or faces.max() >= len(finite)):
        raise ValueError("a face refers to a vertex that the file does not have")
    a, b, c = faces.T
    keep = finite[a] & finite[b] & finite[c] & (a != b) & (b != c) & (c != a)
    if not keep.all():
        geometry = geometry.with_faces(keep)
    used = finite
    if len(geometry.faces):
        used = np.zeros(len(finite), dtype=bool)
        used[geometry.faces.ravel()] = True
    return geometry if used.all() else _with_vertices(geometry, used)


def _with_vertices(geometry: Geometry, used: np.ndarray) -> Geometry:
    """The geometry with the vertices of the mask `used` only; every face's vertices are among them."""
    new_index = np.cumsum(used, dtype=np.int32) - 1
    colours = None if geometry.colours is None else geometry.colours[used]
    faces = new_index[geometry.faces] if len(geometry.faces) else no_faces()
    return replace(geometry, vertices=geometry.vertices[used], faces=faces, colours=colours)


def coloured(geometry: Geometry) -> Geometry:
    """The geometry with a colour for every vertex.

    Faces with colours of their own get corners of their own. A mesh without any colour is shaded by its normals, so
    that shapes show in an unlit picture. A cloud without colours keeps None: its normals are found with its discs.
    """
    if geometry.face_colours is not None:
        return _with_own_corners(geometry, geometry.face_colours)
    if geometry.colours is not None or not len(geometry.faces):
        return geometry
    normals = face_normals(geometry.vertices, geometry.faces)
    if len(geometry.faces) <= FLAT_SHADING_MAX_FACES:
        return _with_own_corners(geometry, shade(normals))
    summed = np.zeros_like(geometry.vertices)
    for corner in range(3):
        np.add.at(summed, geometry.faces[:, corner], np.abs(normals))
    return replace(geometry, colours=shade(summed))


def _with_own_corners(geometry: Geometry, face_colours: np.ndarray) -> Geometry:
    """The mesh with three vertices for each face, which carry the face's colour (M, 3)."""
    corners = geometry.faces.ravel()
    return replace(
        geometry,
        vertices=geometry.vertices[corners],
        faces=np.arange(len(corners), dtype=np.int32).reshape(-1, 3),
        colours=np.repeat(face_colours, 3, axis=0),
        face_colours=None,
    )


def face_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(M, 3) float32 normals, as long as twice the face's area."""
    a, b, c = (vertices[faces[:, corner]] for corner in range(3))
    return np.cross(b - a, c - a)


def shade(normals: np.ndarray) -> np.ndarray:
    """Grey (K, 3) uint8 for normals (K, 3) of any length: floors light, the two wall directions apart.

    Depends on the squares of the components only, so that a face turned inside out looks the same.
    """
    squares = np.square(normals.astype(np.float64))
    total = squares.sum(axis=1)
    grey = squares @ [110.0, 160.0, 215.0] / np.where(total > 0, total, 1.0)
    return np.repeat(np.where(total > 0, grey, 160.0)[:, None], 3, axis=1).round().astype(np.uint8)
