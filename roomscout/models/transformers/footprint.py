"""Memory and compute of checkpoints and devices, without loading weights."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForImageTextToText, AutoTokenizer

from roomscout.models import MEMORY_FRACTION
from roomscout.models.gpus import FLOP_SHARE, GPUS, MEMORY_SHARE, GpuName
from roomscout.models.roofline import Rates, Work
from roomscout.models.transformers.devices import is_out_of_memory, resolve_device, resolve_dtype, usable_bytes
from roomscout.models.transformers.families import family_of, require_tiles
from roomscout.models.transformers.families.family import Family
from roomscout.models.transformers.kv_cache import kv_token_bytes
from roomscout.models.transformers.loading import checkpoint_config, checkpoint_part, is_here
from roomscout.models.transformers.shapes import CHECKPOINTS, make_config

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}
_STORED_BYTES: dict[str | None, float] = {"4bit": 0.5 + 4 / 64, "8bit": 1.0}
"""Bytes of a quantized weight: NF4 has a float32 scale for each 64 of them."""
_COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}


@dataclass(frozen=True)
class Footprint:
    """A checkpoint's size and work on a device, and the bytes that may be used there before it is loaded.

    `image_tokens(width, height)` counts a view's tokens, each of `patches_per_token` patches. `keeps_kv` says whether
    keys and values can be reused across turns.
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
    attention_heads: int = 1

    @property
    def mixes_turns(self) -> bool:
        """Whether fewer calls are worth the padding of batches of different turns. Not on a CPU, where the time of a
        call grows with its rows and columns.
        """
        return not self.device.startswith("cpu")


def dtype_on(device: str, dtype: str) -> str:
    """The name of the data type that a value of `--dtype` means on a device of this machine; raises ModelError."""
    return str(resolve_dtype(dtype, resolve_device(device))).removeprefix("torch.")


def footprint(
    model: str, dtype: str, device: str, tiles: int = 1, quantize: str | None = None, fraction: float = MEMORY_FRACTION
) -> Footprint:
    """The footprint of a checkpoint (hub id or folder) on a device of this machine; raises ModelError if the device or
    the checkpoint's configuration is not available."""
    where = resolve_device(device)
    return _footprint(model, resolve_dtype(dtype, where), str(where), usable_bytes(where, fraction), tiles, quantize)


def footprint_on(
    gpu: GpuName, model: str, dtype: str, tiles: int = 1, quantize: str | None = None, fraction: float = MEMORY_FRACTION
) -> Footprint:
    """The footprint of a checkpoint on an idle GPU that this machine need not have; raises ModelError if the
    checkpoint's configuration is not available."""
    where = torch.device("cuda")
    return _footprint(model, resolve_dtype(dtype, where), gpu, GPUS[gpu].usable_bytes(fraction), tiles, quantize)


def rates_of(gpu: GpuName) -> Rates:
    """The rates that `measure_rates` is expected to find on this GPU: assumed fractions of its peaks."""
    peaks = GPUS[gpu]
    return Rates(MEMORY_SHARE * peaks.peak_bytes_per_s, FLOP_SHARE * peaks.peak_flop_per_s)


def checkpoint_family(model: str) -> Family:
    """The family of a checkpoint; raises ModelError if its configuration is not available."""
    return family_of(_config_of(model))


def _config_of(model: str) -> "PreTrainedConfig":
    """The configuration of a checkpoint; built from known sizes if those suffice and it was not downloaded."""
    if model in CHECKPOINTS and not is_here(model, "config.json"):
        return make_config(CHECKPOINTS[model])
    return checkpoint_config(model)


def _footprint(model: str, dtype: torch.dtype, device: str, usable: int, tiles: int, quantize: str | None) -> Footprint:
    config = _config_of(model)
    with torch.device("meta"):
        weightless = AutoModelForImageTextToText.from_config(config)
    parameters, family = _count_parameters(weightless), family_of(config)
    require_tiles(family, tiles)
    saved = sum(each.numel() for each in linear_weights(weightless).values()) if quantize else 0
    return Footprint(
        device=device,
        dtype=str(dtype).removeprefix("torch."),
        parameters=parameters,
        weight_bytes=parameters * dtype.itemsize - int(saved * (dtype.itemsize - _STORED_BYTES.get(quantize, 0))),
        work=work_of(weightless, dtype.itemsize, quantize),
        image_tokens=lambda width, height: family.views.tokens(config, width, height, tiles),
        patches_per_token=family.patches_per_token,
        free_bytes=usable,
        keeps_kv=family.supports_kv_reuse(config),
        attention_heads=config.get_text_config().num_attention_heads,
    )


