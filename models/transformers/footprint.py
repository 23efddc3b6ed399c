"""What a checkpoint needs and what a device has, without loading any weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from models.gpus import FLOP_SHARE, GPUS, MEMORY_SHARE, GpuName
from models.transformers.families import Family, family_of, require_tiles
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
    of all layers for one token of one conversation have `kv_bytes_per_token`; what else a conversation takes, however
    long it is, has `state_bytes`. The language model has `layers` layers, the image encoder `encoder_layers`.

    Least times are those of a roofline (S. Williams et al., "Roofline", CACM 2009): all but the model's arithmetic and
    reading is free.
    """

    token_parameters: int
    patch_parameters: float
    number_bytes: int
    kv_bytes_per_token: int
    layers: int
    encoder_layers: int
    state_bytes: int = 0

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
        after `held_tokens` cached ones, of all rows together."""
        held = held_tokens + rows * reply_tokens / 2  # as many as in the middle of the reply
        first = self.least_prefill_seconds(rates, tokens, patches)
        return first + reply_tokens * self.least_step_seconds(rates, rows, held)


@dataclass(frozen=True)
class Footprint:
    """A checkpoint's size on a device, in bytes, what it computes, and what is free there before it is loaded.

    `image_tokens(width, height)` counts the tokens of one view, each of `patches_per_token` patches. `keeps_kv` says
    whether the family's keys and values can be reused across turns.
    """

    device: str
    dtype: str
    parameters: int
    weight_bytes: int
    work: Work
    image_tokens: Callable[[int, int], int] = field(compare=False)
    patches_per_token: int
    free_bytes: int
    keeps_kv: bool = True


def footprint(model: str, dtype: str, device: str, tiles_per_view: int = 1) -> Footprint:
    """The footprint of a checkpoint by hub id or folder on a device of this machine; raises ModelError where the
    device or the checkpoint's configuration is not available."""
    where = resolve_device(device)
    return _footprint(model, resolve_dtype(dtype, where), str(where), free_bytes(where), tiles_per_view)


def footprint_on(gpu: GpuName, model: str, dtype: str, tiles_per_view: int = 1) -> Footprint:
    """The footprint of a checkpoint on an idle GPU, which need not be in this machine; raises ModelError where the
    checkpoint's configuration is not available."""
    return _footprint(model, resolve_dtype(dtype, torch.device("cuda")), gpu, GPUS[gpu].free_bytes, tiles_per_view)


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


def _footprint(model: str, number: torch.dtype, device: str, free: int, tiles: int) -> Footprint:
    config = _config_of(model)
    with torch.device("meta"):
        weightless = AutoModelForImageTextToText.from_config(config)
    parameters, family = _size(weightless), family_of(config)
    require_tiles(family, tiles)
    return Footprint(
        device=device,
        dtype=str(number).removeprefix("torch."),
        parameters=parameters,
        weight_bytes=parameters * number.itemsize,
        work=work_of(weightless, number.itemsize),
        image_tokens=lambda width, height: family.views.tokens(config, width, height, tiles),
        patches_per_token=family.patches_per_token,
        free_bytes=free,
        keeps_kv=family.can_keep(config),
    )


def work_of(model: "PreTrainedModel", number_bytes: int) -> Work:
    """What a model computes; only the shapes of its weights matter. Excludes embedding lookups, counts mergers once per
    token, and counts only those experts of a mixture that a token is sent to."""
    text, family = model.config.get_text_config(), family_of(model.config)
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}

    def multiplied(part: str, besides: tuple[str, ...]) -> int:
        left_out = tuple(f"{other}." for other in besides)
        named = ((f"{name}.", size) for name, size in sizes.items())
        return sum(size for name, size in named if name.startswith(f"{part}.") and not name.startswith(left_out))

    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    idle = experts - experts * text.num_experts_per_tok // text.num_experts if experts else 0
    mergers = sum(_size(model.get_submodule(merger)) for merger in family.mergers)
    return Work(
        token_parameters=multiplied(family.language_model, family.lookups)
        - idle
        + _size(model.get_submodule(family.head)),
        patch_parameters=multiplied(family.image_encoder, family.lookups + family.mergers)
        + mergers / family.patches_per_token,
        number_bytes=number_bytes,
        kv_bytes_per_token=kv_token_bytes(text, number_bytes),
        layers=text.num_hidden_layers,
        encoder_layers=len(model.get_submodule(family.image_layers)),
        state_bytes=family.state_bytes(model.config),
    )


def _size(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def count_tokens(model: str, text: str) -> int:
    """How many tokens a text has for a checkpoint's tokenizer; raises ModelError where that is not available."""
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
