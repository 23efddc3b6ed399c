"""Renders views on the CPU by casting a ray through each pixel with Embree; works everywhere."""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.base import BACKGROUND_RGB, NEAR_M
from roomscout.rendering.scene import Scene, Surface

_NO_FACE = np.uint32(0xFFFFFFFF)  # Open3D's `primitive_ids` of a ray that hits nothing
_NEXT = np.array([[0], [1]])  # offsets of the two neighbouring rows or columns that bilinear interpolation mixes


class RaycastRenderer:
    """Renders with the scene's Open3D RaycastingScene; keeps no state per scene."""

    name = "raycast"

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB."""
        return depth_and_colours(scene, pose, intrinsics)[1]

    def depth(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """Depth (H, W) float32, metres along the optical axis; inf if there is no surface."""
        return _cast(scene, pose, intrinsics)["t_hit"] + np.float32(NEAR_M)

    def close(self) -> None:
        """Nothing to release."""


class BlindRenderer(RaycastRenderer):
    """Renders grey views, to measure what a model answers without seeing the room; the depth is real."""

    name = "blind"

    def render(self, scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8, all grey."""
        return np.full((intrinsics.height, intrinsics.width, 3), 128, dtype=np.uint8)


def colours_of_hits(scene: Scene, hits: Mapping[str, np.ndarray]) -> np.ndarray:
    """(K, 3) uint8 colours of the surface where rays hit it, BACKGROUND_RGB where it did not."""
    faces = hits["primitive_ids"].ravel()
    second, third = np.ascontiguousarray(hits["primitive_uvs"].reshape(-1, 2).T)
    weights = (1.0 - second - third, second, third)
    colours = _vertex_colours(scene.surface, faces, weights)
    if texturing := scene.surface.texturing:
        # Multiplies encoded colours, like OpenGL without sRGB textures, which is close to a product of linear light.
        image_of = np.append(texturing.face_image, np.int32(-1)).take(faces, mode="clip")
        of_corners = np.stack(weights, axis=1)[..., None]
        for index in np.unique(image_of[image_of >= 0]):
            textured = np.flatnonzero(image_of == index)
            uv = (texturing.face_uv[faces[textured]] * of_corners[textured]).sum(axis=1)
            colours[textured] = sample(texturing.images[index], uv) * (colours[textured] / np.float32(255)) + 0.5
    colours[faces == _NO_FACE] = BACKGROUND_RGB
    return colours


def depth_and_colours(scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
    """What `RaycastRenderer` gives for a pose, the depth (H, W) and the view (H, W, 3), in half the time."""
    hits = _cast(scene, pose, intrinsics)
    depth = hits["t_hit"] + np.float32(NEAR_M)
    return depth, colours_of_hits(scene, hits).reshape(*depth.shape, 3)


def faces_in_view(scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
    """(H, W) int64 index of the surface's face at each pixel; -1 if there is none."""
    hits = _cast(scene, pose, intrinsics)
    return np.where(np.isfinite(hits["t_hit"]), hits["primitive_ids"].astype(np.int64), -1)


def _cast(scene: Scene, pose: CameraPose, intrinsics: Intrinsics) -> dict[str, np.ndarray]:
    """The hits of the rays through all pixels; `t_hit` is metres along the optical axis from the near plane."""
    camera_to_world = scene.own_pose(pose).camera_to_world.astype(np.float32)
    rays = np.empty((intrinsics.height, intrinsics.width, 6), dtype=np.float32)
    # One small matrix product per pixel row: BLAS would split a large one over threads, which cost more than they gain.
    directions = camera_to_world[:3, :3] @ _pixel_directions(intrinsics)
    for axis in range(3):
        along = directions[:, axis]
        rays[..., axis] = camera_to_world[axis, 3] + NEAR_M * along
        rays[..., 3 + axis] = along
    return scene.hits(rays)


@lru_cache(maxsize=8)
def _pixel_directions(intrinsics: Intrinsics) -> np.ndarray:
    """(H, 3, W) float32 rays through pixel centres in camera axes; z = 1, so that the ray parameter is depth."""
    columns = (np.arange(intrinsics.width) + 0.5 - intrinsics.width / 2) / intrinsics.focal_px
    rows = (np.arange(intrinsics.height) + 0.5 - intrinsics.height / 2) / intrinsics.focal_px
    x, y = np.meshgrid(columns, rows)
    return np.stack([x, y, np.ones_like(x)], axis=1).astype(np.float32)


def _vertex_colours(surface: Surface, faces: np.ndarray, weights: Sequence[np.ndarray]) -> np.ndarray:
    """(K, 3) uint8 colours at points on `faces` (K,) with barycentric weights; arbitrary for _NO_FACE."""
    # Takes each row of 4 bytes as one integer, which is faster.
    rows = (colours.view(np.uint32).ravel().take(faces, mode="clip") for colours in surface.corner_colours)
    corners = [row.view(np.uint8).reshape(-1, 4) for row in rows]
    colours = np.empty((len(faces), 3), dtype=np.uint8)
    for channel in range(3):  # 3 times as fast as products of shape (K, 3)
        shade = np.full(len(faces), 0.5, dtype=np.float32)
        for weight, corner in zip(weights, corners, strict=True):
            shade += weight * corner[:, channel]
        colours[:, channel] = shade
    return colours


def sample(image: np.ndarray, uv: np.ndarray) -> np.ndarray:
    """Sample an (h, w, 3) image at `uv` (K, 2), v up, repeating outside 0..1: (K, 3) float32. Bilinear between pixel
    centres, like OpenGL (4.6 core specification, 8.14.3)."""
    height, width = image.shape[:2]
    x = uv[:, 0] * width - 0.5
    y = (1.0 - uv[:, 1]) * height - 0.5
    left = np.floor(x)
    top = np.floor(y)
    right_share = (x - left)[:, None]
    low_share = (y - top)[:, None]
    columns = (left.astype(np.int64) + _NEXT) % width
    rows = (top.astype(np.int64) + _NEXT) % height
    upper = image[rows[0], columns[0]] * (1 - right_share) + image[rows[0], columns[1]] * right_share
    lower = image[rows[1], columns[0]] * (1 - right_share) + image[rows[1], columns[1]] * right_share
    return (upper * (1 - low_share) + lower * low_share).astype(np.float32)
