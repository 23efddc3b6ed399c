"""How much of a scene's surface a camera has seen, counted over points sampled evenly on it."""

import math

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.scene import Scene
from roomscout.rendering.views import VISIBLE_TOLERANCE_M, project

SAMPLE_POINTS = 4_000
"""Enough that a share of the surface is within 2 percentage points of that of all points, 95 times in 100."""


class SurfaceCoverage:
    """Counts the sampled points of a scene's surface that the camera has seen from the poses added so far.

    `points` (K, 3) are evenly spaced among the scene's `surface_points`, at most about `samples` of them. A point is
    seen from a pose if it projects into the image and no surface is more than VISIBLE_TOLERANCE_M in front of it.
    Points that no camera in the room can see count too, such as those on the underside of a rug: shares stay below 1.

    Equal scenes and poses give equal masks, whatever the renderer.
    """

    def __init__(self, scene: Scene, samples: int = SAMPLE_POINTS) -> None:
        self.scene = scene
        every = math.ceil(len(scene.surface_points) / samples)
        self.points = scene.surface_points[::every].astype(np.float64)
        self.seen = np.zeros(len(self.points), dtype=bool)
        """(K,) the points seen so far."""

    @property
    def share(self) -> float:
        """The share of the points seen so far, from 0 to 1."""
        return float(self.seen.mean())

    def add(self, pose: CameraPose, camera: Intrinsics) -> float:
        """Add the points seen from a pose, and return the share of all points seen so far."""
        self.seen |= self.seen_from(pose, camera)
        return self.share

    def seen_from(self, pose: CameraPose, camera: Intrinsics) -> np.ndarray:
        """(K,) bool: which points a view from this pose shows. Changes nothing."""
        mask = self.in_frame(pose, camera)
        mask[mask] = self._unobstructed(pose.position, self.points[mask])
        return mask

    def in_frame(self, pose: CameraPose, camera: Intrinsics) -> np.ndarray:
        """(K,) bool: which points project into the image, also behind a surface."""
        pixels, depths = project(self.points, pose, camera)
        columns, rows = pixels.T
        inside = (columns >= 0) & (columns < camera.width) & (rows >= 0) & (rows < camera.height)
        return inside & (depths > 0)

    def unobstructed(self, position: np.ndarray) -> np.ndarray:
        """(K,) bool: which points have a free line of sight to a (3,) position, in whatever direction."""
        return self._unobstructed(position, self.points)

    def _unobstructed(self, position: np.ndarray, points: np.ndarray) -> np.ndarray:
        towards = points - position
        distances = np.linalg.norm(towards, axis=1)
        directions = towards / np.maximum(distances, 1e-9)[:, None]
        hits = self.scene.cast(np.tile(position, (len(points), 1)), directions)
        return hits >= distances - VISIBLE_TOLERANCE_M
