"""The Modality record: a kind of image that the setting see adds to observations, and the Sight it is drawn from."""

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.base import NEAR_M

if TYPE_CHECKING:
    from roomscout.rendering.renderers.base import Renderer
    from roomscout.rendering.scene import Scene
    from roomscout.rendering.storeys import Storey

SCAN_ORIGIN = CameraPose(0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, eq=False)
class Sight:
    """What the images of a turn are drawn from."""

    renderer: "Renderer"  # that of the view; other images may use rays instead
    scene: "Scene"  # the scan
    camera: Intrinsics  # of the view and of all other images
    path: tuple[CameraPose, ...]  # the poses of all turns so far, this one's last
    drawn: np.ndarray | None = None  # the view, (H, W, 3) uint8, if it exists
    origin: CameraPose = SCAN_ORIGIN  # from which told coordinates count, as in `CameraPose.relative`
    kept: dict[str, Any] = field(default_factory=dict, repr=False)
    """What turns of an episode share so as not to compute it again; empty after a resume."""

    @property
    def pose(self) -> CameraPose:
        """The camera's pose."""
        return self.path[-1]

    @property
    def storey(self) -> "Storey":
        """The storey under the camera."""
        return self.scene.storey_at(self.pose.z_m)

    @cached_property
    def view(self) -> np.ndarray:
        """(H, W, 3) uint8 RGB, rendered on first use. Raises RenderError."""
        return self.renderer.render(self.scene, self.pose, self.camera) if self.drawn is None else self.drawn

    @cached_property
    def depth(self) -> np.ndarray:
        """(H, W) float32 metres along the optical axis, inf for holes; computed on first use. Raises RenderError."""
        return self.renderer.depth(self.scene, self.pose, self.camera)

    def surface_at(self, x: float, y: float) -> np.ndarray | None:
        """The point of the scan at a pixel by a ray, (3,) world metres; None in a hole, and in a blind view."""
        ray = self.pose.camera_to_world[:3, :3] @ self.camera.ray(x, y)
        length = float(np.linalg.norm(ray))
        start = self.pose.position + NEAR_M * ray
        distance = float(self.scene.cast(start[None], ray[None] / length)[0])
        return start + distance / length * ray if self.renderer.name != "blind" and np.isfinite(distance) else None


@dataclass(frozen=True)
class Modality:
    """A kind of image: its name, how it is drawn, and what the system prompt says of it. `draw` returns (H, W, 3) uint8
    RGB of the view's size and raises RenderError. With `tells_extent`, it shows how large the whole room is, which
    gives away some answers. The name is part of file names; raises ValueError for one that is not lower-case letters
    and digits, and for a `draw` that does not take one Sight."""

    name: str
    draw: Callable[[Sight], np.ndarray]
    sentence: str
    tells_extent: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch("[a-z][a-z0-9]{0,39}", self.name):
            raise ValueError(f"a modality's name has lower-case letters and digits, at most 40, not {self.name!r}")
        try:
            inspect.signature(self.draw).bind(None)
        except TypeError:
            raise ValueError(f"the modality {self.name} is drawn from one argument, a Sight") from None
