"""The supported model families: each module here has the Family records of one, and none is listed elsewhere."""

import importlib
import pkgutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

from roomscout.models import ModelError
from roomscout.models.transformers.families.family import Family

if TYPE_CHECKING:
    from transformers import PreTrainedConfig


def _records() -> Iterator[Family]:
    for module in pkgutil.iter_modules(__path__):
        contents = vars(importlib.import_module(f"{__name__}.{module.name}"))
        yield from (each for each in contents.values() if isinstance(each, Family))


FAMILIES = tuple({each.name: each for each in _records()}.values())
"""All supported families."""


def family_of(config: "PreTrainedConfig") -> Family:
    """The family of a checkpoint; raises ModelError, listing the supported families, for any other checkpoint."""
    for family in FAMILIES:
        if config.model_type in family.model_types:
            return family
    supported = ", ".join(f"{family.name} (e.g. {family.example})" for family in FAMILIES)
    raise ModelError(
        f"{config.name_or_path or 'the model'} is a {config.model_type!r} checkpoint; the supported families are "
        f"{supported}"
    )


def require_tiles(family: Family, tiles_per_view: int) -> None:
    """Raise ModelError if several tiles per view are requested of a family without tiles."""
    if tiles_per_view > 1 and not family.tiled:
        tiled = ", ".join(each.name for each in FAMILIES if each.tiled)
        raise ModelError(f"--tiles-per-view is for {tiled}: {family.name} does not split views into tiles")
