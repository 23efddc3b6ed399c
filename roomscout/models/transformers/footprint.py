"""What is known of a checkpoint without its weights, and the memory that it takes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from transformers import AutoModelForImageTextToText, PreTrainedConfig, PreTrainedModel, ProcessorMixin

from roomscout.models import MEMORY_FRACTION
from roomscout.models.transformers.devices import resolve_device, resolve_dtype, usable_bytes
from roomscout.models.transformers.families import family_of, require_tiles
from roomscout.models.transformers.layers import kv_token_bytes, state_bytes
from roomscout.models.transformers.loading import checkpoint_config, checkpoint_processor, in_one_sentence
from roomscout.models.transformers.shapes import CHECKPOINTS, make_config
from roomscout.models.transformers.source import file_here
from roomscout.models.transformers.weights import Checked, check_checkpoint

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


class Checkpoint:
    """What a checkpoint, a folder or a hub id as `id@revision`, says of itself without its weights, and on a device of
    this machine, in this engine or, unless it `loads_here`, another. Known ones are described before their download as
    well. Raises ModelError for a file that is not available, and for a device that is not there."""

    def __init__(self, name: str, device: str = "auto", dtype: str = "auto", loads_here: bool = True) -> None:
        self.name = name
        self._loads_here = loads_here
        self.device = resolve_device(device)
        self.dtype = resolve_dtype(dtype, self.device)  # of weights that are not quantized
        if name in CHECKPOINTS and not file_here(name, "config.json"):
            self.config: PreTrainedConfig = make_config(CHECKPOINTS[name])
        else:
            self.config = checkpoint_config(name)
        family = family_of(self.config)
        if family.by_processor:
            with in_one_sentence(name):
                family = family_of(self.config, self.processor)
        self.family = family  # that of last resort has its processor's views

    @cached_property
    def processor(self) -> ProcessorMixin:
        """The checkpoint's processor; raises ModelError without one."""
        return checkpoint_processor(self.name)

    @cached_property
    def checked(self) -> Checked:
        """See `check_checkpoint`; raises ModelError for a checkpoint with a fault."""
        return check_checkpoint(self.name, self.config, self.processor, self.device, self._loads_here)

    @property
    def lacks_tokenizer(self) -> bool:
        """Whether it is known, and its tokenizer is not on this machine."""
        return self.name in CHECKPOINTS and not file_here(self.name, "tokenizer.json")

    @property
    def sees_videos(self) -> bool:
        """Whether it takes a video as one input."""
        if self.family.video is None or self.lacks_tokenizer:
            return self.family.video is not None
        return self.family.sees_videos(self.processor)

    @property
    def dtype_name(self) -> str:
        """The data type as settings name it, such as "bfloat16"."""
        return str(self.dtype).removeprefix("torch.")

    def count_tokens(self, text: str) -> int:
        """The number of tokens of a text."""
        return len(self.processor.tokenizer(text)["input_ids"])

    def footprint(self, tiles: int = 1, quantize: str | None = None, fraction: float = MEMORY_FRACTION) -> Footprint:
        """Its size on the device; that of weights which are quantized already is that of their files."""
        with in_one_sentence(self.name):
            number_bytes = self.dtype.itemsize
            with torch.device("meta"):
                weightless = AutoModelForImageTextToText.from_config(self.config)
            parameters = sum(weight.numel() for weight in weightless.parameters())
            require_tiles(self.family, tiles)
            saved = sum(weight.numel() for weight in linear_weights(weightless).values()) if quantize else 0
            weight_bytes = parameters * number_bytes - int(saved * (number_bytes - _STORED_BYTES.get(quantize, 0)))
            if getattr(self.config, "quantization_config", None):
                weight_bytes = self.checked.stored_bytes or weight_bytes
            return Footprint(
                device=str(self.device),
                dtype=self.dtype_name,
                parameters=parameters,
                weight_bytes=weight_bytes,
                kv_bytes_per_token=kv_token_bytes(self.config, number_bytes),
                image_tokens=lambda width, height: self.family.views.tokens(self.config, width, height, tiles),
                free_bytes=usable_bytes(self.device, fraction),
                state_bytes=2 * state_bytes(self.config),
                attention_heads=self.config.get_text_config().num_attention_heads,
            )


def linear_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """The weights that are quantized if any are, by name: those of linear layers but the head."""
    head = model.get_output_embeddings()
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }
