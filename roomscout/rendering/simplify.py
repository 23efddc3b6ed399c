"""Simplifies scans for viewers: fewer triangles, one colour per vertex, nothing far outside the room."""

from dataclasses import dataclass, replace

import numpy as np

from roomscout.rendering.discs import CORNERS
from roomscout.rendering.geometry import cell_keys, compact, face_normals
from roomscout.rendering.renderers.raycast import sample
from roomscout.rendering.scene import Scene, Surface

FINEST_CELL_M = 1e-3
STRAY_EXTENTS = 1.0  # geometry further outside the room's bounds than this many of its longest sides is left out
FACES_PER_CELL = 2.4  # per cell that the surface crosses: two per vertex, and some cells are crossed twice
ENOUGH_FILLED = 0.85  # the search for a cell size ends at this share of the faces that are allowed, or after ATTEMPTS
ATTEMPTS = 4
MARGIN = 1.02
POINT_CELLS = 2.0  # the distance between the mean places in two cells that share a side, at most, in cells
PIECES_PER_FACE = 4  # a textured mesh is split into at most this many pieces for each face that is wanted


@dataclass(frozen=True, eq=False)
class Simplified:
    """A scan for a viewer."""

    vertices: np.ndarray  # (N, 3) float32 metres, in the scene's own coordinates
    faces: np.ndarray  # (M, 3) int32; M = 0 for a cloud
    colours: np.ndarray  # (N, 3) uint8 of the vertices
    cell_m: float = 0.0  # the side of the grid cells whose vertices were merged; 0 if none were
    point_m: float = 0.0  # the size at which the points of a cloud close its surfaces; 0 for a mesh

    @property
    def size(self) -> int:
        """The number of triangles, or of points of a cloud."""
        return len(self.faces) or len(self.vertices)


def simplified(scene: Scene, most: int) -> Simplified:
    """The scan with at most `most` triangles, or points of a cloud; textures become vertex colours. Clusters vertices
    in the cells of a grid (Rossignac and Borrel, "Multi-resolution 3D approximations for rendering complex scenes",
    1993), since that keeps colours as fine as shapes. A cluster has the mean place and colour."""
    reach = STRAY_EXTENTS * max(scene.bounds.extent)
    lower = scene.own(scene.bounds.lower) - reach
    upper = scene.own(scene.bounds.upper) + reach
    whole = _vertex_coloured(scene.surface, most) if len(scene.faces) else _cloud(scene)
    near = np.all((whole.vertices > lower) & (whole.vertices < upper), axis=1)
    if len(whole.faces):
        faces = whole.faces[near[whole.faces].all(axis=1)]
        faces, vertices, colours = compact(faces, whole.vertices, whole.colours)
        whole = replace(whole, vertices=vertices, faces=faces, colours=colours)
    else:
        whole = replace(whole, vertices=whole.vertices[near], colours=whole.colours[near])
    return whole if whole.size <= most else _finest(whole, most)


def _finest(whole: Simplified, most: int) -> Simplified:
    """The scan in about the smallest cells that leave at most `most` triangles or points."""
    area = _area(whole.vertices, whole.faces) if len(whole.faces) else len(whole.vertices) * whole.point_m**2
    cell_m = max(FINEST_CELL_M, (FACES_PER_CELL * area / most) ** 0.5)
    fitting: list[Simplified] = []
    attempts = 0
    while not fitting or attempts < ATTEMPTS:
        clustered = _clustered(whole, cell_m)
        filled = clustered.size / most
        if filled <= 1:
            fitting.append(clustered)
        if ENOUGH_FILLED < filled <= 1:
            break
        cell_m = max(FINEST_CELL_M, cell_m * MARGIN * filled**0.5)  # the number of cells falls with their size squared
        attempts += 1
    return max(fitting, key=lambda clustered: clustered.size)


def _cloud(scene: Scene) -> Simplified:
    rims = scene.surface.vertices[:: CORNERS + 2]
    radius_m = float(np.median(np.linalg.norm(rims - scene.vertices, axis=1)))
    return Simplified(scene.vertices, scene.faces, scene.surface.colours[CORNERS :: CORNERS + 2], point_m=radius_m)


