"""The least time that calls of a Qwen3-VL can take on a device, and what the device reaches."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from roomscout.models.transformers.devices import is_out_of_memory, resolve_device, resolve_dtype
from roomscout.models.transformers.families.family import HEAD, LANGUAGE_MODEL
from roomscout.models.transformers.layers import kv_token_bytes

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MERGERS = ("model.visual.merger", "model.visual.deepstack_merger_list")
LOOKUPS = ("model.language_model.embed_tokens", "model.visual.pos_embed")
PATCHES_PER_TOKEN = 4
_MATRIX_SIDE = {"cuda": 8192, "cpu": 1024}
_COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}


@dataclass(frozen=True)
class Rates:
    """A device's peak rates: bytes copied per second (read plus written) and floating-point operations per second."""

    bytes_per_s: float
    flop_per_s: float


@dataclass(frozen=True)
class Work:
    """A model's compute and memory traffic, with lower bounds on time from the roofline model (S. Williams et al.,
    "Roofline", CACM 2009), which counts only arithmetic and memory reads."""

    token_parameters: int  # of the language model, through which a token passes
    patch_parameters: float  # of the image encoder, through which a patch of an image passes
    number_bytes: float  # of a parameter
    kv_bytes_per_token: int  # of a conversation, over all layers
    layers: int  # of the language model
    encoder_layers: int  # of the image encoder

    def least_prefill_seconds(self, rates: Rates, tokens: float, patches: float) -> float:
        """Lower bound for prefilling `tokens` (text and image) and `patches`, over all rows:
        2 operations per parameter each."""
        return 2 * (self.token_parameters * tokens + self.patch_parameters * patches) / rates.flop_per_s

    def least_step_seconds(self, rates: Rates, rows: float, held_tokens: float) -> float:
        """Lower bound for one decoding step, the longer of reading and computing. It reads the language model once for
        all rows, and the keys and values of `held_tokens`, the total over all rows."""
        read = self.token_parameters * self.number_bytes + held_tokens * self.kv_bytes_per_token
        return max(read / rates.bytes_per_s, 2 * self.token_parameters * rows / rates.flop_per_s)

    def least_seconds(
        self, rates: Rates, rows: float, tokens: float, patches: float, held_tokens: float, reply_tokens: float
    ) -> float:
        """Lower bound for one call: prefill of `tokens` and `patches`, then `reply_tokens` decoding steps. `tokens`,
        `patches` and the cached `held_tokens` are totals over all rows."""
        held = held_tokens + rows * reply_tokens / 2  # the mean over the reply
        prefill = self.least_prefill_seconds(rates, tokens, patches)
        return prefill + reply_tokens * self.least_step_seconds(rates, rows, held)


def work_of(model: "PreTrainedModel", number_bytes: int) -> Work:
    """A model's work, computed from its weights' shapes. Excludes embedding lookups, counts mergers once per token."""
    text = model.config.get_text_config()
    sizes = {name: weight.numel() for name, weight in model.named_parameters()}

    def parameters_in(part: str, excluded: tuple[str, ...]) -> int:
        excluded_prefixes = tuple(f"{other}." for other in excluded)
        named = ((f"{name}.", size) for name, size in sizes.items())
        return sum(
            size for name, size in named if name.startswith(f"{part}.") and not name.startswith(excluded_prefixes)
        )

    head = _count_parameters(model.get_submodule(HEAD))
    mergers = sum(_count_parameters(model.get_submodule(merger)) for merger in MERGERS)
    token_parameters = parameters_in(LANGUAGE_MODEL, LOOKUPS) + head
    return Work(
        token_parameters=token_parameters,
        patch_parameters=parameters_in("model.visual", LOOKUPS + MERGERS) + mergers / PATCHES_PER_TOKEN,
        number_bytes=number_bytes,
        kv_bytes_per_token=kv_token_bytes(model.config, number_bytes),
        layers=text.num_hidden_layers,
        encoder_layers=len(model.get_submodule("model.visual.blocks")),
    )


def _count_parameters(module: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


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
