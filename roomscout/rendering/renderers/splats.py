"""Renders Gaussian splats, on the CPU or with gsplat on a GPU with CUDA; casts rays for scans without splats.

On the CPU, elliptical weighted averages are composited in tiles front to back. The formula is that of gsplat's
`rasterization` (V. Ye et al., "gsplat: An Open-Source Library for Gaussian Splatting", 2024) in its classic mode, so
that both give equal views.
"""

import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np

from roomscout.base.extras import how_to_install, is_installed
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.base import BACKGROUND_RGB, RenderError
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene
from roomscout.rendering.splats import Splats

NEAR_M = 0.2  # Gaussians nearer are not drawn, as in their training: those that hang there are its artefacts
BLUR_PX2 = 0.3  # added to the variances in the image, so that no Gaussian is smaller than a pixel
ALPHA_MIN = 1 / 255  # smaller alphas count as none
ALPHA_MAX = 0.99
DARK = 1e-4  # a pixel is finished before the light that is left falls to this
_BEYOND = 0.3  # where Gaussians outside the image are projected, slopes are clamped to this share beyond it
_TILE_PX, _AT_ONCE = 8, 128
SURFACE_ALPHA = 0.5  # a pixel shows a surface if its Gaussians let at most half of what is behind them through


class SplatRenderer(RaycastRenderer):
    """Renders a scene's splats on the CPU if it has any, else its surface."""

    name = "splats"

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB."""
        if scene.splats is None:
            return super().render(scene, pose, intrinsics)
        sums, alpha = self.sums(scene.splats, scene.own_pose(pose), intrinsics)
        image = sums[..., :3] + (1 - alpha[..., None]) * (np.array(BACKGROUND_RGB, dtype=np.float32) / 255)
        return (image.clip(0, 1) * 255 + 0.5).astype(np.uint8)

    def depth(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """Depth (H, W) float32, metres along the optical axis: the mean of the Gaussians' depths, weighted by how much
        each adds to the pixel; inf where their alpha is below SURFACE_ALPHA."""
        if scene.splats is None:
            return super().depth(scene, pose, intrinsics)
        sums, alpha = self.sums(scene.splats, scene.own_pose(pose), intrinsics)
        return np.where(alpha >= SURFACE_ALPHA, sums[..., 3] / alpha.clip(SURFACE_ALPHA), np.float32(np.inf))

    def sums(self, splats: Splats, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
        """What `rasterised` returns of a pose in the scene's own coordinates."""
        return rasterised(splats, pose.world_to_camera, intrinsics)


