"""The kinds of images beside the view: each module here has the Modality of one, and none is listed elsewhere."""

import importlib
import pkgutil
from collections.abc import Sequence

import numpy as np

from roomscout.base.shots import VIEW, Shot
from roomscout.rendering.modalities.modality import Modality, Sight

_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_RECORDS = (each for module in _MODULES for each in vars(module).values() if isinstance(each, Modality))
MODALITIES = {each.name: each for each in _RECORDS}  # what may follow the view, by name


def draw_shots(names: Sequence[str], sight: Sight) -> tuple[Shot, ...]:
    """The images of a turn, by name, the view first; raises RenderError. The blind renderer's are all grey. Raises
    ValueError for a modality of another size than the view, which no plan of memory would count."""
    shots, blind = [], sight.renderer.name == "blind"
    for name in names:
        image = sight.view if name == VIEW or blind else MODALITIES[name].draw(sight)
        if image.shape != sight.view.shape or image.dtype != np.uint8:
            what = f"{sight.view.shape} uint8, as the view is, not {image.shape} {image.dtype}"
            raise ValueError(f"the modality {name} must draw {what}")
        shots.append(Shot(name, image))
    return tuple(shots)
