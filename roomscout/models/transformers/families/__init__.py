"""The model families: each module here but `last_resort` has the Family records of one; none is listed elsewhere."""

import importlib
import pkgutil
from typing import TYPE_CHECKING

from roomscout.models import ModelError
from roomscout.models.transformers.families.family import Family
from roomscout.models.transformers.families.last_resort import last_resort

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, ProcessorMixin


_MODULES = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
_RECORDS = [value for module in _MODULES for value in vars(module).values() if isinstance(value, Family)]
FAMILIES = tuple({family.name: family for family in _RECORDS}.values())  # all supported families


def family_of(config: "PreTrainedConfig", processor: "ProcessorMixin | None" = None) -> Family:
    """A checkpoint's family, else that of last resort, with the processor's views; ModelError if it takes no images."""
    for family in FAMILIES:
        if config.model_type in family.model_types:
            return family
    if (other := last_resort(config, processor)) is not None:
        return other
    raise ModelError(
        f"{config.name_or_path or 'the model'} is a {config.model_type!r} checkpoint, which transformers does not list "
        f"among its image-text-to-text models: use one such as {FAMILIES[0].example}"
    )


def require_tiles(family: Family, tiles_per_view: int) -> None:
    """Raise ModelError if several tiles per view are requested of a family without tiles."""
    if tiles_per_view > 1 and not family.tiled:
        tiled = ", ".join(other.name for other in FAMILIES if other.tiled)
        why = f"several tiles per view are for {tiled}: {family.name} does not split views into tiles"
        raise ModelError(why, setting="tiles_per_view")
