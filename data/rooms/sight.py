"""Where a person can stand in a room, and what can be seen from there."""

from collections.abc import Sequence

import numpy as np
from scipy import ndimage

from data.rooms.geometry import OrientedBox, points_in_polygon, segments_cross
from data.rooms.placement import FloorPlan, Placed

EYE_M = 1.6
BODY_M = 0.25  # distance of a standing person's axis from furniture and walls
CELL_M = 0.1
TALLEST_STEEPNESS = 0.7  # a level camera of 640 x 480 pixels and focal length 300 sees down by 240 / 300 = 0.8
NEAREST_M, FARTHEST_M = 0.6, 7.0
SEEN_SHARE = 0.5
MOST_STANDPOINTS = 60


def standing_points(plan: FloorPlan, boxes: Sequence[OrientedBox]) -> np.ndarray:
    """(S, 2) floor points on a 0.1 m grid where a person can stand and that can be reached from the middle."""
    low, high = plan.corners.min(axis=0), plan.corners.max(axis=0)
    xs, ys = (np.arange(a + CELL_M / 2, b, CELL_M) for a, b in zip(low, high, strict=True))
    points = np.stack(np.meshgrid(xs, ys, indexing="ij"), axis=-1).reshape(-1, 2)
    free = points_in_polygon(points, plan.corners)
    for dx, dy in ((BODY_M, 0), (-BODY_M, 0), (0, BODY_M), (0, -BODY_M)):
        free &= points_in_polygon(points + np.array((dx, dy)), plan.corners)
    for box in boxes:
        if box.bottom < EYE_M:
            free &= _plan_gap(points, box) > BODY_M
    regions, _ = ndimage.label(free.reshape(len(xs), len(ys)))
    middle = np.argmin(np.linalg.norm(points - plan.middle, axis=1))
    return points[(regions.ravel() == regions.ravel()[middle]) & free] if free[middle] else np.empty((0, 2))


def _plan_gap(points: np.ndarray, box: OrientedBox) -> np.ndarray:
    """(N,) distance in metres of (N, 2) floor points from a box's footprint."""
    local = np.abs(box.local(np.insert(points, 2, 0.0, axis=1)))[:, :2]
    return np.linalg.norm(np.maximum(local - np.array(box.size[:2]) / 2, 0), axis=1)


def seen_objects(standpoints: np.ndarray, plan: FloorPlan, items: Sequence[Placed]) -> np.ndarray:
    """(len(items),) bool: from some standpoint, at eye height and looking level, at least half of the object's
    volume has a clear line of sight. Other objects count as solid boxes, so this errs towards hidden."""
    if len(standpoints) == 0:
        return np.zeros(len(items), dtype=bool)
    pick = np.unique(np.linspace(0, len(standpoints) - 1, MOST_STANDPOINTS).astype(int))
    eyes = np.insert(standpoints[pick], 2, EYE_M, axis=1)
    walls = [plan.notch] if plan.notch else []
    seen = []
    for item in items:
        others = [o.box for i, o in enumerate(items) if o is not item and i != item.supported_by]
        seen.append(_is_seen(eyes, item, others + walls))
    return np.array(seen)


def _is_seen(eyes: np.ndarray, item: Placed, occluders: Sequence[OrientedBox]) -> bool:
    box = item.box
    offset = np.array(box.center) - eyes
    distance = np.linalg.norm(offset[:, :2], axis=1)
    good = (distance > NEAREST_M) & (distance < FARTHEST_M) & (np.abs(offset[:, 2]) < TALLEST_STEEPNESS * distance)
    facing = offset[:, :2] @ box.front < 0.0
    eyes = eyes[good & facing] if box.bottom > 0.05 and item.supported_by is None else eyes[good]
    lattice = np.stack(np.meshgrid(*[[-0.45, 0.0, 0.45]] * 3), axis=-1).reshape(-1, 3) * box.size
    targets = np.concatenate([box.plan_point(lattice[:, :2]), lattice[:, 2:] + box.center[2]], axis=1)
    blocked = np.zeros((len(eyes), len(targets)), dtype=bool)
    for other in occluders:
        blocked |= segments_cross(eyes[:, None], targets[None], other)
    return bool(len(eyes)) and bool(((~blocked).mean(axis=1) >= SEEN_SHARE).any())
