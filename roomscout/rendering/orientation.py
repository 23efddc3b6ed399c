"""Turns scans upright, and finds out which of their sides is the upper one."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np

from roomscout import UpAxis

# glTF 2.0 specification, 3.4 "Coordinate System and Units": +Y is up.
_Y_UP_SUFFIXES = (".glb", ".gltf")
# The rotation that makes each axis z. Those of y and -y turn about x, as most tools do.
_ROTATIONS: dict[UpAxis, list[list[int]]] = {
    "x": [[0, 1, 0], [0, 0, 1], [1, 0, 0]],
    "-x": [[0, 1, 0], [0, 0, -1], [-1, 0, 0]],
    "y": [[1, 0, 0], [0, 0, -1], [0, 1, 0]],
    "-y": [[1, 0, 0], [0, 0, 1], [0, -1, 0]],
    "-z": [[1, 0, 0], [0, -1, 0], [0, 0, -1]],
}


def resolved(up_axis: UpAxis, path: Path) -> UpAxis:
    """The axis of a scan file that points up, never "auto"."""
    if up_axis != "auto":
        return up_axis
    return "y" if path.suffix.lower() in _Y_UP_SUFFIXES else "z"


def turned_upright(vertices: np.ndarray, up_axis: UpAxis) -> np.ndarray:
    """Vertices (N, 3) rotated so that their `up_axis`, which is resolved, becomes z."""
    if up_axis == "z":
        return vertices
    return vertices @ np.array(_ROTATIONS[up_axis], dtype=vertices.dtype).T


# What the search for the upper side compares: see `upper_side`.
_SLAB_SHARE, _SLAB_M, _CELL_M = 0.06, 0.1, 0.25
_FLAT, _ACROSS, _ALONG = 0.8, 0.15, 0.985
_MARGIN, _LARGE_MARGIN, _LOW_SHARE, _LOWER_BY, _OPEN, _ALIGNED_BY, _HIGHER = 0.4, 1.0, 0.2, 0.2, 0.6, 0.03, 1.1
_CLOSED = 0.1
_USUAL_HEIGHT_M = 2.0, 2.8
_WEIGHT_OF_ALIGNMENT = 4.0
_MIN_INSIDE = 200


def upper_side(points: np.ndarray, normals: np.ndarray) -> tuple[int, int] | None:
    """The axis (0, 1 or 2) and sign (1 or -1) that points up in a room, by its surface; None if that is not clear.

    `points` (K, 3) metres are spread evenly over the surface, `normals` (K, 3) of any length and sign. Adds up for each
    of the six sides: how much more of the opposite side is closed, since a floor is scanned more often than a ceiling;
    how much more of what is inside is nearer to the opposite side, since furniture stands on the floor; how much of the
    surface is parallel or perpendicular to the axis, since walls and furniture are turned about the vertical; and
    minus the logarithm of the room's extent along it.

    A wrong side is worse than none. So another side than z is named only if fewer surfaces are upright with z, if the
    room becomes no higher, if z is not a side that is open above a floor, and if the furniture is clearly lower than
    with z, or the height is usual then and the side is open, also of an empty room. A narrow room may become higher if
    the height is usual then and the side is open above low furniture.
    """
    found = _evidence(points, normals)
    best, now = int(found.total.argmax()), 4
    axis, margin = best // 2, found.total[best] - np.delete(found.total, best).max()
    if margin < _MARGIN:
        return None
    if best == now:
        return 2, 1
    lower = found.low[best] - found.low[now] >= _LOWER_BY
    height, new_height = found.extent[2], found.extent[axis]
    usual = axis == 2 or height > _USUAL_HEIGHT_M[1] >= new_height >= _USUAL_HEIGHT_M[0]
    empty = not found.low.any()
    narrow = min(found.open[best], found.low[best]) > _OPEN and found.open[now] < _CLOSED
    certain = (
        (empty or found.low[best] >= _LOW_SHARE)
        and (lower or (usual and found.open[best] > _OPEN and margin >= _LARGE_MARGIN))
        and not (found.open[now] > _OPEN and found.low[now] > 0)
        and found.aligned[2] <= found.aligned[axis] + _ALIGNED_BY
        and (new_height <= _HIGHER * height or (narrow and _USUAL_HEIGHT_M[0] <= new_height <= _USUAL_HEIGHT_M[1]))
    )
    return (axis, 1 - 2 * (best % 2)) if certain else None


def name_in_file(axis: int, sign: int, up_axis: UpAxis) -> UpAxis:
    """The --up-axis that makes an axis of the scene, which was loaded with `up_axis`, point up."""
    rotation = np.eye(3) if up_axis == "z" else np.array(_ROTATIONS[up_axis])
    in_file = sign * rotation[axis]
    name = "xyz"[int(np.abs(in_file).argmax())]
    return cast(UpAxis, f"-{name}" if in_file.sum() < 0 else name)


@dataclass(frozen=True)
class _Evidence:
    """Of the sides x, -x, y, -y, z, -z: `open` and `low`, each -1 to 1, and the `total`. Of the axes: the others."""

    open: np.ndarray
    low: np.ndarray
    total: np.ndarray
    aligned: np.ndarray
    extent: np.ndarray


def _evidence(points: np.ndarray, normals: np.ndarray) -> _Evidence:
    lower, upper = np.percentile(points, [2, 98], axis=0)
    extent = np.maximum(upper - lower, 1e-6)
    near = ((points > lower - extent / 10) & (points < upper + extent / 10)).all(axis=1)
    lengths = np.linalg.norm(normals, axis=1)
    near &= lengths > 0
    points, slopes = points[near], np.abs(normals[near] / lengths[near, None])
    slab = np.maximum(_SLAB_SHARE * extent, _SLAB_M)
    at_lower, at_upper = points < lower + slab, points > upper - slab
    inside = ~(at_lower | at_upper).any(axis=1)
    open_, low, aligned = np.zeros(3), np.zeros(3), np.zeros(3)
    for axis in range(3):
        cells = np.floor(np.delete(points - lower, axis, axis=1) / _CELL_M).astype(np.int64)
        cell = cells[:, 0] * 1_000_003 + cells[:, 1]
        flat = slopes[:, axis] > _FLAT
        closed = [len(np.unique(cell[end[:, axis] & flat])) for end in (at_lower, at_upper)]
        open_[axis] = (closed[0] - closed[1]) / max(len(np.unique(cell)), 1)
        if inside.sum() >= _MIN_INSIDE:
            low[axis] = -np.sign(points[inside, axis] - (lower + upper)[axis] / 2).mean()
        aligned[axis] = ((slopes[:, axis] < _ACROSS) | (slopes[:, axis] > _ALONG)).mean() if len(slopes) else 0.0
    of_axis = _WEIGHT_OF_ALIGNMENT * (aligned - aligned.max()) - np.log2(extent / extent.min())
    both = np.stack([open_, -open_], axis=1).ravel(), np.stack([low, -low], axis=1).ravel()
    return _Evidence(*both, both[0] + both[1] + np.repeat(of_axis, 2), aligned, extent)
