"""The kinds of images beside the view: each module here has the Modality of one, and none is listed elsewhere."""

import importlib
import pkgutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from roomscout.base.shots import VIEW, Shot
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.modalities.modality import Modality

if TYPE_CHECKING:
    from roomscout.rendering.renderers.base import Renderer
    from roomscout.rendering.scene import Scene


def _records() -> Iterator[Modality]:
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}"))
        yield from (each for each in contents.values() if isinstance(each, Modality))


MODALITIES = {each.name: each for each in _records()}
"""What may follow the view, by name."""


def draw_shots(
    names: Sequence[str],
    renderer: "Renderer",
    scene: "Scene",
    pose: CameraPose,
    camera: Intrinsics,
    view: np.ndarray | None = None,
) -> tuple[Shot, ...]:
    """The images of a pose: the view, unless it is given, and those of the other `names`. Raises RenderError.

    With the blind renderer all are grey, as the view is: it measures what a model answers without seeing the room.
    """
    view = renderer.render(scene, pose, camera) if view is None else view
    blind = renderer.name == "blind"
    return tuple(
        Shot(name, view if name == VIEW or blind else MODALITIES[name].draw(renderer, scene, pose, camera))
        for name in names
    )
