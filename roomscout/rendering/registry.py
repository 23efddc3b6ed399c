"""The renderers by name. A new one is a module in rendering/renderers/ and an entry here."""

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RendererEntry:
    """Where a renderer is, and how it is used."""

    target: str  # its class as "module:Class" in rendering/renderers/
    words: str  # what the help says of it
    in_child: bool = False  # whether the class draws for a `ChildRenderer`, and else is a Renderer
    fix: str = ""  # what to do if the child does not start
    on_cuda: bool = False  # whether the Renderer takes the CUDA device
    splats: bool = False  # whether it draws Gaussian splats as such, and else as points

    def load(self) -> Any:
        """The class; imports its module."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(f"{__package__}.renderers.{module}"), name)


_INSTALL_GL = "apt-get install libegl1 libgl1-mesa-dri libxrender1"
RENDERERS = {
    "raycast": RendererEntry("raycast:RaycastRenderer", "rays on the CPU"),
    "pyrender": RendererEntry("pyrender_egl:PyrenderPainter", "OpenGL", in_child=True, fix=_INSTALL_GL),
    "splats": RendererEntry(
        "splats:SplatRenderer", "Gaussian splats on the CPU, to look at and too slow for runs", splats=True
    ),
    "gsplat": RendererEntry("splats:GsplatRenderer", "Gaussian splats on CUDA", on_cuda=True, splats=True),
    "blind": RendererEntry("raycast:BlindRenderer", "grey", splats=True),
}
RENDERER_NAMES = ("auto", *RENDERERS)
