"""Which objects a view shows, and at how many of its pixels: the depth of the scan against the boxes of its objects.

A pixel belongs to an object if the surface that it shows lies in the object's box, or within a margin of it beside
surface that does.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.base import NEAR_M
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene

# Surfaces this far outside a box still belong to it: scans are noisy. But only if at least one in WITHIN of these
# pixels shows surface inside the box, to EXACT_M: else they show a thin wall in front of it, or what it stands on.
MARGIN_M = 0.01
EXACT_M = 0.001
WITHIN = 10
# Surfaces this close to the floor belong to no box higher than LOW_M: the floor below a table is not the table.
FLOOR_M = 0.03
LOW_M = 0.1
LONGEST_PX = 1280  # of the depth image; of a larger view, every second, third, ... pixel is sampled
SMALL_M = 0.2  # `fitting` asks nothing of smaller sides
NOTHING = -1
ENOUGH_SHARE = 0.001  # of a view that an object which is seen well covers: 307 pixels of 640 x 480, about 17 x 18


def enough_pixels(width: int, height: int) -> int:
    """At how many pixels of a view an object is seen well."""
    return max(1, round(ENOUGH_SHARE * width * height))


@dataclass(frozen=True, eq=False)
class Boxes:
    """K boxes in world metres: `centers` (K, 3), half their sizes `halves` (K, 3), and `axes` (K, 3, 3), whose rows are
    the unit vectors along which the sizes are measured. All are float64."""

    centers: np.ndarray
    halves: np.ndarray
    axes: np.ndarray

    @classmethod
    def of(cls, boxes: Iterable[tuple[ArrayLike, ArrayLike, ArrayLike]]) -> Self:
        """Boxes from their center, size and axes."""
        boxes = list(boxes)
        centers = np.array([center for center, _, _ in boxes], dtype=np.float64).reshape(-1, 3)
        halves = np.array([size for _, size, _ in boxes], dtype=np.float64).reshape(-1, 3) / 2
        return cls(centers, halves, np.array([axes for _, _, axes in boxes], dtype=np.float64).reshape(-1, 3, 3))

    def __len__(self) -> int:
        return len(self.centers)

    def corners(self, index: int) -> np.ndarray:
        """(8, 3) the corners of a box with its margin, world metres."""
        signs = np.array([(a, b, c) for a in (-1, 1) for b in (-1, 1) for c in (-1, 1)])
        return self.centers[index] + signs * (self.halves[index] + MARGIN_M) @ self.axes[index]

    def outside_m(self, index: int, points: np.ndarray) -> np.ndarray:
        """(...,) float64: how far `points` (..., 3) are outside a box, on the axis of the most; 0 or less inside."""
        local = (points - self.centers[index]) @ self.axes[index].T
        return (np.abs(local) - self.halves[index]).max(axis=-1)


def object_pixels(
    scene: Scene, pose: CameraPose, camera: Intrinsics, boxes: Boxes, longest_px: int = LONGEST_PX
) -> np.ndarray:
    """(K,) int64: at how many pixels of a view each object is in sight, counted in a depth image with at most
    `longest_px` at its longer side and multiplied up."""
    depth_camera = camera.thinned(-(-max(camera.width, camera.height) // longest_px))
    labels = object_at_each_pixel(scene, pose, depth_camera, boxes)
    counts = np.bincount(labels[labels != NOTHING], minlength=len(boxes))
    ratio = camera.width * camera.height / (depth_camera.width * depth_camera.height)
    return np.rint(counts * ratio).astype(np.int64)


def object_at_each_pixel(scene: Scene, pose: CameraPose, camera: Intrinsics, boxes: Boxes) -> np.ndarray:
    """(H, W) int64: the box whose object each pixel shows, the smallest of several; NOTHING where there is none."""
    labels = np.full((camera.height, camera.width), NOTHING)
    windows = [window_of(boxes.corners(index), pose, camera) for index in range(len(boxes))]
    if not any(windows):
        return labels
    points = surface_in_view(scene, pose, camera)
    on_floor = np.abs(points[..., 2] - scene.storey_at(pose.z_m).floor_z_m) < FLOOR_M
    volumes = (boxes.halves + MARGIN_M).prod(axis=1)  # with the margin, so that no box is flat
    for index in np.argsort(-volumes, kind="stable"):  # smaller boxes overwrite larger ones
        window = windows[index]
        if window is None:
            continue
        outside = boxes.outside_m(index, points[window])
        heights = boxes.corners(index)[:, 2]
        near = outside <= MARGIN_M
        inside = outside <= EXACT_M
        if np.ptp(heights) > LOW_M:
            near &= ~on_floor[window]
            inside &= near & (points[window][..., 2] > heights.min() + MARGIN_M + EXACT_M)  # not what it stands on
        is_within = WITHIN * np.count_nonzero(inside) >= np.count_nonzero(near)
        labels[window][near if is_within else inside] = index
    return labels


def surface_in_view(scene: Scene, pose: CameraPose, camera: Intrinsics) -> np.ndarray:
    """(H, W, 3) float64: the point of the surface at each pixel's centre, world metres; NaN where there is none."""
    depth = RaycastRenderer().depth(scene, pose, camera).astype(np.float64)
    depth[~np.isfinite(depth)] = np.nan
    x = (np.arange(camera.width) + 0.5 - camera.width / 2) / camera.focal_px
    y = (np.arange(camera.height) + 0.5 - camera.height / 2) / camera.focal_px
    right, down, ahead = pose.camera_to_world[:3, :3].T
    directions = x[None, :, None] * right + y[:, None, None] * down + ahead
    return pose.position + depth[..., None] * directions


def window_of(corners: np.ndarray, pose: CameraPose, camera: Intrinsics) -> tuple[slice, slice] | None:
    """The rows and columns that a box with `corners` (8, 3) may cover, all if it reaches behind the camera, or None."""
    world_to_camera = pose.world_to_camera
    x, y, depth = (corners @ world_to_camera[:3, :3].T + world_to_camera[:3, 3]).T
    if (depth <= NEAR_M).all():
        return None
    if (depth <= NEAR_M).any():
        return slice(0, camera.height), slice(0, camera.width)
    columns = camera.focal_px * x / depth + camera.width / 2
    rows = camera.focal_px * y / depth + camera.height / 2
    left = max(0, int(np.floor(columns.min())))
    right = min(camera.width, int(np.ceil(columns.max())))
    top = max(0, int(np.floor(rows.min())))
    bottom = min(camera.height, int(np.ceil(rows.max())))
    return (slice(top, bottom), slice(left, right)) if left < right and top < bottom else None


def fitting(points: np.ndarray, boxes: Boxes) -> np.ndarray:
    """(K,) bool: which boxes have surface `points` (N, 3) inside that reach over half of each of their sides of SMALL_M
    or more. Boxes in other coordinates than the scan's contain nothing, or a slice of floor or wall."""
    fits = np.zeros(len(boxes), dtype=bool)
    for index in range(len(boxes)):
        near = (np.abs(points - boxes.centers[index]) <= np.linalg.norm(boxes.halves[index]) + MARGIN_M).all(axis=1)
        local = (points[near] - boxes.centers[index]) @ boxes.axes[index].T
        inside = local[(np.abs(local) <= boxes.halves[index] + MARGIN_M).all(axis=1)]
        if len(inside):
            sides = 2 * boxes.halves[index]
            fits[index] = ((np.ptp(inside, axis=0) >= sides / 2) | (sides < SMALL_M)).all()
    return fits
