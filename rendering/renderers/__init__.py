"""Renderers: one Protocol and its implementations."""

from rendering.registry import RENDERER_NAMES
from rendering.renderers.base import BACKGROUND_RGB, Renderer, RenderError
from rendering.renderers.choice import RendererStart, make_renderer

__all__ = ["BACKGROUND_RGB", "RENDERER_NAMES", "RenderError", "Renderer", "RendererStart", "make_renderer"]
