"""Geometry as read from a file, and the clean-up and colouring that precede building a scene."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from roomscout.base.errors import Refusal

if TYPE_CHECKING:
    from roomscout.rendering.splats import Splats

MAX_COORDINATE_M = 1e6  # larger ones are dropped like NaN: float32 cannot resolve centimetres there
BOUNDS_PERCENTILES = (2.0, 98.0)
# A vertex this many robust extents away from most others is an outlier, and so is any face that uses it. The limit is
# generous: if walls are two triangles each, most of a room's vertices may belong to a lamp. Closer outliers are
# down-weighted, because they stretch faces into slivers.
OUTLIER_EXTENTS = 10.0
FLAT_SHADING_MAX_FACES = 1_000_000  # larger meshes get smooth shading; flat shading needs three vertices per face
POLYGONS_AT_A_TIME = 50_000
MOST_CORNERS = 10_000  # of a polygon; the outlines of floors have fewer
NO_FACES = np.zeros((0, 3), dtype=np.int32)  # of a cloud


class SceneError(Refusal):
    """A scan cannot be read. The message is one sentence that names the file and how to fix it."""


@dataclass(frozen=True, eq=False)
class Texturing:
    """Texture images and the UV coordinates of each face. `face_uv` (M, 3, 2) float32: per face and corner, u to the
    right and v *up* in units of the image, repeating outside 0..1. `face_image` (M,) int32: index into `images`, or -1
    for a face with vertex colours alone. `images`: (h, w, 3) uint8 RGB each."""

    face_uv: np.ndarray
    face_image: np.ndarray
    images: tuple[np.ndarray, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return self.face_uv.nbytes + self.face_image.nbytes + sum(image.nbytes for image in self.images)


@dataclass(frozen=True, eq=False)
class Geometry:
    """A triangle mesh, or a point cloud."""

    vertices: np.ndarray  # (N, 3) float metres
    faces: np.ndarray  # (M, 3) int32; M = 0 for a cloud
    colours: np.ndarray | None = None  # (N, 3) uint8 of the vertices
    face_colours: np.ndarray | None = None  # (M, 3) uint8, which override `colours`
    texturing: Texturing | None = None  # its images are multiplied by `colours`
    splats: "Splats | None" = None  # of a file that has Gaussian splats; `vertices` are the centres of all its rows


def triangulated(polygons: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The triangles of polygons (P, K), which are indices of `points` (N, 3): places in a polygon, (M, 3), and the
    polygon of each, (M,). Convex ones become fans; others are cut in their plane by the ears, also with holes that a
    bridge leads to. Raises ValueError for more than MOST_CORNERS."""
    size = polygons.shape[1]
    if size > MOST_CORNERS:
        raise ValueError(f"a face has {size:,} corners, more than {MOST_CORNERS:,}")
    if len(polygons) > POLYGONS_AT_A_TIME:  # what follows takes a kilobyte each
        firsts = range(0, len(polygons), POLYGONS_AT_A_TIME)
        blocks = [triangulated(polygons[first : first + POLYGONS_AT_A_TIME], points) for first in firsts]
        rows_of = [rows + first for first, (_, rows) in zip(firsts, blocks, strict=True)]
        return np.concatenate([places for places, _ in blocks]), np.concatenate(rows_of)
    fan = np.array([[0, corner, corner + 1] for corner in range(1, size - 1)], dtype=np.int64).reshape(-1, 3)
    places = np.tile(fan, (len(polygons), 1))
    rows = np.repeat(np.arange(len(polygons)), len(fan))
    if size < 4:
        return places, rows
    corners = np.nan_to_num(points[polygons].astype(np.float64))
    ahead = np.roll(corners, -1, axis=1) - corners
    turns = np.cross(np.roll(ahead, 1, axis=1), ahead)
    from_first = corners - corners[:, :1]
    normals = np.cross(from_first, np.roll(from_first, -1, axis=1)).sum(axis=1)  # by Newell's method
    lengths = np.linalg.norm(turns, axis=2) * np.linalg.norm(normals, axis=1)[:, None]
    bent = np.flatnonzero(((turns * normals[:, None]).sum(axis=2) < -1e-6 * lengths).any(axis=1))
    if not len(bent):
        return places, rows
    import mapbox_earcut

    straight = ~np.isin(rows, bent)
    triangles = [places[straight]]
    of = [rows[straight]]
    for row in bent:
        right = np.cross(normals[row], np.eye(3)[np.abs(normals[row]).argmin()])
        up = np.cross(normals[row], right)  # in the plane seen from above, the polygon runs counter-clockwise
        across = np.stack([right / np.linalg.norm(right), up / np.linalg.norm(up)], axis=1)
        flat = np.ascontiguousarray(from_first[row] @ across)
        ears = mapbox_earcut.triangulate_float64(flat, np.array([size], dtype=np.uint32)).reshape(-1, 3)
        triangles.append(ears.astype(np.int64))
        of.append(np.full(len(ears), row))
    order = np.argsort(np.concatenate(of), kind="stable")
    return np.concatenate(triangles)[order], np.concatenate(of)[order]


