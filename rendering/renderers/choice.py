"""Makes a renderer by name."""

from rendering.renderers.base import Renderer, RenderError

RENDERER_NAMES = ("auto", "raycast")


def make_renderer(name: str) -> Renderer:
    """The renderer of this name, ready to draw."""
    if name not in RENDERER_NAMES:
        raise RenderError(f"there is no renderer {name!r}: choose one of {', '.join(RENDERER_NAMES)}")
    from rendering.renderers.raycast import RaycastRenderer

    return RaycastRenderer()
