"""What a checkpoint needs and what a device has, without loading any weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from agent.backends.loading import (
    checkpoint_config,
    checkpoint_part,
    free_bytes,
    is_out_of_memory,
    resolve_device,
    resolve_dtype,
)

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}
_COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}


@dataclass(frozen=True)
class Rates:
    """What a device does at best, measured: bytes copied per second (read plus written) and operations per second."""

    bytes_per_s: float
    flop_per_s: float


@dataclass(frozen=True)
class Work:
    """What a model computes and reads. Each token passes through `token_parameters` of the language model, each patch
    of an image through `patch_parameters` of the image encoder; a parameter has `number_bytes`, and the keys and values
    of all layers for one token of one conversation have `kv_bytes_per_token`."""

    token_parameters: int
    patch_parameters: float
    number_bytes: int
    kv_bytes_per_token: int

    def least_seconds(
        self, rates: Rates, rows: int, tokens: float, patches: float, held_tokens: float, reply_tokens: float
    ) -> float:
        """The least time of one call for some rows, all but the model's arithmetic and reading free: a roofline (S.
        Williams et al., "Roofline", CACM 2009).

        `tokens` and `patches` are computed first, 2 operations a parameter each. Then each step of `reply_tokens` reads
        the language model once for all rows, and all keys and values: `held_tokens` and the replies so far. It takes
        the longer of reading and computing.
        """
        first = 2 * (self.token_parameters * tokens + self.patch_parameters * patches) / rates.flop_per_s
        held = held_tokens + rows * reply_tokens / 2
        read = self.token_parameters * self.number_bytes + held * self.kv_bytes_per_token
        step = max(read / rates.bytes_per_s, 2 * self.token_parameters * rows / rates.flop_per_s)
        return first + reply_tokens * step


@dataclass(frozen=True)
class Footprint:
    """A checkpoint's size on a device, in bytes, what it computes, and what is free there before it is loaded.

    `pixels_per_token` is the side of the square of pixels that becomes one image token, of `patches_per_token` patches.
    """

    device: str
    dtype: str
    parameters: int
    weight_bytes: int
    work: Work
    pixels_per_token: int
    patches_per_token: int
    free_bytes: int

    def image_tokens(self, width: int, height: int) -> int:
        """Tokens of one view."""
        return (width // self.pixels_per_token) * (height // self.pixels_per_token)


def footprint(model: str, dtype: str, device: str) -> Footprint:
    """The footprint of a checkpoint by hub id or folder; raises ModelError where its configuration cannot be had."""
    where = resolve_device(device)
    number = resolve_dtype(dtype, where)
    config = checkpoint_config(model)
    with torch.device("meta"):
        weightless = AutoModelForImageTextToText.from_config(config)
    parameters, vision = _size(weightless), config.vision_config
    return Footprint(
        device=str(where),
        dtype=str(number).removeprefix("torch."),
        parameters=parameters,
        weight_bytes=parameters * number.itemsize,
        work=work_of(weightless, number.itemsize),
        pixels_per_token=vision.patch_size * vision.spatial_merge_size,
        patches_per_token=vision.spatial_merge_size**2,
        free_bytes=free_bytes(where),
    )


def work_of(model: "PreTrainedModel", number_bytes: int) -> Work:
    """What a Qwen3-VL computes, of whose weights only the shapes count. Tables that are looked up are no work, mergers
    work once for the patches of a token, and of a mixture of experts only those count that a token is sent to."""
    text, vision, core = model.config.text_config, model.config.vision_config, model.model
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    experts = sum(weight.numel() for name, weight in core.language_model.named_parameters() if ".experts." in name)
    idle = experts - experts * text.num_experts_per_tok // text.num_experts if experts else 0
    language = _size(core.language_model) - core.language_model.embed_tokens.weight.numel() - idle
    mergers = sum(map(_size, (core.visual.merger, *core.visual.deepstack_merger_list)))
    return Work(
        token_parameters=language + model.lm_head.weight.numel(),
        patch_parameters=_size(core.visual)
        - _size(core.visual.pos_embed)
        - mergers * (1 - 1 / vision.spatial_merge_size**2),
        number_bytes=number_bytes,
        kv_bytes_per_token=2 * text.num_hidden_layers * text.num_key_value_heads * head * number_bytes,
    )


def _size(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def count_tokens(model: str, text: str) -> int:
    """How many tokens a text has for a checkpoint's tokenizer; raises ModelError where it cannot be had."""
    return len(checkpoint_part(AutoTokenizer, model)(text)["input_ids"])


def measure_rates(device: str, dtype: str) -> Rates | None:
    """Copy and multiply once on the device, after a warm-up; takes about a second. None where too little memory is free
    for that."""
    try:
        return _measured_rates(device, dtype)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _measured_rates(device: str, dtype: str) -> Rates:
    where = resolve_device(device)
    number = resolve_dtype(dtype, where)
    source = torch.ones(_COPY_BYTES[where.type], dtype=torch.uint8, device=where)
    target = torch.empty_like(source)
    copied_s = _seconds(where, lambda: target.copy_(source))
    side = _MATRIX_SIDE[where.type]
    matrix = torch.randn(side, side, device=where).to(number)
    multiplied_s = _seconds(where, lambda: matrix @ matrix)
    return Rates(2 * source.numel() / copied_s, 2 * side**3 / multiplied_s)


def _seconds(where: torch.device, work: Callable[[], object]) -> float:
    """Wall seconds of the best of three runs, after one that does not count."""
    timed = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        timed.append(time.perf_counter() - started)
    return min(timed[1:])
