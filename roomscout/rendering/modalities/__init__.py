"""The kinds of images beside the view: each module here has the Modality of its name, and none is listed elsewhere."""

import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from roomscout.base.shots import VIEW, Shot

if TYPE_CHECKING:
    from roomscout.rendering.modalities.modality import Modality, Sight

MODALITY_NAMES = tuple(module.name for module in pkgutil.iter_modules(__path__) if module.name != "modality")
"""What may follow the view."""


@cache
def find_modality(name: str) -> "Modality":
    """The modality of one of these names."""
    module = importlib.import_module(f"{__name__}.{name}")
    return next(value for value in vars(module).values() if getattr(value, "name", None) == name)


def draw_shots(names: Sequence[str], sight: "Sight") -> tuple[Shot, ...]:
    """The images of a turn, by name, the view first; raises RenderError. The blind renderer's are all grey. Raises
    ValueError for a modality of another size than the view, which no plan of memory would count."""
    shots = []
    blind = sight.renderer.name == "blind"
    for name in names:
        image = sight.view if name == VIEW or blind else find_modality(name).draw(sight)
        if image.shape != sight.view.shape or image.dtype != "uint8":
            what = f"{sight.view.shape} uint8, as the view is, not {image.shape} {image.dtype}"
            raise ValueError(f"the modality {name} must draw {what}")
        shots.append(Shot(name, image))
    return tuple(shots)
