"""The supported model families. To add one, write a module here and list its record in FAMILIES."""

from typing import TYPE_CHECKING

from roomscout.models import ModelError
from roomscout.models.transformers.families.family import Family, ImageInputs, full_attention_only
from roomscout.models.transformers.families.internvl import INTERNVL
from roomscout.models.transformers.families.llava_onevision import LLAVA_ONEVISION
from roomscout.models.transformers.families.qwen import QWEN2_5_VL, QWEN3_5, QWEN3_VL

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
    "family_of",
    "full_attention_only",
    "require_tiles",
]

FAMILIES = (QWEN3_VL, QWEN2_5_VL, QWEN3_5, INTERNVL, LLAVA_ONEVISION)
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
