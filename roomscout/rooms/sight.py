"""Where a person can stand in a room, and which objects are visible from there."""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from roomscout.rooms.geometry import OrientedBox, points_in_polygon, segments_cross
from roomscout.rooms.placement import FloorPlan, Placed

EYE_M = 1.6
BODY_M = 0.25  # distance of a standing person's axis from furniture and walls
CELL_M = 0.1
MAX_SLOPE = 0.7  # a level camera of 640 x 480 pixels and focal length 300 sees slopes up to 240 / 300 = 0.8
MIN_DISTANCE_M, MAX_DISTANCE_M = 0.6, 7.0
MIN_VISIBLE_SHARE = 0.5
MAX_STANDPOINTS = 60
GLANCES = 6  # parts of the standpoints that are tried one after another, since most objects are visible from the first


def standing_points(plan: FloorPlan, boxes: Sequence[OrientedBox]) -> np.ndarray:
    """(S, 2) points of a 0.1 m grid where a person can stand and that are reachable from the middle of the room."""
    low, high = plan.corners.min(axis=0), plan.corners.max(axis=0)
    xs, ys = (np.arange(a + CELL_M / 2, b, CELL_M) for a, b in zip(low, high, strict=True))
    points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    free = points_in_polygon(points, plan.corners)
    for dx, dy in ((BODY_M, 0), (-BODY_M, 0), (0, BODY_M), (0, -BODY_M)):
        free &= points_in_polygon(points + np.array((dx, dy)), plan.corners)
    for box in boxes:
        if box.bottom < EYE_M:
            local = np.abs(box.local(np.insert(points, 2, 0.0, axis=1)))[:, :2]
            free &= np.linalg.norm(np.maximum(local - np.array(box.size[:2]) / 2, 0), axis=1) > BODY_M
    regions, _ = ndimage.label(free.reshape(len(xs), len(ys)))
    middle = np.argmin(np.linalg.norm(points - plan.middle, axis=1))
    return points[(regions.ravel() == regions.ravel()[middle]) & free] if free[middle] else np.empty((0, 2))


def visible_items(standpoints: np.ndarray, plan: FloorPlan, items: Sequence[Placed]) -> np.ndarray:
    """(N,) bool: whether a level view at eye height from some standpoint shows at least half of each item's volume.

    Treats the other items as solid boxes, so it may report a visible item as hidden.
    """
    if len(standpoints) == 0:
        return np.zeros(len(items), dtype=bool)
    pick = np.unique(np.linspace(0, len(standpoints) - 1, MAX_STANDPOINTS).astype(int))
    eyes = np.insert(standpoints[pick], 2, EYE_M, axis=1)
    visible = []
    for item in items:
        others = [o.box for i, o in enumerate(items) if o is not item and i != item.supported_by]
        visible.append(_is_visible(eyes, item, others + list(plan.notches)))
    return np.array(visible)


def _is_visible(eyes: np.ndarray, item: Placed, occluders: Sequence[OrientedBox]) -> bool:
    box = item.box
    offset = np.array(box.center) - eyes
    distance = np.linalg.norm(offset[:, :2], axis=1)
    in_range = (distance > MIN_DISTANCE_M) & (distance < MAX_DISTANCE_M)
    in_range &= np.abs(offset[:, 2]) < MAX_SLOPE * distance
    if box.bottom > 0.05 and item.supported_by is None:  # hangs on a wall, so only its front is visible
        in_range &= offset[:, :2] @ box.front < 0.0
    eyes = eyes[in_range]
    lattice = np.stack(np.meshgrid(*[[-0.45, 0.0, 0.45]] * 3), axis=-1).reshape(-1, 3) * box.size
    targets = np.concatenate([box.plan_point(lattice[:, :2]), lattice[:, 2:] + box.center[2]], axis=1)
    return any(_shows(eyes[first::GLANCES], targets, occluders) for first in range(min(GLANCES, len(eyes))))


def _shows(eyes: np.ndarray, targets: np.ndarray, occluders: Sequence[OrientedBox]) -> bool:
    """Whether any of `eyes` (E, 3), at least one, sees enough of `targets` (T, 3)."""
    blocked = np.zeros((len(eyes), len(targets)), dtype=bool)
    for other in occluders:
        blocked |= segments_cross(eyes[:, None], targets[None], other)
    return bool(((~blocked).mean(axis=1) >= MIN_VISIBLE_SHARE).any())
