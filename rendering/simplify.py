"""Simplifies scans for viewers: fewer triangles, one colour per vertex, no strays far outside the room."""

from dataclasses import dataclass

import numpy as np

from roomscout.rendering.renderers.raycast import sample
from roomscout.rendering.scene import Scene, Surface

FINEST_CELL_M = 1e-3
STRAY_EXTENTS = 1.0
"""Geometry further outside the room's bounds than this many of its longest sides is left out."""


@dataclass(frozen=True, eq=False)
class Simplified:
    """A scan for a viewer, world metres.

    `vertices` (N, 3) float32; `faces` (M, 3) int32, M = 0 for a cloud; `colours` (N, 3) uint8. `cell_m` is the side of
    the grid cells that were merged into one vertex each, 0 if none were.
    """

    vertices: np.ndarray
    faces: np.ndarray
    colours: np.ndarray
    cell_m: float


def simplified(scene: Scene, most: int) -> Simplified:
    """The scan with at most `most` triangles, or points of a cloud; textures become vertex colours.

    Clusters vertices in the cells of a grid (Rossignac and Borrel, "Multi-resolution 3D approximations for rendering
    complex scenes", 1993), since that keeps colours as fine as shapes; a cluster has the mean place and colour.
    """
    reach = STRAY_EXTENTS * max(scene.bounds.extent)
    near = ((scene.vertices > scene.bounds.lower - reach) & (scene.vertices < scene.bounds.upper + reach)).all(axis=1)
    if not len(scene.faces):
        mesh = Simplified(scene.vertices[near], scene.faces, scene.colours[near], 0.0)
        cell_m = FINEST_CELL_M
    else:
        mesh = _kept(_vertex_coloured(scene.surface), near[scene.faces].all(axis=1))
        # Each cell that the surface crosses becomes one vertex, and a mesh has two faces per vertex.
        cell_m = max(FINEST_CELL_M, (1.2 * _area(mesh) / most) ** 0.5)
    found = mesh
    while (count := len(found.faces) or len(found.vertices)) > most:
        # A surface's number of cells falls with the square of their size.
        cell_m *= max(1.1, (count / most) ** 0.5) if found.cell_m else 1
        found = _clustered(mesh, cell_m)
    return found


def _vertex_coloured(surface: Surface) -> Simplified:
    """The surface with colours at its vertices alone; a textured one gets three vertices per face."""
    texturing = surface.texturing
    if texturing is None:
        return Simplified(surface.vertices, surface.faces, surface.colours, 0.0)
    corners = surface.faces.ravel()
    colours = surface.colours[corners]
    image_of = np.repeat(texturing.face_image, 3)
    for index, image in enumerate(texturing.images):
        here = image_of == index
        colours[here] = sample(image, texturing.face_uv.reshape(-1, 2)[here]) + 0.5
    faces = np.arange(len(corners), dtype=np.int32).reshape(-1, 3)
    return Simplified(surface.vertices[corners], faces, colours, 0.0)


def _kept(mesh: Simplified, faces: np.ndarray) -> Simplified:
    """The faces of a mask, and their vertices."""
    used, index = np.unique(mesh.faces[faces], return_inverse=True)
    return Simplified(mesh.vertices[used], index.reshape(-1, 3).astype(np.int32), mesh.colours[used], mesh.cell_m)


def _area(mesh: Simplified) -> float:
    a, b, c = (mesh.vertices[mesh.faces[:, corner]] for corner in range(3))
    return float(np.linalg.norm(np.cross(b - a, c - a), axis=1).sum(dtype=np.float64)) / 2


def _clustered(mesh: Simplified, cell_m: float) -> Simplified:
    """The mesh with one vertex per cell; faces within two cells and repeated faces disappear."""
    cells = ((mesh.vertices - mesh.vertices.min(axis=0)) / cell_m).astype(np.int64)
    sizes = cells.max(axis=0) + 1
    keys = (cells[:, 0] * sizes[1] + cells[:, 1]) * sizes[2] + cells[:, 2]
    cluster, members = np.unique(keys, return_inverse=True, return_counts=True)[1:]
    vertices, colours = (
        np.stack([np.bincount(cluster, values[:, axis]) / members for axis in range(3)], axis=1)
        for values in (mesh.vertices, mesh.colours)
    )
    faces = cluster[mesh.faces]
    a, b, c = faces.T
    faces = faces[(a != b) & (b != c) & (c != a)]
    faces = faces[np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1]] if len(faces) else faces
    return Simplified(vertices.astype(np.float32), faces.astype(np.int32), (colours + 0.5).astype(np.uint8), cell_m)