class GsplatRenderer(SplatRenderer):
    """Draws splats with gsplat; keeps those of each scene on the GPU as long as they are alive."""

    name = "gsplat"

    def __init__(self, cuda_device: int | None = None) -> None:
        """Use the GPU with this CUDA ordinal, else PyTorch's current one. Raises RenderError without gsplat."""
        if why := why_no_gsplat():
            fix = how_to_install("gsplat")
            raise RenderError(
                f"the renderer gsplat does not start ({why}): {fix}, or use the renderer splats", setting="renderer"
            )
        self._device = "cuda" if cuda_device is None else f"cuda:{cuda_device}"
        self._lock = threading.Lock()
        self._uploaded: weakref.WeakKeyDictionary[Splats, dict[str, Any]] = weakref.WeakKeyDictionary()

    def sums(self, splats: Splats, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
        """What `rasterised` returns, from gsplat's `rasterization`."""
        import gsplat
        import torch

        view = pose.world_to_camera
        view[:3, :3] = view[:3, :3] @ splats.to_world
        arrays = (splats.means, splats.quaternions, splats.deviations, splats.opacities, splats.harmonics)
        names = ("means", "quats", "scales", "opacities", "colors")
        with self._lock, torch.no_grad():
            if splats not in self._uploaded:
                tensors = (torch.tensor(array, device=self._device) for array in arrays)
                self._uploaded[splats] = dict(zip(names, tensors, strict=True))
            camera: dict[str, Any] = {"width": intrinsics.width, "height": intrinsics.height}
            camera["viewmats"] = torch.tensor(view[None], dtype=torch.float32, device=self._device)
            camera["Ks"] = torch.tensor(intrinsics.matrix[None], dtype=torch.float32, device=self._device)
            how = {"near_plane": NEAR_M, "eps2d": BLUR_PX2, "render_mode": "RGB+D"}
            degree = int(splats.harmonics.shape[1] ** 0.5) - 1
            sums, alpha, _ = gsplat.rasterization(**self._uploaded[splats], **camera, **how, sh_degree=degree)
        return sums[0].cpu().numpy(), alpha[0, ..., 0].cpu().numpy()


def why_no_gsplat() -> str | None:
    """Why gsplat does not work here; None if it does."""
    if not is_installed("gsplat"):
        return "it is not installed"
    import torch

    return None if torch.cuda.is_available() else "PyTorch finds no GPU with CUDA"


@dataclass(frozen=True, eq=False)
class _Projected:
    """K Gaussians of an image, float32, the nearest first."""

    pixels: np.ndarray  # (K, 2): x and y of their centres
    conics: np.ndarray  # (K, 3): inverse covariances as xx, xy and yy
    reach: np.ndarray  # (K, 2): pixels in x and y to where alpha is ALPHA_MIN
    opacities: np.ndarray  # (K,) 0 to 1
    features: np.ndarray  # (K, 4): red, green and blue from 0, and depth in metres


def rasterised(splats: Splats, world_to_camera: np.ndarray, camera: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
    """(H, W, 4) float32 sums of red, green, blue and depth in metres along the optical axis, each weighted by alpha,
    before black, and alpha (H, W) float32 itself; `world_to_camera` is (4, 4)."""
    gaussians = _projected(splats, world_to_camera, camera)
    sums = np.zeros((camera.height, camera.width, 4), dtype=np.float32)
    alpha = np.zeros((camera.height, camera.width), dtype=np.float32)
    lefts, tops = (gaussians.pixels - gaussians.reach).T
    rights, bottoms = (gaussians.pixels + gaussians.reach).T
    for top in range(0, camera.height, _TILE_PX):
        in_rows = np.flatnonzero((tops < top + _TILE_PX) & (bottoms > top))
        for left in range(0, camera.width, _TILE_PX):
            there = in_rows[(lefts[in_rows] < left + _TILE_PX) & (rights[in_rows] > left)]
            tile = slice(top, min(top + _TILE_PX, camera.height)), slice(left, min(left + _TILE_PX, camera.width))
            sums[tile], alpha[tile] = _composited(gaussians, there, np.mgrid[tile].astype(np.float32) + 0.5)
    return sums, alpha


def _composited(gaussians: _Projected, there: np.ndarray, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sums (h, w, 4) of the features of Gaussians, and their alpha (h, w), at rows and columns `centres` (2, h, w)."""
    rows, columns = centres.reshape(2, -1, 1)
    sums = np.zeros((len(rows), 4), dtype=np.float32)
    left = np.ones(len(rows), dtype=np.float32)
    unfinished = np.ones((len(rows), 1), dtype=bool)
    for start in range(0, len(there), _AT_ONCE):
        chosen = there[start : start + _AT_ONCE]
        dx = columns - gaussians.pixels[chosen, 0]
        dy = rows - gaussians.pixels[chosen, 1]
        xx, xy, yy = gaussians.conics[chosen].T
        exponents = -0.5 * (xx * dx * dx + yy * dy * dy) - xy * dx * dy
        exponents = np.minimum(exponents, 0)  # of needles, rounding makes some positive
        alpha = gaussians.opacities[chosen] * np.exp(exponents)
        alpha = np.where(alpha < np.float32(ALPHA_MIN), 0, np.minimum(alpha, np.float32(ALPHA_MAX)))
        after = left[:, None] * np.cumprod(1 - alpha, axis=1)
        drawn = unfinished & (after > DARK)
        before = np.column_stack([left, after[:, :-1]])
        sums += np.where(drawn, alpha * before, 0) @ gaussians.features[chosen]
        left = np.where(drawn, after, left[:, None]).min(axis=1)
        unfinished = drawn[:, -1:]
        if not unfinished.any():
            break
    return sums.reshape(*centres.shape[1:], 4), 1 - left.reshape(centres.shape[1:])


def _projected(splats: Splats, world_to_camera: np.ndarray, camera: Intrinsics) -> _Projected:
    turn = world_to_camera[:3, :3] @ splats.to_world
    shift = world_to_camera[:3, 3]
    depths = splats.means @ turn[2] + shift[2]
    chosen = np.flatnonzero((depths > NEAR_M) & (splats.opacities > ALPHA_MIN))
    chosen = chosen[np.argsort(depths[chosen], kind="stable")]
    splats = splats.only(chosen)
    x, y, z = (splats.means @ turn.T + shift).T
    pixels = camera.focal_px * np.stack([x / z, y / z], axis=1) + [camera.width / 2, camera.height / 2]
    # The columns of each Gaussian's square root of a covariance, in the camera's axes and then in the image.
    roots = turn @ splats.roots
    limit_x = (0.5 + _BEYOND / 2) * camera.width / camera.focal_px
    limit_y = (0.5 + _BEYOND / 2) * camera.height / camera.focal_px
    slope_x = (x / z).clip(-limit_x, limit_x)
    slope_y = (y / z).clip(-limit_y, limit_y)
    pixels_per_m = (camera.focal_px / z)[:, None]
    across = pixels_per_m * (roots[:, 0] - slope_x[:, None] * roots[:, 2])
    down = pixels_per_m * (roots[:, 1] - slope_y[:, None] * roots[:, 2])
    xx = np.square(across).sum(axis=1) + BLUR_PX2
    yy = np.square(down).sum(axis=1) + BLUR_PX2
    xy = (across * down).sum(axis=1)
    conics = np.stack([yy, -xy, xx], axis=1) / (xx * yy - xy * xy).clip(1e-10)[:, None]
    reach = np.sqrt(2 * np.log(splats.opacities / ALPHA_MIN) * np.stack([xx, yy])).T
    seen = ((pixels + reach > 0) & (pixels - reach < [camera.width, camera.height])).all(axis=1)
    directions = splats.means[seen] + turn.T @ shift
    basis = real_harmonics(*(directions / np.linalg.norm(directions, axis=1, keepdims=True)).T)
    used = splats.harmonics[seen]
    colours = np.maximum(np.einsum("kb,kbc->kc", basis[:, : used.shape[1]], used) + 0.5, 0)
    features = np.column_stack([colours, z[seen]])
    columns = (pixels[seen], conics[seen], reach[seen], splats.opacities[seen], features)
    return _Projected(*(column.astype(np.float32) for column in columns))


def real_harmonics(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """(K, 16) real spherical harmonics up to degree 3 at unit vectors, in the order and signs of the splats' files.
    P.-P. Sloan, "Efficient Spherical Harmonic Evaluation", JCGT 2013, with the Condon-Shortley phase."""
    return np.stack(
        [
            np.full_like(x, 0.28209479177387814),
            *(-0.4886025119029199 * y, 0.4886025119029199 * z, -0.4886025119029199 * x),
            *(1.0925484305920792 * (x * y), -1.0925484305920792 * (y * z)),
            0.31539156525252005 * (2 * z * z - x * x - y * y),
            *(-1.0925484305920792 * x * z, 0.5462742152960396 * (x * x - y * y)),
            *(-0.5900435899266435 * y * (3 * x * x - y * y), 2.890611442640554 * x * y * z),
            -0.4570457994644658 * y * (4 * z * z - x * x - y * y),
            0.3731763325901154 * z * (2 * z * z - 3 * x * x - 3 * y * y),
            -0.4570457994644658 * x * (4 * z * z - x * x - y * y),
            *(1.445305721320277 * z * (x * x - y * y), -0.5900435899266435 * x * (x * x - 3 * y * y)),
        ],
        axis=1,
    )
