"""What a checkpoint needs and what a device has, without loading any weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from models.gpus import FLOP_SHARE, GPUS, MEMORY_SHARE, GpuName
from models.transformers.families import Family, family_of
from models.transformers.kv_cache import kv_token_bytes
from models.transformers.loading import (
    checkpoint_config,
    checkpoint_part,
    free_bytes,
    is_here,
    is_out_of_memory,
    resolve_device,
    resolve_dtype,
)
from models.transformers.shapes import CHECKPOINTS
from models.transformers.untrained import make_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}
_COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}


@dataclass(frozen=True)
class Rates:
    """What a device does at best: bytes copied per second (read plus written) and operations per second."""

    bytes_per_s: float
    flop_per_s: float


@dataclass(frozen=True)
class Work:
    """What a model computes and reads. Each token passes through `token_parameters` of the language model, each patch
    of an image through `patch_parameters` of the image encoder; a parameter has `number_bytes`, and the keys and values
    of all layers for one token of one conversation have `kv_bytes_per_token`. The language model has `layers` layers,
    the image encoder `encoder_layers`.

    Least times are those of a roofline (S. Williams et al., "Roofline", CACM 2009): all but the model's arithmetic and
    reading is free.
    """

    token_parameters: int
    patch_parameters: float
    number_bytes: int
    kv_bytes_per_token: int
    layers: int
    encoder_layers: int

    def least_prefill_seconds(self, rates: Rates, tokens: float, patches: float) -> float:
        """The least time to compute `tokens` of text and images and `patches` of images, over all rows: 2 operations a
        parameter each."""
        return 2 * (self.token_parameters * tokens + self.patch_parameters * patches) / rates.flop_per_s

    def least_step_seconds(self, rates: Rates, rows: float, held_tokens: float) -> float:
        """The least time of one decoding step, the longer of reading and computing: it reads the language model once
        for all rows, and the keys and values of the `held_tokens` of all rows together."""
        read = self.token_parameters * self.number_bytes + held_tokens * self.kv_bytes_per_token
        return max(read / rates.bytes_per_s, 2 * self.token_parameters * rows / rates.flop_per_s)

    def least_seconds(
        self, rates: Rates, rows: float, tokens: float, patches: float, held_tokens: float, reply_tokens: float
    ) -> float:
        """The least time of one call: `tokens` and `patches` are computed first, then `reply_tokens` for each of `rows`
        behind `held_tokens`, of all rows together."""
        held = held_tokens + rows * reply_tokens / 2  # as many as in the middle of the reply
        first = self.least_prefill_seconds(rates, tokens, patches)
        return first + reply_tokens * self.least_step_seconds(rates, rows, held)


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
    """The footprint of a checkpoint by hub id or folder on a device of this machine; raises ModelError where the
    device or the checkpoint's configuration cannot be had."""
    where = resolve_device(device)
    return _footprint(model, resolve_dtype(dtype, where), str(where), free_bytes(where))


def footprint_on(gpu: GpuName, model: str, dtype: str) -> Footprint:
    """The footprint of a checkpoint on a GPU that need not be here, where nothing else runs; raises ModelError where
    the checkpoint's configuration cannot be had."""
    return _footprint(model, resolve_dtype(dtype, torch.device("cuda")), gpu, GPUS[gpu].free_bytes)


def rates_of(gpu: GpuName) -> Rates:
    """What measuring on this GPU would give: the assumed shares of its peaks."""
    peak = GPUS[gpu]
    return Rates(MEMORY_SHARE * peak.peak_bytes_per_s, FLOP_SHARE * peak.peak_flop_per_s)


def checkpoint_family(model: str) -> Family:
    """The family of a checkpoint; raises ModelError where its configuration cannot be had."""
    return family_of(_config_of(model))


def _config_of(model: str) -> "PreTrainedConfig":
    """The configuration of a checkpoint, made from its known sizes where it was not downloaded yet."""
    known = model in CHECKPOINTS and not is_here(model, "config.json")
    return make_config(CHECKPOINTS[model]) if known else checkpoint_config(model)


def _footprint(model: str, number: torch.dtype, device: str, free: int) -> Footprint:
    config = _config_of(model)
    with torch.device("meta"):
        weightless = AutoModelForImageTextToText.from_config(config)
    parameters, family = _size(weightless), family_of(config)
    return Footprint(
        device=device,
        dtype=str(number).removeprefix("torch."),
        parameters=parameters,
        weight_bytes=parameters * number.itemsize,
        work=work_of(weightless, number.itemsize),
        pixels_per_token=family.pixels_per_token,
        patches_per_token=family.patches_per_token,
        free_bytes=free,
    )


def work_of(model: "PreTrainedModel", number_bytes: int) -> Work:
    """What a model computes; only the shapes of its weights matter. Excludes tables that are looked up, counts mergers
    once per token, and of a mixture of experts counts only those that a token is sent to."""
    text, family = model.config.get_text_config(), family_of(model.config)

    def multiplied(part: str) -> int:
        tables = (table for table in family.lookups if table.startswith(f"{part}."))
        return _size(model.get_submodule(part)) - sum(_size(model.get_submodule(table)) for table in tables)

    named = model.get_submodule(family.language_model).named_parameters()
    experts = sum(weight.numel() for name, weight in named if ".experts." in name)
    idle = experts - experts * text.num_experts_per_tok // text.num_experts if experts else 0
    mergers = sum(_size(model.get_submodule(merger)) for merger in family.mergers)
    return Work(
        token_parameters=multiplied(family.language_model) - idle + _size(model.get_submodule(family.head)),
        patch_parameters=multiplied(family.image_encoder) - mergers * (1 - 1 / family.patches_per_token),
        number_bytes=number_bytes,
        kv_bytes_per_token=kv_token_bytes(text, number_bytes),
        layers=text.num_hidden_layers,
        encoder_layers=len(model.get_submodule(family.image_layers)),
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
