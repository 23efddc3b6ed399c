"""Renders blank views, to measure what a model answers without seeing the room."""

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene

GREY = 128


class BlindRenderer(RaycastRenderer):
    """Renders uniformly grey views with real depth, so that the first pose is the same as with the raycast renderer."""

    name = "blind"

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8, all grey."""
        return np.full((intrinsics.height, intrinsics.width, 3), GREY, dtype=np.uint8)
