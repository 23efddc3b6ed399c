"""Model families: what differs between the architectures that this engine runs, one record for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from models import ModelError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedConfig

ImageInputs = Mapping[str, "torch.Tensor"]
"""What a processor makes of one image, by the names of the model's inputs."""


@dataclass(frozen=True)
class Family:
    """What the engine needs to know about a model family; `config` arguments are a checkpoint's configuration.

    Encoding:

    - `placeholders(config, image)` are the token ids that replace the one image placeholder of the chat template.
    - `positions(config, ids, image)` are the positions (position_axes, len(ids)) of ids with one image, counted from 0:
      3 axes (time, height, width) for M-RoPE, 1 for ordinary positions.
    - `image_inputs` names the model's inputs for images. Those of several images are concatenated.

    Views: `pixels_per_token` is the side of the square of pixels that becomes one token of `patches_per_token` patches.
    The sides of a view are multiples of it. A view has between the two numbers of `tokens_per_view`, and is at most
    `longest_to_shortest` times as long as wide; the processor would resize any other.

    `can_keep(config)`: whether keys and values can be reused across turns.

    Parts of the model, as paths for `get_submodule`: `language_model`, the `head` that computes logits, the
    `image_encoder` and its `image_layers`. `mergers` compute once per token instead of once per patch, `lookups` are
    tables that are only read. `text_config` is the name of the language model's part of the configuration.
    """

    name: str
    example: str
    model_types: tuple[str, ...]
    placeholders: "Callable[[PreTrainedConfig, ImageInputs], list[int]]"
    position_axes: int
    positions: "Callable[[PreTrainedConfig, Sequence[int], ImageInputs], torch.Tensor]"
    image_inputs: tuple[str, ...]
    pixels_per_token: int
    patches_per_token: int
    tokens_per_view: tuple[int, int]
    longest_to_shortest: int
    can_keep: "Callable[[PreTrainedConfig], bool]"
    text_config: str
    language_model: str
    head: str
    image_encoder: str
    image_layers: str
    mergers: tuple[str, ...]
    lookups: tuple[str, ...]

    def why_not(self, width: int, height: int) -> str | None:
        """What --image-size takes instead of a view of this size; None for a size that the family takes as it is."""
        square, (least, most) = self.pixels_per_token, self.tokens_per_view
        if any(side < square or side % square for side in (width, height)):
            return f"multiples of {square} pixels"
        longest = self.longest_to_shortest
        if least <= width * height // square**2 <= most and max(width, height) <= longest * min(width, height):
            return None
        return (
            f"views of {least} to {most} squares of {square}x{square} pixels, at most {longest} times as long as wide"
        )


def family_of(config: "PreTrainedConfig") -> Family:
    """The family of a checkpoint; raises ModelError, naming those that are supported, if it belongs to none."""
    for family in FAMILIES:
        if config.model_type in family.model_types:
            return family
    supported = ", ".join(f"{family.name} ({' or '.join(family.model_types)})" for family in FAMILIES)
    examples = ", ".join(family.example for family in FAMILIES)
    raise ModelError(
        f"{config.name_or_path or 'the model'} is a {config.model_type!r} checkpoint, not {supported}: use e.g. "
        f"{examples}"
    )


def attends_to_all(config: "PreTrainedConfig") -> bool:
    """Whether every layer of the language model keeps keys and values and attends to all tokens."""
    text = config.get_text_config()
    kinds = getattr(text, "layer_types", None) or ["full_attention"]
    return bool(text.use_cache) and set(kinds) == {"full_attention"}


def _merged_grid(config: "PreTrainedConfig", image: ImageInputs) -> tuple[int, int]:
    """Rows and columns of an image's tokens."""
    _, rows, columns = image["image_grid_thw"][0].tolist()
    side = config.vision_config.spatial_merge_size
    return rows // side, columns // side


def _token_per_square(config: "PreTrainedConfig", image: ImageInputs) -> list[int]:
    rows, columns = _merged_grid(config, image)
    return [config.image_token_id] * (rows * columns)


def _mrope_positions(config: "PreTrainedConfig", ids: Sequence[int], image: ImageInputs) -> "torch.Tensor":
    """Positions (3, len(ids)) of text around one image, equal to those of Qwen3-VL's get_rope_index.

    Text counts up on all three axes. All tokens of an image have the time of its first; height and width add the
    token's row and column. Text continues after the longer side of the image.
    """
    import torch

    rows, columns = _merged_grid(config, image)
    count, start = rows * columns, ids.index(config.image_token_id)
    positions = torch.arange(len(ids)).repeat(3, 1)
    place = torch.arange(count)
    positions[:, start : start + count] = start + torch.stack([0 * place, place // columns, place % columns])
    positions[:, start + count :] += max(rows, columns) - count
    return positions


QWEN3_VL = Family(
    name="Qwen3-VL",
    example="Qwen/Qwen3-VL-8B-Instruct",
    model_types=("qwen3_vl", "qwen3_vl_moe"),
    placeholders=_token_per_square,
    position_axes=3,
    positions=_mrope_positions,
    image_inputs=("pixel_values", "image_grid_thw"),
    pixels_per_token=32,
    patches_per_token=4,
    tokens_per_view=(4, 16384),
    longest_to_shortest=200,
    can_keep=attends_to_all,
    text_config="text_config",
    language_model="model.language_model",
    head="lm_head",
    image_encoder="model.visual",
    image_layers="model.visual.blocks",
    mergers=("model.visual.merger", "model.visual.deepstack_merger_list"),
    lookups=("model.language_model.embed_tokens", "model.visual.pos_embed"),
)
"""Patch 16, merge 2: squares of 32x32 pixels. The limits of views are those of qwen-vl-utils."""

FAMILIES = (QWEN3_VL,)
"""All families that are supported."""
