"""The renderers by name. A new one is a module in rendering/renderers/ and an entry here."""

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RendererEntry:
    """Where a renderer's class is, as "module:Class" in rendering/renderers/.

    With `in_child`, the class is a Painter that draws in a child process, created with the CUDA device; otherwise it is
    a Renderer without arguments. `fix` says what to do if the child does not start.
    """

    target: str
    in_child: bool = False
    fix: str = ""

    def load(self) -> Any:
        """The class; imports its module."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(f"{__package__}.renderers.{module}"), name)


RENDERERS = {
    "raycast": RendererEntry("raycast:RaycastRenderer"),
    "pyrender": RendererEntry(
        "pyrender_egl:PyrenderPainter", True, "apt-get install libegl1 libgl1-mesa-dri, or use --renderer raycast"
    ),
    "open3d": RendererEntry(
        "open3d_filament:FilamentPainter",
        True,
        "apt-get install libvulkan1 mesa-vulkan-drivers, or use --renderer raycast",
    ),
    "blind": RendererEntry("blind:BlindRenderer"),
}
RENDERER_NAMES = ("auto", *RENDERERS)
