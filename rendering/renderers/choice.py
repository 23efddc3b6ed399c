"""Makes a renderer by name, or finds the best that works here."""

import logging

from rendering.renderers.base import Renderer, RenderError
from rendering.renderers.blind import BlindRenderer
from rendering.renderers.child import ChildRenderer
from rendering.renderers.raycast import RaycastRenderer

_log = logging.getLogger(__name__)

RENDERER_NAMES = ("auto", "raycast", "pyrender", "open3d", "blind")
# Mesa's drivers that draw on the CPU, where ray casting is faster.
_SOFTWARE_DEVICES = ("llvmpipe", "softpipe", "swrast", "software")


def make_renderer(name: str) -> Renderer:
    """The renderer of this name, tried out and ready to draw.

    "auto" is pyrender where that draws on a GPU, else raycast; a line in the log says which and why. Any other name
    is that renderer or a RenderError, never silently another one.
    """
    if name == "auto":
        return _best_renderer()
    if name == "raycast":
        return RaycastRenderer()
    if name == "blind":
        return BlindRenderer()
    if name in RENDERER_NAMES:
        return ChildRenderer(name)
    raise RenderError(f"there is no renderer {name!r}: choose one of {', '.join(RENDERER_NAMES)}")


def _best_renderer() -> Renderer:
    try:
        renderer = ChildRenderer("pyrender")
    except RenderError as error:
        _log.info("renderer auto: raycast, because OpenGL does not work here: %s", error)
        return RaycastRenderer()
    if any(word in renderer.device.lower() for word in _SOFTWARE_DEVICES):
        renderer.close()
        _log.info("renderer auto: raycast, because OpenGL draws on the CPU here (%s)", renderer.device)
        return RaycastRenderer()
    _log.info("renderer auto: pyrender on %s", renderer.device)
    return renderer
