"""Turns scans upright."""

from pathlib import Path

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
