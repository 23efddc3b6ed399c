"""The Painter protocol for graphics libraries, and surfaces split into parts with one material each."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.scene import Surface


class Painter(Protocol):
    """Renders surfaces by key. Runs in a child process, in a single thread."""

    device: str

    def add(self, key: int, surface: Surface) -> None:
        """Register a surface under `key`."""

    def drop(self, key: int) -> None:
        """Remove a surface and free its resources."""

    def image(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8 RGB."""

    def depth(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W) float32 metres along the optical axis; inf if there is no surface."""


@dataclass(frozen=True, eq=False)
class Part:
    """Triangles with one material: vertex colours (N, 3) uint8, and perhaps an image (h, w, 3) uint8 with its uv.

    `vertices` (N, 3) float32, `faces` (M, 3) int32, `uv` (N, 2) float32 with v up. Colours multiply the image.
    """

    vertices: np.ndarray
    faces: np.ndarray
    colours: np.ndarray
    uv: np.ndarray | None = None
    image: np.ndarray | None = None


def parts_of(surface: Surface) -> Iterator[Part]:
    """The faces with vertex colours as one part, then one part per image."""
    texturing = surface.texturing
    if texturing is None:
        yield Part(surface.vertices, surface.faces, surface.colours)
        return
    for index in np.unique(texturing.face_image):
        here = texturing.face_image == index
        corners = surface.faces[here].ravel()
        faces = np.arange(len(corners), dtype=np.int32).reshape(-1, 3)
        if index < 0:
            yield Part(surface.vertices[corners], faces, surface.colours[corners])
        else:
            uv = texturing.face_uv[here].reshape(-1, 2)
            yield Part(surface.vertices[corners], faces, surface.colours[corners], uv, texturing.images[index])
