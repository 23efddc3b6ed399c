"""Renderers: one Protocol and its implementations."""

from roomscout.rendering.registry import RENDERER_NAMES
from roomscout.rendering.renderers.base import BACKGROUND_RGB, Renderer, RenderError
from roomscout.rendering.renderers.choice import RendererStart, make_renderer

__all__ = ["BACKGROUND_RGB", "RENDERER_NAMES", "RenderError", "Renderer", "RendererStart", "make_renderer"]
