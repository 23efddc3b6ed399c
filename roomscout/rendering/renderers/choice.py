"""Creates a renderer by name, or the best one that works here."""

import logging
from contextlib import closing
from functools import cache
from pathlib import Path

from roomscout.base.interrupts import undone_on_failure
from roomscout.rendering.open3d_import import Open3DError, import_open3d
from roomscout.rendering.registry import RENDERER_NAMES, RENDERERS
from roomscout.rendering.renderers.base import Renderer, RenderError
from roomscout.rendering.renderers.child import ChildRenderer
from roomscout.rendering.renderers.raycast import RaycastRenderer

_log = logging.getLogger(__name__)

_SOFTWARE_DEVICES = ("llvmpipe", "softpipe", "swrast", "software")  # Mesa's; on a CPU, ray casting is faster
_GPU_DEVICES = ("nvidia[0-9]*", "dri/*", "dxg")  # files below /dev; without any, OpenGL draws on the CPU


class RendererStart:
    """Starts a renderer in the background, with a child process that tests itself if it needs one. `renderer` waits for
    it; always `close`. The constructor raises RenderError for an unknown name."""

    def __init__(self, name: str, cuda_device: int | None = None) -> None:
        if name not in RENDERER_NAMES:
            names = ", ".join(RENDERER_NAMES)
            raise RenderError(f"unknown renderer {name!r}: choose one of {names}", setting="renderer")
        self._name = name
        self._cuda_device = cuda_device
        self._child: ChildRenderer | None = None
        drawn_by = "pyrender" if name == "auto" else name
        if RENDERERS[drawn_by].in_child:
            self._child = ChildRenderer(drawn_by, cuda_device)

    def renderer(self) -> Renderer:
        """The renderer, once it works; see `make_renderer`."""
        try:
            import_open3d()
        except Open3DError as error:
            raise RenderError(str(error)) from error
        if self._child is None:
            entry = RENDERERS[self._name]
            return entry.load()(self._cuda_device) if entry.on_cuda else entry.load()()
        if self._name == "auto" and not _draws_on_gpu(self._child):
            self._child.close()
            return RaycastRenderer()
        return self._child.started()

    def close(self) -> None:
        """End the child, if there is one; a renderer that uses it stops working."""
        if self._child is not None:
            self._child.close()


def make_renderer(name: str, cuda_device: int | None = None) -> Renderer:
    """Create the renderer of this name and check that it works. "auto" selects pyrender if it renders on a GPU, else
    raycast, and logs the choice and its reason. Any other name returns that renderer or raises RenderError. With
    `cuda_device`, pyrender uses that GPU unless the environment sets EGL_DEVICE_ID; without, the first EGL device.

    Loads Open3D, and raises RenderError if that fails: moves and first views cast rays with it under every renderer.
    If the process needs PyTorch on a GPU, load PyTorch first: in the other order, matrix products on the GPU have
    crashed (isl-org/Open3D issues 4877 and 5597).
    """
    start = RendererStart(name, cuda_device)
    with undone_on_failure(start.close):
        return start.renderer()


def _draws_on_gpu(child: ChildRenderer) -> bool:
    """Whether a child with OpenGL works, and draws on a GPU; logs why it does not."""
    try:
        device = child.started().device
    except RenderError as error:
        _log.debug("renderer auto: raycast, because OpenGL does not work here: %s", error)
        return False
    if any(word in device.lower() for word in _SOFTWARE_DEVICES):
        _log.debug("renderer auto: raycast, because OpenGL renders on the CPU here (%s)", device)
        return False
    return True


@cache
def best_renderer(cuda_device: int | None = None) -> str:
    """The name of the renderer that "auto" stands for on this machine: pyrender if it draws on a GPU, else raycast.
    Starts a process to find out, unless there is no device that could be one."""
    if not any(any(Path("/dev").glob(pattern)) for pattern in _GPU_DEVICES):
        return "raycast"
    with closing(ChildRenderer("pyrender", cuda_device)) as child:
        return "pyrender" if _draws_on_gpu(child) else "raycast"
