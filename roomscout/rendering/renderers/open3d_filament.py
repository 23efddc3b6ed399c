"""Renders with Open3D's OffscreenRenderer, which uses Filament on Vulkan."""

from typing import TYPE_CHECKING

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.open3d_import import import_open3d
from roomscout.rendering.renderers.base import BACKGROUND_RGB, FAR_M, NEAR_M
from roomscout.rendering.renderers.painter import Part, parts_of
from roomscout.rendering.scene import Surface
from roomscout.rendering.textures import SRGB_OF_LINEAR

if TYPE_CHECKING:
    import open3d


class FilamentPainter:
    """A Painter based on Open3D. Keeps all surfaces in one Filament scene and shows only the current one.

    A canvas has a fixed image size. Another size needs a new canvas, to which surfaces are added when next rendered.
    """

    device = "Vulkan"

    def __init__(self, cuda_device: int | None = None) -> None:
        self._surfaces: dict[int, Surface] = {}
        self._added: dict[int, list[str]] = {}
        self._size = (64, 64)
        self._canvas = _new_canvas(*self._size)

    def add(self, key: int, surface: Surface) -> None:
        """Store the surface; Filament uploads it when it is first rendered."""
        self._surfaces[key] = surface

    def drop(self, key: int) -> None:
        """Remove the surface's geometries from the scene."""
        del self._surfaces[key]
        for name in self._added.pop(key, []):
            self._canvas.scene.remove_geometry(name)

    def image(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8 RGB."""
        self._set_view(key, pose, intrinsics)
        return np.asarray(self._canvas.render_to_image())[..., :3].copy()

    def depth(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W) float32 metres along the optical axis."""
        self._set_view(key, pose, intrinsics)
        return np.asarray(self._canvas.render_to_depth_image(z_in_view_space=True)).astype(np.float32)

    def _set_view(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> None:
        """Show only this surface and place the camera."""
        size = (intrinsics.width, intrinsics.height)
        if size != self._size:
            self._added.clear()
            del self._canvas
            self._size, self._canvas = size, _new_canvas(*size)
        if key not in self._added:
            self._added[key] = self._add_parts(key)
        for other, names in self._added.items():
            for name in names:
                self._canvas.scene.show_geometry(name, other == key)
        camera = self._canvas.scene.camera
        camera.set_projection(intrinsics.matrix, NEAR_M, FAR_M, *size)
        _, down, look = pose.camera_to_world[:3, :3].T
        camera.look_at(pose.position + look, pose.position, -down)

    def _add_parts(self, key: int) -> list[str]:
        """Add the surface's parts to the scene and return their names."""
        names = []
        for index, part in enumerate(parts_of(self._surfaces[key])):
            names.append(f"{key}/{index}")
            self._canvas.scene.add_geometry(names[-1], *_mesh_and_material(part))
        return names


def _new_canvas(width: int, height: int) -> "open3d.visualization.rendering.OffscreenRenderer":
    canvas = import_open3d().visualization.rendering.OffscreenRenderer(width, height)
    canvas.scene.set_background([*(channel / 255 for channel in BACKGROUND_RGB), 1.0])
    # Post-processing includes tone mapping, which changes colours.
    canvas.scene.view.set_post_processing(False)
    return canvas


def _mesh_and_material(
    part: Part,
) -> "tuple[open3d.geometry.TriangleMesh, open3d.visualization.rendering.MaterialRecord]":
    o3d = import_open3d()
    mesh = o3d.geometry.TriangleMesh(
        o3d.utility.Vector3dVector(part.vertices.astype(np.float64)), o3d.utility.Vector3iVector(part.faces)
    )
    material = o3d.visualization.rendering.MaterialRecord()
    material.shader = "defaultUnlit"
    mesh.vertex_colors = o3d.utility.Vector3dVector(part.colours / 255.0)
    if part.image is not None:
        assert part.uv is not None, "an image has uv"
        mesh.triangle_uvs = o3d.utility.Vector2dVector(part.uv[part.faces.ravel()].astype(np.float64))
        # Open3D decodes textures from sRGB but does not encode its output. Encoding them twice cancels this.
        material.albedo_img = o3d.geometry.Image(SRGB_OF_LINEAR[part.image])
    return mesh, material
