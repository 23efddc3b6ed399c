"""A renderer that shows nothing: what a model answers without seeing the room."""

import numpy as np

from rendering.camera import CameraPose, Intrinsics
from rendering.renderers.raycast import RaycastRenderer
from rendering.scene import Scene

GREY = 128


class BlindRenderer(RaycastRenderer):
    """Every view is an even grey; depth is true, so that the first view's pose is the same as with open eyes."""

    name = "blind"

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8, all grey."""
        return np.full((intrinsics.height, intrinsics.width, 3), GREY, dtype=np.uint8)
