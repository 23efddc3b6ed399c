"""Renderers: one Protocol and its implementations."""

from rendering.renderers.base import BACKGROUND_RGB, Renderer, RenderError
from rendering.renderers.choice import RENDERER_NAMES, RendererStart, make_renderer

__all__ = ["BACKGROUND_RGB", "RENDERER_NAMES", "RenderError", "Renderer", "RendererStart", "make_renderer"]
