"""The Renderer protocol and the constants that all renderers share."""

from typing import Protocol

import numpy as np

from roomscout.base.errors import Refusal
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.scene import Scene

BACKGROUND_RGB = (255, 255, 255)  # of pixels without a surface, in holes of the scan and beyond its edges
NEAR_M = 0.02  # near plane; moves keep a larger distance from surfaces
FAR_M = 1000.0  # far plane of the renderers that need one


class RenderError(Refusal):
    """A renderer does not start, or a view cannot be rendered. The message is one sentence that includes the fix."""


class Renderer(Protocol):
    """Renders unlit views in scanned colours, thread-safe; what it builds for a scene lives as long as the scene."""

    name: str  # in `make_renderer`

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB; raises RenderError."""

    def depth(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """Depth (H, W) float32: metres along the optical axis to the surface at each pixel; inf if there is none.
        Sampled at the pixel's centre, or with anti-aliasing anywhere inside the pixel. Raises RenderError."""

    def close(self) -> None:
        """Release all resources; the renderer cannot be used afterwards."""
