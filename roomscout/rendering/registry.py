"""The renderers by name. A new one is a module in rendering/renderers/ and an entry here."""

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RendererEntry:
    """Where a renderer's class is, as "module:Class" in rendering/renderers/: a Painter in a child process if
    `in_child`, else a Renderer, with the CUDA device if `on_cuda`. `fix` is for a child that does not start,
    `words` are the help's. Without `splats`, Gaussians are points."""

    target: str
    words: str
    in_child: bool = False
    fix: str = ""
    on_cuda: bool = False
    splats: bool = False

    def load(self) -> Any:
        """The class; imports its module."""
        module, _, name = self.target.partition(":")
        return getattr(importlib.import_module(f"{__package__}.renderers.{module}"), name)


RENDERERS = {
    "raycast": RendererEntry("raycast:RaycastRenderer", "rays on the CPU"),
    "pyrender": RendererEntry(
        "pyrender_egl:PyrenderPainter",
        "OpenGL",
        in_child=True,
        fix="apt-get install libegl1 libgl1-mesa-dri libxrender1",
    ),
    "splats": RendererEntry(
        "splats:SplatRenderer", "Gaussian splats on the CPU, to look at and too slow for runs", splats=True
    ),
    "gsplat": RendererEntry("splats:GsplatRenderer", "Gaussian splats on CUDA", on_cuda=True, splats=True),
    "blind": RendererEntry("raycast:BlindRenderer", "grey", splats=True),
}
RENDERER_NAMES = ("auto", *RENDERERS)


def draws_splats(renderer: str) -> bool:
    """Whether a renderer of this name wants Gaussian splats as such; False for a name that is not one of ours."""
    return renderer in RENDERERS and RENDERERS[renderer].splats
