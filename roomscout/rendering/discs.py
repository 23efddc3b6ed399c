"""Converts a point cloud into a mesh of small discs, so that rendering, depth and collisions need only meshes."""

import logging

import numpy as np

from roomscout.rendering.geometry import cell_keys, shade, spokes, wide_box
from roomscout.rendering.open3d_import import import_open3d

_log = logging.getLogger(__name__)

CLOUD_MAX_POINTS = 500_000  # each becomes 8 vertices and 12 faces: 6 million faces at this limit
# A disc reaches to its point's k-th neighbour. Discs around randomly scattered points then cover each spot k times on
# average and leave a fraction exp(-k) of the surface open. 10 leaves 1 in 20,000, with a margin for noise.
COVERING_NEIGHBOURS = 10
NORMAL_NEIGHBOURS = 20
MAX_RELATIVE_RADIUS = 3.0  # limits a radius to this many medians, so that an isolated point does not become a wall
LONE_POINT_RADIUS_M = 0.05
CORNERS = 6
# Height of a disc's centre above its rim, in radii. Where discs of one surface overlap, the z-buffer then shows the
# colour of the nearest point, identically in every renderer; flat discs would z-fight.
CONE_HEIGHT = 0.12


def disc_mesh(points: np.ndarray, colours: np.ndarray | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vertices (K, 3) float32, faces (L, 3) int32 and colours (K, 3) uint8 of a flat double cone around each of
    `points` (N, 3) float32, metres; shaded by their normals if `colours` (N, 3) is None."""
    o3d = import_open3d()
    cloud = o3d.geometry.PointCloud(o3d.utility.Vector3dVector(points.astype(np.float64)))
    cloud.estimate_normals(o3d.geometry.KDTreeSearchParamKNN(NORMAL_NEIGHBOURS))
    normals = np.asarray(cloud.normals).astype(np.float32)  # unit vectors, whose signs are arbitrary
    colours = shade(normals) if colours is None else colours
    radii, rim_colours = _radii_and_rim_colours(points, colours)
    vertices = np.empty((len(points), CORNERS + 2, 3), dtype=np.float32)
    vertices[:, :CORNERS] = points[:, None] + radii[:, None, None] * spokes(normals, CORNERS)
    tip = CONE_HEIGHT * radii[:, None] * normals
    vertices[:, CORNERS] = points + tip
    vertices[:, CORNERS + 1] = points - tip
    rim = [(corner, (corner + 1) % CORNERS, apex) for apex in (CORNERS, CORNERS + 1) for corner in range(CORNERS)]
    first = np.arange(len(points), dtype=np.int32) * (CORNERS + 2)
    faces = first[:, None, None] + np.array(rim, dtype=np.int32)
    corner_colours = np.repeat(np.stack([rim_colours, colours], axis=1), [CORNERS, 2], axis=1)
    return vertices.reshape(-1, 3), faces.reshape(-1, 3), corner_colours.reshape(-1, 3)


def _radii_and_rim_colours(points: np.ndarray, colours: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Radii (N,) float32 metres, the median-filtered distances to the k-th neighbours, and rim colours (N, 3) uint8,
    the neighbours' mean, so that colours blend instead of forming tiles."""
    from scipy.spatial import cKDTree

    if len(points) < 2:
        return np.full(len(points), LONE_POINT_RADIUS_M, dtype=np.float32), colours
    count = min(COVERING_NEIGHBOURS, len(points) - 1)
    distances, neighbours = cKDTree(points).query(points, k=count + 1, workers=-1)
    radii = np.median(distances[neighbours, count], axis=1)
    typical = np.median(radii)
    radii = radii.clip(typical / MAX_RELATIVE_RADIUS, typical * MAX_RELATIVE_RADIUS).astype(np.float32)
    return radii, colours[neighbours].mean(axis=1).round().astype(np.uint8)


def downsampled(name: str, points: np.ndarray, colours: np.ndarray | None) -> tuple[np.ndarray, np.ndarray | None]:
    """Points (K, 3) and colours (K, 3), one per cell of 1 mm, or coarser (logged) for at most CLOUD_MAX_POINTS."""
    lower, upper = wide_box(points)
    # At most a million cells along each axis, so that a cell's index fits into an int64.
    cell_m = max(1e-3, float(max(upper - lower)) / 1e6)
    kept = _one_per_cell(points, cell_m)
    while len(kept) > CLOUD_MAX_POINTS:
        # Points lie on surfaces, so their number falls with the square of the cell size.
        cell_m *= 1.05 * (len(kept) / CLOUD_MAX_POINTS) ** 0.5
        kept = kept[_one_per_cell(points[kept], cell_m)]
        if len(kept) <= CLOUD_MAX_POINTS:
            _log.warning(
                "%s: downsampled %d points to %d, one per %.1f mm", name, len(points), len(kept), 1000 * cell_m
            )
    return points[kept], None if colours is None else colours[kept]


def _one_per_cell(points: np.ndarray, cell_m: float) -> np.ndarray:
    # Clip outliers to the wide box, so that cell indices fit into an int64.
    lower, upper = wide_box(points)
    return np.sort(np.unique(cell_keys(points.clip(lower, upper) - lower, cell_m), return_index=True)[1])
