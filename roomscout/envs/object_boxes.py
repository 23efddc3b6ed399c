"""The boxes of objects in a loaded scan: their geometry, and whether they are in the scan's coordinates."""

from collections.abc import Sequence

import numpy as np

from roomscout.data.boxes import BoxError, ObjectBox
from roomscout.rendering.scene import Scene
from roomscout.rendering.visibility import Boxes, fitting

FITTING_SHARE = 0.75
"""Fewer boxes than this share that fit the surface are in other coordinates."""
MOST_POINTS = 50_000


def geometry_of(boxes: Sequence[ObjectBox]) -> Boxes:
    """The boxes as arrays."""
    return Boxes.of((box.center, box.size, box.directions) for box in boxes)


def fitting_share(scene: Scene, boxes: Sequence[ObjectBox]) -> float:
    """The share of boxes whose sides the scan's surface reaches over, see `fitting`; 1 without boxes."""
    if not boxes:
        return 1.0
    every = -(-len(scene.vertices) // MOST_POINTS)
    points = np.concatenate([scene.surface_points, scene.vertices[::every]]).astype(np.float64)
    return float(fitting(points, geometry_of(boxes)).mean())


def require_same_frame(scene: Scene, boxes: Sequence[ObjectBox], place: str) -> None:
    """Raise BoxError, which names the `place` of the boxes, unless enough of them fit the scan's surface."""
    share = fitting_share(scene, boxes)
    if share < FITTING_SHARE:
        raise BoxError(
            f"{place}: only {round(share * len(boxes))} of {len(boxes)} boxes fit the surface of the scan, so they are "
            "in other coordinates or another unit: give them in metres and in the coordinates of the scan as it is "
            "loaded, z up (docs/data.md, Boxes of objects)"
        )
