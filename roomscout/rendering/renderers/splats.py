"""Renders Gaussian splats, on the CPU or with gsplat on a GPU with CUDA; casts rays for scans without splats."""

import threading
import weakref
from typing import Any

import numpy as np

from roomscout.base.extras import how_to_install, is_installed
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.rasterise import BLUR_PX2, NEAR_M, rasterised
from roomscout.rendering.renderers.base import BACKGROUND_RGB, RenderError
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene

# A pixel shows a surface if its Gaussians let at most half of what is behind them through.
SURFACE_ALPHA = 0.5


class SplatRenderer(RaycastRenderer):
    """Renders a scene's splats on the CPU if it has any, else its surface."""

    name = "splats"

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB."""
        if scene.splats is None:
            return super().render(scene, pose, intrinsics)
        sums, alpha = self.sums(scene, pose, intrinsics)
        image = sums[..., :3] + (1 - alpha[..., None]) * (np.array(BACKGROUND_RGB, dtype=np.float32) / 255)
        return (image.clip(0, 1) * 255 + 0.5).astype(np.uint8)

    def depth(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """Depth (H, W) float32, metres along the optical axis: the mean of the Gaussians' depths, weighted by how much
        each adds to the pixel; inf where their alpha is below SURFACE_ALPHA."""
        if scene.splats is None:
            return super().depth(scene, pose, intrinsics)
        sums, alpha = self.sums(scene, pose, intrinsics)
        return np.where(alpha >= SURFACE_ALPHA, sums[..., 3] / alpha.clip(SURFACE_ALPHA), np.float32(np.inf))

    def sums(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
        """What `rasterised` returns for a scene with splats."""
        assert scene.splats is not None, "scenes without splats are ray-cast"
        return rasterised(scene.splats, pose.world_to_camera, intrinsics)


class GsplatRenderer(SplatRenderer):
    """Draws splats with gsplat; keeps those of each scene on the GPU as long as the scene is alive."""

    name = "gsplat"

    def __init__(self, cuda_device: int | None = None) -> None:
        """Use the GPU with this CUDA ordinal, else PyTorch's current one. Raises RenderError without gsplat."""
        if why := why_no_gsplat():
            fix = how_to_install("gsplat")
            raise RenderError(f"the renderer gsplat does not start ({why}): {fix}, or use --renderer splats")
        self._device = "cuda" if cuda_device is None else f"cuda:{cuda_device}"
        self._lock = threading.Lock()
        self._uploaded: weakref.WeakKeyDictionary[Scene, dict[str, Any]] = weakref.WeakKeyDictionary()

    def sums(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
        """What `rasterised` returns for a scene with splats, from gsplat's `rasterization`."""
        import gsplat
        import torch

        splats, view = scene.splats, pose.world_to_camera
        assert splats is not None, "scenes without splats are ray-cast"
        view[:3, :3] = view[:3, :3] @ splats.to_world
        arrays = (splats.means, splats.quaternions, splats.deviations, splats.opacities, splats.harmonics)
        names = ("means", "quats", "scales", "opacities", "colors")
        with self._lock, torch.no_grad():
            if scene not in self._uploaded:
                tensors = (torch.tensor(array, device=self._device) for array in arrays)
                self._uploaded[scene] = dict(zip(names, tensors, strict=True))
            viewmats, Ks = (
                torch.tensor(matrix[None], dtype=torch.float32, device=self._device)
                for matrix in (view, intrinsics.matrix)
            )
            camera = {"viewmats": viewmats, "Ks": Ks, "width": intrinsics.width, "height": intrinsics.height}
            how = {"near_plane": NEAR_M, "eps2d": BLUR_PX2, "render_mode": "RGB+D"}
            degree = int(splats.harmonics.shape[1] ** 0.5) - 1
            sums, alpha, _ = gsplat.rasterization(**self._uploaded[scene], **camera, **how, sh_degree=degree)
        return sums[0].cpu().numpy(), alpha[0, ..., 0].cpu().numpy()


def why_no_gsplat() -> str | None:
    """Why gsplat does not work here; None if it does."""
    if not is_installed("gsplat"):
        return "it is not installed"
    import torch

    return None if torch.cuda.is_available() else "PyTorch finds no GPU with CUDA"
