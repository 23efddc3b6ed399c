"""The model families that the engine runs. A new one is a module here and an entry in FAMILIES."""

from typing import TYPE_CHECKING

from models import ModelError
from models.transformers.families.family import Family, ImageInputs, attends_to_all
from models.transformers.families.internvl import INTERNVL
from models.transformers.families.llava_onevision import LLAVA_ONEVISION
from models.transformers.families.qwen import QWEN2_5_VL, QWEN3_5, QWEN3_VL

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

__all__ = [
    "FAMILIES",
    "INTERNVL",
    "LLAVA_ONEVISION",
    "QWEN2_5_VL",
    "QWEN3_5",
    "QWEN3_VL",
    "Family",
    "ImageInputs",
    "attends_to_all",
    "family_of",
    "require_tiles",
]

FAMILIES = (QWEN3_VL, QWEN2_5_VL, QWEN3_5, INTERNVL, LLAVA_ONEVISION)
"""All families that are supported."""


def family_of(config: "PreTrainedConfig") -> Family:
    """The family of a checkpoint; raises ModelError, with a list of those that are supported, if it belongs to none."""
    for family in FAMILIES:
        if config.model_type in family.model_types:
            return family
    supported = ", ".join(f"{family.name} (e.g. {family.example})" for family in FAMILIES)
    raise ModelError(
        f"{config.name_or_path or 'the model'} is a {config.model_type!r} checkpoint; the supported families are "
        f"{supported}"
    )


def require_tiles(family: Family, tiles_per_view: int) -> None:
    """Raise ModelError where views should be cut into several tiles and the family never does that."""
    if tiles_per_view > 1 and not family.tiled:
        tiled = ", ".join(each.name for each in FAMILIES if each.tiled)
        raise ModelError(f"--tiles-per-view is for {tiled}: {family.name} does not cut views into tiles")
