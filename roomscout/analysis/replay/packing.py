"""Packs a mesh for a page: small once compressed, and fast to unpack by a script."""

import base64
import zlib
from typing import Any

import numpy as np

from roomscout.rendering.simplify import Simplified

COLUMNS = ("places", "colours", "faces")
FINEST_STEP_M = 1e-3  # places are rounded to steps of this size, or of what makes 16 bits span the mesh
MOST_STEPS = 65535
BLOCK_BITS = 5  # vertices are ordered by blocks of 2 ** BLOCK_BITS steps


def packed(mesh: Simplified) -> dict[str, Any]:
    """A mesh as columns in which neighbours in space are neighbours, each compressed by zlib, in base64. `places` has
    all x, then all y and z, as 16 bits from `lower` over `extent`, both in world metres, each as the difference from
    the vertex before. `colours` has all red, then green and blue. `faces` has the first corner as the difference from
    the face before, then both others as differences from the first; of each of the three, the lowest bytes come first,
    then the second ones, and so on. All numbers are little-endian."""
    lower = mesh.vertices.min(axis=0)
    step_m = max(FINEST_STEP_M, float((mesh.vertices.max(axis=0) - lower).max()) / MOST_STEPS)
    places = ((mesh.vertices - lower) / step_m).round().astype(np.int64)
    order = np.lexsort((places >> BLOCK_BITS).T[::-1])
    number = np.empty(len(order), dtype=np.int64)
    number[order] = np.arange(len(order))
    faces = np.sort(number[mesh.faces], axis=1)
    faces = faces[np.lexsort(faces.T[::-1])]
    steps = [np.diff(faces[:, 0], prepend=0), faces[:, 1] - faces[:, 0], faces[:, 2] - faces[:, 0]]
    in_bytes = np.stack(steps).astype("<u4").view(np.uint8).reshape(3, -1, 4)
    return {
        "lower": [round(float(value), 4) for value in lower],
        "extent": step_m * MOST_STEPS,
        "places": _compressed(np.diff(places[order], axis=0, prepend=0).T.astype("<u2")),
        "colours": _compressed(mesh.colours[order].T),
        "faces": _compressed(in_bytes.transpose(0, 2, 1)),
    }


def _compressed(values: np.ndarray) -> str:
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes())).decode("ascii")