def linear_weights(model: "PreTrainedModel") -> dict[str, torch.Tensor]:
    """The weights that `--quantize` quantizes by name: those of linear layers but the head."""
    head = model.get_output_embeddings()
    return {
        f"{name}.weight": module.weight
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and module is not head
    }


def work_of(model: "PreTrainedModel", number_bytes: int, quantize: str | None = None) -> Work:
    """A model's work, computed from its weights' shapes. Excludes embedding lookups, counts mergers once per token and,
    in a mixture of experts, only the experts that a token is routed to.

    In each step for several rows, bitsandbytes writes a copy of 4-bit weights in `number_bytes`, and reads it.
    """
    text, family = model.config.get_text_config(), family_of(model.config)
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}

    def parameters_in(part: str, excluded: tuple[str, ...]) -> int:
        excluded_prefixes = tuple(f"{other}." for other in excluded)
        named = ((f"{name}.", size) for name, size in sizes.items())
        return sum(
            size for name, size in named if name.startswith(f"{part}.") and not name.startswith(excluded_prefixes)
        )

    experts = sum(size for name, size in sizes.items() if ".experts." in name)
    inactive = experts - experts * text.num_experts_per_tok // text.num_experts if experts else 0
    head = _count_parameters(model.get_submodule(family.head))
    mergers = sum(_count_parameters(model.get_submodule(merger)) for merger in family.mergers)
    token_parameters = parameters_in(family.language_model, family.lookups) - inactive + head
    quantized = sum(
        weight.numel()
        for name, weight in (linear_weights(model) if quantize else {}).items()
        if name.startswith(f"{family.language_model}.")
    )
    in_step = _STORED_BYTES.get(quantize, 0) + (2 * number_bytes if quantize == "4bit" else 0)
    return Work(
        token_parameters=token_parameters,
        patch_parameters=parameters_in(family.image_encoder, family.lookups + family.mergers)
        + mergers / family.patches_per_token,
        number_bytes=number_bytes + (in_step - number_bytes) * quantized / token_parameters,
        kv_bytes_per_token=kv_token_bytes(text, number_bytes),
        layers=text.num_hidden_layers,
        encoder_layers=len(model.get_submodule(family.image_layers)),
        state_bytes=family.state_bytes(model.config),
    )


def _count_parameters(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def count_tokens(model: str, text: str) -> int:
    """The number of tokens of a text with a checkpoint's tokenizer; raises ModelError if that is not available."""
    return len(checkpoint_part(AutoTokenizer, model)(text)["input_ids"])


def measure_rates(device: str, dtype: str) -> Rates | None:
    """Time a large copy and a matrix product on the device; takes about a second. None if memory runs out."""
    try:
        return _measure_rates(device, dtype)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _measure_rates(device: str, dtype: str) -> Rates:
    where = resolve_device(device)
    source = torch.ones(_COPY_BYTES[where.type], dtype=torch.uint8, device=where)
    target = torch.empty_like(source)
    copy_s = _best_seconds(where, lambda: target.copy_(source))
    side = _MATRIX_SIDE[where.type]
    matrix = torch.randn(side, side, device=where).to(resolve_dtype(dtype, where))
    product_s = _best_seconds(where, lambda: matrix @ matrix)
    return Rates(2 * source.numel() / copy_s, 2 * side**3 / product_s)


def _best_seconds(where: torch.device, work: Callable[[], object]) -> float:
    """Wall seconds, the best of three runs after a warm-up."""
    seconds = []
    for _ in range(4):
        started = time.perf_counter()
        work()
        if where.type == "cuda":
            torch.cuda.synchronize(where)
        seconds.append(time.perf_counter() - started)
    return min(seconds[1:])
