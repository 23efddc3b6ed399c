"""What a checkpoint needs and what a device has, without loading any weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from agent.backends.loading import checkpoint_config, checkpoint_part, free_bytes, resolve_device, resolve_dtype

_MATRIX_SIDE = {"cuda": 8192, "cpu": 1024, "mps": 2048}
_COPY_BYTES = {"cuda": 2**31, "cpu": 2**27, "mps": 2**28}


@dataclass(frozen=True)
class Footprint:
    """A checkpoint's size on a device, in bytes, and what is free there before it is loaded.

    `kv_bytes_per_token` are the keys and values of all layers for one token of one conversation; `pixels_per_token`
    is the side of the square of pixels that becomes one image token.
    """

    device: str
    dtype: str
    parameters: int
    weight_bytes: int
    kv_bytes_per_token: int
    pixels_per_token: int
    free_bytes: int

    def image_tokens(self, width: int, height: int) -> int:
        """Tokens of one view."""
        return (width // self.pixels_per_token) * (height // self.pixels_per_token)


@dataclass(frozen=True)
class Rates:
    """What a device does at best, measured: bytes copied per second (read plus written) and operations per second."""

    bytes_per_s: float
    flop_per_s: float


def footprint(model: str, dtype: str, device: str) -> Footprint:
    """The footprint of a checkpoint by hub id or folder; raises ModelError where its configuration cannot be had."""
    where = resolve_device(device)
    number = resolve_dtype(dtype, where)
    config = checkpoint_config(model)
    with torch.device("meta"):
        parameters = sum(weight.numel() for weight in AutoModelForImageTextToText.from_config(config).parameters())
    text, vision = config.text_config, config.vision_config
    head = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    return Footprint(
        device=str(where),
        dtype=str(number).removeprefix("torch."),
        parameters=parameters,
        weight_bytes=parameters * number.itemsize,
        kv_bytes_per_token=2 * text.num_hidden_layers * text.num_key_value_heads * head * number.itemsize,
        pixels_per_token=vision.patch_size * vision.spatial_merge_size,
        free_bytes=free_bytes(where),
    )


def count_tokens(model: str, text: str) -> int:
    """How many tokens a text has for a checkpoint's tokenizer; raises ModelError where it cannot be had."""
    return len(checkpoint_part(AutoTokenizer, model)(text)["input_ids"])


def measure_rates(device: str, dtype: str) -> Rates:
    """Copy and multiply once on the device, after a warm-up; takes about a second."""
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
