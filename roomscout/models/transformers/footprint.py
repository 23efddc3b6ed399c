"""Memory that checkpoints take, without loading weights."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer, PreTrainedConfig, PreTrainedModel

from roomscout.models import MEMORY_FRACTION
from roomscout.models.transformers.devices import resolve_device, resolve_dtype, usable_bytes
from roomscout.models.transformers.families import family_of, require_tiles
from roomscout.models.transformers.families.family import Family
from roomscout.models.transformers.layers import kv_token_bytes, state_bytes
from roomscout.models.transformers.loading import checkpoint_config, checkpoint_part, checkpoint_processor, is_here
from roomscout.models.transformers.shapes import CHECKPOINTS, make_config

# Bytes of a quantized weight: NF4 has a float32 scale for each 64 of them.
_STORED_BYTES: dict[str | None, float] = {"4bit": 0.5 + 4 / 64, "8bit": 1.0}


@dataclass(frozen=True)
class Footprint:
    """A checkpoint's size on a device."""

    device: str  # such as "cuda:0"
    dtype: str  # of weights that are not quantized, such as "bfloat16"
    parameters: int  # numbers of all weights
    weight_bytes: int  # of all weights, quantized if they are to be
    kv_bytes_per_token: int  # keys and values in all layers
    image_tokens: Callable[[int, int], int] = field(compare=False)  # of a view of this width and height in pixels
    free_bytes: int  # that may be used on the device
    state_bytes: int = 0  # of a conversation's states now, and of their copy from before the last call
    attention_heads: int = 1  # of the language model


def dtype_on(device: str, dtype: str) -> str:
    """The name of the data type that "auto" or a name means on a device of this machine; raises ModelError."""
    return str(resolve_dtype(dtype, resolve_device(device))).removeprefix("torch.")


def checkpoint_family(model: str) -> Family:
    """A checkpoint's family, that of last resort with its processor's views; ModelError if a file is not available."""
    family = family_of(config := _config_of(model))
    return family_of(config, checkpoint_processor(model)) if family.by_processor else family


def sees_videos(model: str) -> bool:
    """Whether a checkpoint takes a video as one input, known ones also before download; ModelError if unavailable."""
    family = checkpoint_family(model)
    if family.video is None or (model in CHECKPOINTS and not is_here(model, "tokenizer.json")):
        return family.video is not None
    return family.sees_videos(checkpoint_processor(model))


def footprint(
    model: str, dtype: str, device: str, tiles: int = 1, quantize: str | None = None, fraction: float = MEMORY_FRACTION
) -> Footprint:
    """The footprint of a checkpoint on a device of this machine; ModelError if it or its configuration is missing."""
    where = resolve_device(device)
    number = resolve_dtype(dtype, where)
    config = _config_of(model)
    with torch.device("meta"):
        weightless = AutoModelForImageTextToText.from_config(config)
    parameters = sum(weight.numel() for weight in weightless.parameters())
    family = checkpoint_family(model)
    require_tiles(family, tiles)
    saved = sum(weight.numel() for weight in linear_weights(weightless).values()) if quantize else 0
    return Footprint(
        device=str(where),
        dtype=str(number).removeprefix("torch."),
        parameters=parameters,
        weight_bytes=parameters * number.itemsize - int(saved * (number.itemsize - _STORED_BYTES.get(quantize, 0))),
        kv_bytes_per_token=kv_token_bytes(config, number.itemsize),
        image_tokens=lambda width, height: family.views.tokens(config, width, height, tiles),
        free_bytes=usable_bytes(where, fraction),
        state_bytes=2 * state_bytes(config),
        attention_heads=config.get_text_config().num_attention_heads,
    )


def linear_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights that are quantized if any are, by name: those of linear layers but the head."""
    head = model.get_output_embeddings()
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }


def count_tokens(model: str, text: str) -> int:
    """The number of tokens of a text with a checkpoint's tokenizer; raises ModelError if that is not available."""
    return len(checkpoint_part(AutoTokenizer, model)(text)["input_ids"])


def _config_of(model: str) -> PreTrainedConfig:
    """The configuration of a checkpoint; built from known sizes if those suffice and it was not downloaded."""
    if model in CHECKPOINTS and not is_here(model, "config.json"):
        return make_config(CHECKPOINTS[model])
    return checkpoint_config(model)
