"""The boxes of objects in a loaded scan: their geometry, whether they are in its coordinates, and which are in view."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from roomscout.data.boxes import BOXES_FILES, BoxError, KnownBoxes, ObjectBox, boxes_file
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.scene import Scene
from roomscout.rendering.visibility import Boxes, enough_pixels, fitting, object_pixels

FITTING_SHARE = 0.75  # fewer boxes than this share that fit the surface are in other coordinates
MOST_POINTS = 50_000


def known_boxes(all_boxes: KnownBoxes, scan: Path, scene_name: str) -> tuple[ObjectBox, ...]:
    """The boxes of the objects in a scan; raises BoxError, which says where they are looked for, if there are none."""
    if boxes := all_boxes.of(scan, scene_name):
        return boxes
    raise BoxError(
        f"{scan}: no boxes of the objects in {scene_name} are known, and the run needs them: put a "
        f"{BOXES_FILES[0]} beside the scans, or write it with roomscout boxes (docs/data.md, Boxes of objects)"
    )


def nearest_first(boxes: Sequence[ObjectBox], pose: CameraPose) -> tuple[ObjectBox, ...]:
    """The boxes by the distance of their centres from a pose."""
    return tuple(sorted(boxes, key=lambda box: float(np.linalg.norm(np.array(box.center) - pose.position))))


def in_view(scene: Scene, pose: CameraPose, camera: Intrinsics, boxes: Sequence[ObjectBox]) -> tuple[ObjectBox, ...]:
    """The boxes whose objects a view shows at `enough_pixels` or more, as `object_pixels` counts, nearest first."""
    pixels = object_pixels(scene, pose, camera, geometry_of(boxes))
    enough = enough_pixels(camera.width, camera.height)
    return nearest_first([box for box, count in zip(boxes, pixels, strict=True) if count >= enough], pose)


def geometry_of(boxes: Sequence[ObjectBox]) -> Boxes:
    """The boxes as arrays."""
    return Boxes.of((box.center, box.size, box.directions) for box in boxes)


def fitting_share(scene: Scene, boxes: Sequence[ObjectBox]) -> float:
    """The share of boxes whose sides the scan's surface reaches over, see `fitting`; 1 without boxes."""
    if not boxes:
        return 1.0
    every = -(-len(scene.vertices) // MOST_POINTS)
    vertices = scene.in_scan(scene.vertices[::every])
    points = np.concatenate([scene.surface_points, vertices]).astype(np.float64)
    return float(fitting(points, geometry_of(boxes)).mean())


def require_same_frame(scene: Scene, boxes: Sequence[ObjectBox], scan: Path, scene_name: str) -> None:
    """Raise BoxError, which names the file of the boxes, unless enough of them fit the surface of the scan."""
    share = fitting_share(scene, boxes)
    if share < FITTING_SHARE:
        raise BoxError(
            f"{boxes_file(scan)}, scene {scene_name}: only {round(share * len(boxes))} of {len(boxes)} boxes fit the "
            "surface of the scan, so they are in other coordinates or another unit: give them in metres and in the "
            "coordinates of the scan as it is loaded, z up (docs/data.md, Boxes of objects)"
        )
