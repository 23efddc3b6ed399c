"""Draws with OpenGL through pyrender on an EGL device: for machines with a GPU."""

import os

import numpy as np

from rendering.camera import CameraPose, Intrinsics
from rendering.renderers.base import BACKGROUND_RGB, FAR_M, NEAR_M
from rendering.renderers.painter import Part, parts_of
from rendering.scene import Surface

# From OpenCV's camera axes (y down, z forward) to OpenGL's (y up, z backward).
_OPENCV_TO_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])


class PyrenderPainter:
    """Painter through pyrender. All surfaces stay in one pyrender scene, since pyrender frees on the graphics card
    whatever is not in the scene that it draws; all but the one to be drawn are invisible."""

    def __init__(self) -> None:
        os.environ["PYOPENGL_PLATFORM"] = "egl"
        import pyrender
        from OpenGL import GL

        self._pyrender = pyrender
        self._scene = pyrender.Scene(bg_color=[*(channel / 255 for channel in BACKGROUND_RGB), 1.0])
        self._canvas = pyrender.OffscreenRenderer(64, 64)
        self._nodes: dict[int, pyrender.Node] = {}
        self.device = GL.glGetString(GL.GL_RENDERER).decode()
        # OpenGL takes an image's rows to fill whole words, which RGB rows of most widths do not.
        GL.glPixelStorei(GL.GL_UNPACK_ALIGNMENT, 1)

    def add(self, key: int, surface: Surface) -> None:
        """Build pyrender's mesh; the card gets it with the next picture."""
        mesh = self._pyrender.Mesh([self._primitive(part) for part in parts_of(surface)], is_visible=False)
        self._nodes[key] = self._scene.add(mesh)

    def drop(self, key: int) -> None:
        """Take the mesh out; the card lets go of it with the next picture."""
        self._scene.remove_node(self._nodes.pop(key))

    def image(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8 RGB."""
        return self._draw(key, pose, intrinsics)[0].copy()

    def depth(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W) float32 metres along the optical axis."""
        depth = self._draw(key, pose, intrinsics)[1]
        return np.where(depth > 0, depth, np.inf).astype(np.float32)

    def _draw(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
        """Picture and depth, 0 where nothing is; pyrender's flag for depth alone draws an empty one here."""
        width, height, focal = intrinsics.width, intrinsics.height, intrinsics.focal_px
        self._canvas.viewport_width, self._canvas.viewport_height = width, height
        camera = self._pyrender.IntrinsicsCamera(focal, focal, width / 2, height / 2, znear=NEAR_M, zfar=FAR_M)
        camera_node = self._scene.add(camera, pose=pose.camera_to_world @ _OPENCV_TO_OPENGL)
        mesh = self._nodes[key].mesh
        mesh.is_visible = True
        flags = self._pyrender.RenderFlags.FLAT | self._pyrender.RenderFlags.SKIP_CULL_FACES
        drawn = self._canvas.render(self._scene, flags)
        mesh.is_visible = False
        self._scene.remove_node(camera_node)
        return drawn

    def _primitive(self, part: Part) -> object:
        """The part as a pyrender.Primitive."""
        if part.colours is not None:
            material = self._pyrender.MetallicRoughnessMaterial(doubleSided=True)
            colours = np.column_stack([part.colours, np.full(len(part.vertices), 255, dtype=np.uint8)])
            return self._pyrender.Primitive(part.vertices, indices=part.faces, color_0=colours, material=material)
        texture = self._pyrender.Texture(source=part.image, source_channels="RGB")
        material = self._pyrender.MetallicRoughnessMaterial(doubleSided=True, baseColorTexture=texture)
        return self._pyrender.Primitive(part.vertices, indices=part.faces, texcoord_0=part.uv, material=material)