def _vertex_coloured(surface: Surface, most: int) -> Simplified:
    """The surface with colours at its vertices alone. A textured one is first split into pieces of about equal size, at
    most a few times `most`, since a wall may be two faces with one image."""
    texturing = surface.texturing
    if texturing is None:
        return Simplified(surface.vertices, surface.faces, surface.colours)
    side_m = (2 * _area(surface.vertices, surface.faces) / most) ** 0.5
    corners = surface.vertices[surface.faces]
    edges_m = np.linalg.norm(corners - corners[:, [1, 2, 0]], axis=2).max(axis=1)
    side_m = max(side_m, FINEST_CELL_M)
    splits = np.ceil(edges_m / side_m).clip(1)
    while splits.dot(splits) > PIECES_PER_FACE * most + len(corners):
        side_m *= 1.2
        splits = np.ceil(edges_m / side_m).clip(1)
    parts, count = [], 0
    for split in np.unique(splits):
        chosen = np.flatnonzero(splits == split)
        weights, pieces = _split_triangle(int(split))
        vertices = np.einsum("wc,fcx->fwx", weights, corners[chosen])
        colours = np.einsum("wc,fcx->fwx", weights, surface.colours[surface.faces[chosen]].astype(np.float32))
        uv = np.einsum("wc,fcx->fwx", weights, texturing.face_uv[chosen])
        images = texturing.face_image[chosen]
        for index in np.unique(images[images >= 0]):
            textured = images == index
            texels = sample(texturing.images[index], uv[textured].reshape(-1, 2)).reshape(-1, len(weights), 3)
            colours[textured] *= texels / 255
        offsets = count + np.arange(len(chosen))[:, None, None] * len(weights)
        parts.append((vertices.reshape(-1, 3), (pieces + offsets).reshape(-1, 3), colours.reshape(-1, 3)))
        count += len(parts[-1][0])
    vertices, faces, colours = map(np.concatenate, zip(*parts, strict=True))
    return Simplified(vertices.astype(np.float32), faces.astype(np.int32), (colours + 0.5).astype(np.uint8))


def _split_triangle(split: int) -> tuple[np.ndarray, np.ndarray]:
    """The barycentric weights (K, 3) and the pieces (split ** 2, 3) of a triangle with `split` pieces per edge."""
    rows = [(row, column) for row in range(split + 1) for column in range(split + 1 - row)]
    number = {place: index for index, place in enumerate(rows)}
    pieces = []
    for row, column in rows:
        if row + column < split:
            pieces.append((number[row, column], number[row, column + 1], number[row + 1, column]))
        if row + column < split - 1:
            pieces.append((number[row, column + 1], number[row + 1, column + 1], number[row + 1, column]))
    weights = np.array([(split - row - column, column, row) for row, column in rows], dtype=np.float32) / split
    return weights, np.array(pieces, dtype=np.int64)


def _area(vertices: np.ndarray, faces: np.ndarray) -> float:
    """Square metres."""
    return float(np.linalg.norm(face_normals(vertices, faces), axis=1).sum(dtype=np.float64)) / 2


def _clustered(whole: Simplified, cell_m: float) -> Simplified:
    """The scan with one vertex per cell; faces within two cells and repeated faces disappear."""
    keys = cell_keys(whole.vertices - whole.vertices.min(axis=0), cell_m)
    cluster, members = np.unique(keys, return_inverse=True, return_counts=True)[1:]
    columns = [*whole.vertices.T, *whole.colours.T]
    means = np.stack([np.bincount(cluster, column) / members for column in columns], axis=1)
    faces = cluster[whole.faces]
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    faces = np.sort(faces, axis=1)  # a viewer shows both sides, so that the order of corners does not matter
    faces = faces[np.lexsort(faces.T)]
    faces = faces[(np.diff(faces, axis=0, prepend=-1) != 0).any(axis=1)]
    vertices = np.ascontiguousarray(means[:, :3], dtype=np.float32)
    point_m = whole.point_m and max(whole.point_m, POINT_CELLS * cell_m)
    return Simplified(vertices, faces.astype(np.int32), (means[:, 3:] + 0.5).astype(np.uint8), cell_m, point_m)
