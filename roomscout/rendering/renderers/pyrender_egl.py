"""Renders with OpenGL through pyrender on an EGL device, for machines with a GPU."""

import ctypes
import os
from collections.abc import Callable, Iterator
from ctypes import c_int, c_uint, c_void_p
from functools import partial
from typing import Any

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.base import BACKGROUND_RGB, FAR_M, NEAR_M
from roomscout.rendering.scene import Surface

_OPENCV_TO_OPENGL = np.diag([1.0, -1.0, -1.0, 1.0])  # from camera axes y down, z forward to y up, z backward
_EGL_EXTENSIONS = 0x3055
_EGL_CUDA_DEVICE_NV = 0x323A  # from the EGL extension EGL_NV_device_cuda


class PyrenderPainter:
    """Draws surfaces by key in the process of a `ChildRenderer`, in a single thread. All are in one pyrender scene and
    the current one is visible: pyrender frees the GPU memory of everything outside the scene that it renders."""

    def __init__(self, cuda_device: int | None = None) -> None:
        """Render on the GPU with this CUDA ordinal, or on the first EGL device if EGL does not offer it; EGL_DEVICE_ID
        in the environment overrides both, and is set here for pyrender otherwise."""
        os.environ["PYOPENGL_PLATFORM"] = "egl"
        where = f"EGL device {os.environ.get('EGL_DEVICE_ID', '0')}"
        if cuda_device is not None and "EGL_DEVICE_ID" not in os.environ:
            ordinals = cuda_ordinals()
            if cuda_device in ordinals:
                index = ordinals.index(cuda_device)
                os.environ["EGL_DEVICE_ID"] = str(index)
                where = f"EGL device {index}, CUDA device {cuda_device}"
        import pyrender
        from OpenGL import GL

        self._pyrender = pyrender
        self._scene = pyrender.Scene(bg_color=[*(channel / 255 for channel in BACKGROUND_RGB), 1.0])
        self._canvas = pyrender.OffscreenRenderer(64, 64)
        self._nodes: dict[int, pyrender.Node] = {}
        self.device = f"{GL.glGetString(GL.GL_RENDERER).decode()} ({where})"
        # By default, OpenGL expects image rows padded to 4 bytes, which RGB rows of most widths are not.
        GL.glPixelStorei(GL.GL_UNPACK_ALIGNMENT, 1)

    def add(self, key: int, surface: Surface) -> None:
        """Build pyrender's mesh; the next render uploads it to the GPU."""
        mesh = self._pyrender.Mesh(list(self._primitives(surface)), is_visible=False)
        self._nodes[key] = self._scene.add(mesh)

    def drop(self, key: int) -> None:
        """Remove the mesh; the next render frees its GPU memory."""
        self._scene.remove_node(self._nodes.pop(key))

    def image(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W, 3) uint8 RGB."""
        return self._draw(key, pose, intrinsics)[0].copy()

    def depth(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> np.ndarray:
        """(H, W) float32 metres along the optical axis; inf if there is no surface."""
        depth = self._draw(key, pose, intrinsics)[1]
        return np.where(depth > 0, depth, np.inf).astype(np.float32)

    def _draw(self, key: int, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
        """Image and depth (0 where there is no surface). Always renders both: DEPTH_ONLY gives no depth here."""
        focal = intrinsics.focal_px
        self._canvas.viewport_width = intrinsics.width
        self._canvas.viewport_height = intrinsics.height
        middle = (intrinsics.width / 2, intrinsics.height / 2)
        camera = self._pyrender.IntrinsicsCamera(focal, focal, *middle, znear=NEAR_M, zfar=FAR_M)
        camera_node = self._scene.add(camera, pose=pose.camera_to_world @ _OPENCV_TO_OPENGL)
        mesh = self._nodes[key].mesh
        mesh.is_visible = True
        flags = self._pyrender.RenderFlags.FLAT | self._pyrender.RenderFlags.SKIP_CULL_FACES
        drawn = self._canvas.render(self._scene, flags)
        mesh.is_visible = False
        self._scene.remove_node(camera_node)
        return drawn

    def _primitives(self, surface: Surface) -> Iterator[object]:
        """The faces with vertex colours as one primitive, then one for each texture image."""
        vertices = surface.vertices
        texturing = surface.texturing
        colours = np.column_stack([surface.colours, np.full(len(vertices), 255, dtype=np.uint8)])
        material = partial(self._pyrender.MetallicRoughnessMaterial, doubleSided=True)
        if texturing is None:
            yield self._pyrender.Primitive(vertices, indices=surface.faces, color_0=colours, material=material())
            return
        for index in np.unique(texturing.face_image):
            chosen = texturing.face_image == index
            corners = surface.faces[chosen].ravel()
            uv, texture = None, None
            if index >= 0:
                uv = texturing.face_uv[chosen].reshape(-1, 2)
                texture = self._pyrender.Texture(source=texturing.images[index], source_channels="RGB")
            yield self._pyrender.Primitive(
                vertices[corners],
                indices=np.arange(len(corners), dtype=np.int32).reshape(-1, 3),
                color_0=colours[corners],
                texcoord_0=uv,
                material=material(baseColorTexture=texture),
            )


def cuda_ordinals() -> list[int | None]:
    """The CUDA ordinal of each EGL device, None for a device invisible to CUDA; [] if EGL cannot list devices. Devices
    are in the order of eglQueryDevicesEXT, which EGL_DEVICE_ID indexes. Ordinals are relative to CUDA_VISIBLE_DEVICES,
    like PyTorch's, but EGL ignores that variable and lists all devices. Sources: NVIDIA/cuda-python pull request 2865;
    RLinf/RLinf pull request 1458, observed in a container with 4 of 8 GPUs. Raises OSError if libEGL is missing."""
    # Not through PyOpenGL: in version 3.1.0, which pyrender pins, importing OpenGL.GL after OpenGL.EGL fails.
    address_of = ctypes.CDLL("libEGL.so.1").eglGetProcAddress
    address_of.argtypes = [ctypes.c_char_p]
    address_of.restype = c_void_p

    def function(name: bytes, result: type, *arguments: type) -> Callable[..., Any] | None:
        address = address_of(name)
        return ctypes.CFUNCTYPE(result, *arguments)(address) if address else None

    list_devices = function(b"eglQueryDevicesEXT", c_uint, c_int, ctypes.POINTER(c_void_p), ctypes.POINTER(c_int))
    read_string = function(b"eglQueryDeviceStringEXT", ctypes.c_char_p, c_void_p, c_int)
    read_number = function(b"eglQueryDeviceAttribEXT", c_uint, c_void_p, c_int, ctypes.POINTER(ctypes.c_ssize_t))
    count = c_int()
    if not (list_devices and read_string and read_number and list_devices(0, None, count)):
        return []
    devices = (c_void_p * count.value)()
    if not list_devices(len(devices), devices, count):
        return []
    ordinals: list[int | None] = []
    for device in devices[: count.value]:
        ordinal = ctypes.c_ssize_t()
        # NVIDIA's driver 450.80 crashes when queried for the ordinal of a GPU that a cgroup hides from this process,
        # but it lists no extensions for such a GPU (Magnum, WindowlessEglApplication.cpp).
        extensions = (read_string(device, _EGL_EXTENSIONS) or b"").split()
        if b"EGL_NV_device_cuda" in extensions and read_number(device, _EGL_CUDA_DEVICE_NV, ordinal):
            ordinals.append(ordinal.value)
        else:
            ordinals.append(None)
    return ordinals