def cleaned(geometry: Geometry, max_coordinate_m: float = MAX_COORDINATE_M) -> Geometry:
    """Drops vertices that are not finite, at least `max_coordinate_m` away or in no face of a mesh, and faces that use
    such or repeat one; without faces left it is a cloud. Raises ValueError for a vertex that does not exist."""
    finite = (np.abs(geometry.vertices) < max_coordinate_m).all(axis=1)
    faces = geometry.faces
    if len(faces) and (faces.min() < 0 or faces.max() >= len(finite)):
        raise ValueError("a face refers to a vertex that does not exist")
    a, b, c = faces.T
    keep = finite[a] & finite[b] & finite[c] & (a != b) & (b != c) & (c != a)
    if not keep.all():
        if texturing := geometry.texturing:
            texturing = replace(texturing, face_uv=texturing.face_uv[keep], face_image=texturing.face_image[keep])
        face_colours = None if geometry.face_colours is None else geometry.face_colours[keep]
        geometry = replace(geometry, faces=faces[keep], face_colours=face_colours, texturing=texturing)
    if len(geometry.faces):
        faces, vertices, colours = compact(geometry.faces, geometry.vertices, geometry.colours)
        return replace(geometry, vertices=vertices, faces=faces, colours=colours)
    if finite.all():
        return geometry
    colours = None if geometry.colours is None else geometry.colours[finite]
    return replace(geometry, vertices=geometry.vertices[finite], faces=NO_FACES, colours=colours)


def compact(faces: np.ndarray, vertices: np.ndarray, *columns: np.ndarray | None) -> tuple[Any, ...]:
    """Faces (M, 3) of the vertices that they use, and the rows of these in `vertices` (N, 3) and `columns` (N, ...)."""
    if faces.size < len(vertices):  # one of many parts that share the vertices of all
        used, corners = np.unique(faces, return_inverse=True)
        corners = corners.reshape(faces.shape).astype(np.int32)
    else:
        used = np.zeros(len(vertices), dtype=bool)
        used[faces] = True
        if used.all():
            return faces, vertices, *columns
        corners = (np.cumsum(used, dtype=np.int32) - 1)[faces]
    return corners, vertices[used], *(None if column is None else column[used] for column in columns)


def coloured(geometry: Geometry) -> Geometry:
    """Gives every vertex of a mesh the colour of its face, or a shade of its normal, so that shapes are visible unlit.
    If faces have colours, each face gets its own three vertices. A cloud without colours keeps None."""
    if geometry.face_colours is not None:
        return _with_unshared_vertices(geometry, geometry.face_colours)
    if geometry.colours is not None or not len(geometry.faces):
        return geometry
    normals = face_normals(geometry.vertices, geometry.faces)
    if len(geometry.faces) <= FLAT_SHADING_MAX_FACES:
        return _with_unshared_vertices(geometry, shade(normals))
    summed = np.zeros_like(geometry.vertices)
    for corner in range(3):
        np.add.at(summed, geometry.faces[:, corner], np.abs(normals))
    return replace(geometry, colours=shade(summed))


def _with_unshared_vertices(geometry: Geometry, face_colours: np.ndarray) -> Geometry:
    """The mesh with three vertices per face, in the face's colour (M, 3)."""
    corners = geometry.faces.ravel()
    return replace(
        geometry,
        vertices=geometry.vertices[corners],
        faces=np.arange(len(corners), dtype=np.int32).reshape(-1, 3),
        colours=np.repeat(face_colours, 3, axis=0),
        face_colours=None,
    )


def face_normals(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """(M, 3) float32 normals, whose length is twice the face's area."""
    first = vertices[faces[:, 0]]
    return np.cross(vertices[faces[:, 1]] - first, vertices[faces[:, 2]] - first)


def spokes(axes: np.ndarray, count: int) -> np.ndarray:
    """(N, count, 3) unit vectors at equal angles around each of the unit vectors `axes` (N, 3)."""
    across = np.cross(axes, np.eye(3, dtype=axes.dtype)[np.abs(axes).argmin(axis=1)])  # by any vector not parallel
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    along = np.cross(axes, across)
    angles = np.arange(count, dtype=axes.dtype)[:, None] * (2 * np.pi / count)
    return np.cos(angles) * across[:, None] + np.sin(angles) * along[:, None]


def shade(normals: np.ndarray) -> np.ndarray:
    """Grey (K, 3) uint8 for normals (K, 3) of any length and sign: light floors, and two distinct greys for walls."""
    squares = np.square(normals.astype(np.float64))
    total = squares.sum(axis=1)
    grey = squares @ [110.0, 160.0, 215.0] / np.where(total > 0, total, 1.0)
    return np.repeat(np.where(total > 0, grey, 160.0)[:, None], 3, axis=1).round().astype(np.uint8)


def cell_keys(offsets: np.ndarray, cell_m: float) -> np.ndarray:
    """(N,) int64: one number for all `offsets` (N, 3) from a grid's corner that are in the same cell."""
    cells = (offsets / cell_m).astype(np.int64)
    sizes = cells.max(axis=0) + 1
    return (cells[:, 0] * sizes[1] + cells[:, 1]) * sizes[2] + cells[:, 2]


def wide_box(vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner, (3,) each, of a generous box around the scan; vertices outside it are outliers."""
    lower, upper = np.percentile(vertices, BOUNDS_PERCENTILES, axis=0)
    margin = OUTLIER_EXTENTS * max(upper - lower)
    return lower - margin, upper + margin
