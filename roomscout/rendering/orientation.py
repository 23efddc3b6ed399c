"""Turns scans upright, and finds out which of their sides is the upper one."""

from pathlib import Path
from typing import cast

import numpy as np

from roomscout import UpAxis

_Y_UP_SUFFIXES = (".glb", ".gltf")  # glTF 2.0 specification, 3.4 "Coordinate System and Units": +Y is up
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


# See `upper_side`.
_SLAB_SHARE, _SLAB_M, _CELL_M, _FLAT = 0.06, 0.1, 0.25, 0.8
_ACROSS, _ALONG, _WEIGHT_OF_ALIGNMENT = 0.15, 0.985, 4.0
_MIN_INSIDE = 200
_MARGIN, _MARGIN_OF_OTHERS, _OPEN, _LOW = 0.4, 1.0, 0.6, 0.2
_MOST_NORMALS, _SAME_PLANE_DEG, _TILTED_DEG, _PLANE_SHARE = 2000, 10.0, 12.0, 0.2


def upper_side(points: np.ndarray, normals: np.ndarray) -> tuple[int, int] | None:
    """The axis (0, 1 or 2) and sign (1 or -1) that points up in a room, by its surface; None if that is not clear.
    `points` (K, 3) metres are spread evenly over the surface, `normals` (K, 3) of any length and sign. Adds up for each
    of the six sides: how much more of the opposite side is closed, since a floor is scanned more often than a ceiling;
    how much more of what is inside is nearer to the opposite side, since furniture stands on the floor; how much of the
    surface is parallel or perpendicular to the axis, since walls and furniture are turned about the vertical; and
    minus the logarithm of the room's extent along it. A wrong side is worse than none, so another side than z must be
    open, have a large margin, and have furniture, if there is any, on the opposite side."""
    lower, upper = np.percentile(points, [2, 98], axis=0)
    extent = np.maximum(upper - lower, 1e-6)
    lengths = np.linalg.norm(normals, axis=1)
    near = ((points > lower - extent / 10) & (points < upper + extent / 10)).all(axis=1) & (lengths > 0)
    points = points[near]
    slopes = np.abs(normals[near] / lengths[near, None])
    slab = np.maximum(_SLAB_SHARE * extent, _SLAB_M)
    at_lower = points < lower + slab
    at_upper = points > upper - slab
    inside = ~(at_lower | at_upper).any(axis=1)
    open_ = np.zeros(3)
    low = np.zeros(3)
    for axis in range(3):
        cells = np.floor(np.delete(points - lower, axis, axis=1) / _CELL_M).astype(np.int64)
        cell = cells[:, 0] * 1_000_003 + cells[:, 1]
        closed = [len(np.unique(cell[end[:, axis] & (slopes[:, axis] > _FLAT)])) for end in (at_lower, at_upper)]
        open_[axis] = (closed[0] - closed[1]) / max(len(np.unique(cell)), 1)
        if inside.sum() >= _MIN_INSIDE:
            low[axis] = -np.sign(points[inside, axis] - (lower + upper)[axis] / 2).mean()
    aligned = ((slopes < _ACROSS) | (slopes > _ALONG)).sum(axis=0) / max(len(slopes), 1)
    of_axis = _WEIGHT_OF_ALIGNMENT * (aligned - aligned.max()) - np.log2(extent / extent.min())
    totals = np.concatenate([of_axis + open_ + low, of_axis - open_ - low])
    best = int(totals.argmax())
    axis = best % 3
    sign = 1 if best < 3 else -1
    margin = totals[best] - np.delete(totals, best).max()
    if (axis, sign) == (2, 1):
        return (2, 1) if margin >= _MARGIN else None
    furnished = sign * low[axis] >= _LOW or not low.any()
    return (axis, sign) if margin >= _MARGIN_OF_OTHERS and sign * open_[axis] > _OPEN and furnished else None


def tilt_deg(normals: np.ndarray) -> float | None:
    """How many degrees the largest plane of a surface, by `normals` (K, 3) of any length and sign, is off the nearest
    axis; None if small, if level surface is larger, or if z is perpendicular, as to a turned wall."""
    lengths = np.linalg.norm(normals, axis=1)
    units = normals[lengths > 0] / lengths[lengths > 0, None]
    units = units[:: 1 + len(units) // _MOST_NORMALS]
    if not len(units):
        return None
    parallel = (np.abs(units @ units.T) > np.cos(np.radians(_SAME_PLANE_DEG))).mean(axis=1)
    largest = int(parallel.argmax())
    off = np.degrees(np.arccos(np.clip(np.abs(units[largest]), 0, 1)))  # of each axis
    level = (np.abs(units[:, 2]) > np.cos(np.radians(_SAME_PLANE_DEG))).mean()
    askew = off.min() > _TILTED_DEG and off[2] < 90 - _TILTED_DEG and parallel[largest] > _PLANE_SHARE
    return float(off.min()) if askew and level < parallel[largest] else None


def name_in_file(axis: int, sign: int, up_axis: UpAxis) -> UpAxis:
    """The up axis of the file that makes an axis of the scene, which was loaded with `up_axis`, point up."""
    rotation = np.eye(3) if up_axis == "z" else np.array(_ROTATIONS[up_axis])
    in_file = sign * rotation[axis]
    minus = "-" if in_file.sum() < 0 else ""
    return cast(UpAxis, minus + "xyz"[int(np.abs(in_file).argmax())])
