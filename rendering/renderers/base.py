"""What every renderer offers and agrees on."""

from typing import Protocol

import numpy as np

from rendering.camera import CameraPose, Intrinsics
from rendering.scene import Scene

# Where the scan has a hole, and beyond its edge.
BACKGROUND_RGB = (255, 255, 255)
# Nothing nearer to the camera is drawn; moves keep more distance than this from surfaces.
NEAR_M = 0.02
# Nothing further is drawn by the renderers that must name a limit.
FAR_M = 1000.0


class RenderError(Exception):
    """A renderer that cannot work here, or a view that could not be drawn: one sentence with the mend."""


class Renderer(Protocol):
    """Draws unlit views of scenes, in the colours as scanned.

    What it builds for a scene is kept while the scene lives, and freed with it. Safe to call from several threads.
    """

    @property
    def name(self) -> str:
        """The name by which `make_renderer` knows it."""

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB; raises RenderError."""

    def depth(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """Metres along the optical axis to the surface seen at each pixel, (H, W) float32.

        At the pixel's centre, or with anti-aliasing at some spot within it; inf where there is no surface. Raises
        RenderError.
        """

    def close(self) -> None:
        """Let go of what the renderer holds; it cannot be used afterwards."""
