"""A floor plan of a scan: what is seen from above, cut below the ceiling."""

from dataclasses import dataclass

import numpy as np

from roomscout.rendering.open3d_import import import_open3d
from roomscout.rendering.renderers.raycast import colours_of_hits
from roomscout.rendering.scene import Scene

CUT_M = 2.0
"""The height above the floor from which one looks down; in lower rooms the cut is at CUT_SHARE of the height."""
CUT_SHARE = 0.85
MARGIN_M = 0.2
MOST_CUT = 0.5
"""The largest share of a plan that furniture which the cut goes through covers."""


@dataclass(frozen=True, eq=False)
class PlanView:
    """A plan (H, W, 3) uint8 RGB, world y upwards; the centre of its lower left pixel is at `origin`, world metres."""

    image: np.ndarray
    origin: tuple[float, float]
    metres_per_pixel: float

    def pixel(self, x_m: float, y_m: float) -> tuple[float, float]:
        """(column, row) of a place, from the upper left corner."""
        column = (x_m - self.origin[0]) / self.metres_per_pixel
        return column, len(self.image) - 1 - (y_m - self.origin[1]) / self.metres_per_pixel


def plan_view(scene: Scene, longest_px: int = 480) -> PlanView:
    """Cast a ray down for each pixel; `longest_px` is the longer side of the image.

    What the cut goes through shows its top, if its surface is closed and faces outwards.
    """
    lower, upper = scene.bounds.lower[:2] - MARGIN_M, scene.bounds.upper[:2] + MARGIN_M
    metres_per_pixel = float(max(upper - lower)) / longest_px
    columns, rows = (np.arange(lower[axis], upper[axis], metres_per_pixel) for axis in (0, 1))
    image = looking_down(scene, np.stack(np.meshgrid(columns, rows[::-1]), axis=-1))
    return PlanView(image, (float(columns[0]), float(rows[0])), metres_per_pixel)


def cut_z_m(scene: Scene) -> float:
    """The height from which one looks down, world metres."""
    return scene.floor_z_m + float(min(CUT_M, CUT_SHARE * (scene.bounds.upper[2] - scene.floor_z_m)))


def looking_down(scene: Scene, ground: np.ndarray) -> np.ndarray:
    """(H, W, 3) uint8 RGB: what one sees below the cut at the places `ground` (H, W, 2), world x and y."""
    rays = np.zeros((*ground.shape[:2], 6), dtype=np.float32)
    rays[..., :2], rays[..., 2] = ground, cut_z_m(scene)
    image, behind = _looking(scene, rays, -1)
    if len(scene.faces):
        tops, above = _looking(scene, rays, 1)
        cut = behind & above
        if cut.mean() < MOST_CUT:  # else it is the room whose surface faces outwards
            image[cut] = tops[cut]
    return image


def _looking(scene: Scene, rays: np.ndarray, way: int) -> tuple[np.ndarray, np.ndarray]:
    """(H, W, 3) uint8 colours that vertical rays hit, and (H, W) where they hit the back of a surface.

    `way` is 1 for up and -1 for down.
    """
    o3d = import_open3d()
    rays[..., 5] = way
    hits = scene.ray_caster().cast_rays(o3d.core.Tensor.from_numpy(rays))
    image = colours_of_hits(scene, hits).reshape(*rays.shape[:2], 3)
    back = np.isfinite(hits["t_hit"].numpy()) & (hits["primitive_normals"].numpy()[..., 2] * way > 0)
    return image, back
