"""Attention of a call's new tokens to the slots of their conversations: rows of unlike length, no masks, no padding."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from inspect import signature
from itertools import accumulate
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface, GenerationConfig, PreTrainedModel
from transformers.masking_utils import causal_mask_function

from roomscout.base.interrupts import deferred_interrupts
from roomscout.models import ModelError

NAME = "slots"
PAGE = 256  # a slot is a page of flash attention, whose sizes are multiples of this
SPLITS = 1  # of a row's keys on CUDA: with one, what a row attends to does not depend on the rest of its batch
# On a CPU, another call of a kernel costs as much time as reading so many bytes of keys and values.
_CALL_BYTES = 2**18
# Not cuDNN's, which PyTorch prefers on Hopper, and which builds a plan for every new shape, such as a longer row.
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
_HALF = (torch.bfloat16, torch.float16)  # the data types of flash attention
_TAKES_PAGES = "block_table" in signature(varlen_attn).parameters  # since PyTorch 2.12


@dataclass(frozen=True)
class Span:
    """Rows of a call in neighbouring slots that one call of a kernel serves: one with several new tokens, or several
    with one each."""

    first: int  # its first token in the call
    tokens: int  # how many, from that one on
    slot: int  # of its first row
    rows: int  # how many
    columns: int  # which it attends to, of each slot
    mask: torch.Tensor | None
    """0 or the least number, (1, 1, tokens, columns) or (rows, 1, 1, columns); None if all is attended to, or causally
    from the first column."""


class Call:
    """New tokens of several rows, one row after the other: row i puts `counts[i]` tokens behind the first `starts[i]`
    of slot `slots[i]`, token j of a conversation in column j. The last `idle` rows stand in for rows of a CUDA graph
    that nobody needs: each attends to one column, and does not advance."""

    def __init__(
        self,
        slots: Sequence[int],
        starts: Sequence[int],
        counts: Sequence[int],
        device: torch.device,
        dtype: torch.dtype,
        column_bytes: int,
        idle: int = 0,
    ) -> None:
        self.rows = len(slots)
        self.starts = list(starts)
        self.most_new = max(counts)
        self._slots = list(slots)
        self._counts = list(counts)
        self._dtype = dtype
        self._column_bytes = column_bytes
        self._groups: list[list[int]] = []
        self._spans: list[Span] = []
        self.is_varlen = takes_varlen(device, dtype)
        working = len(slots) - idle
        self._advances = [1] * working + [0] * idle
        rows = list(zip(slots, starts, counts, strict=True))
        ends = [start + count for _, start, count in rows[:working]] + [1] * idle
        self.token_slots = torch.tensor([slot for slot, _, count in rows for _ in range(count)]).to(device)
        self.token_columns = torch.tensor([start + new for _, start, count in rows for new in range(count)]).to(device)
        self._steps = torch.tensor(self._advances).to(device)
        if self.is_varlen:
            self.first = torch.tensor([0, *accumulate(counts)], dtype=torch.int32).to(device)
            self.used = torch.tensor(ends, dtype=torch.int32).to(device)
            self.table = torch.tensor(slots, dtype=torch.int32)[:, None].to(device)

    def load(self, other: "Call") -> None:
        """Take over what another call of as many rows has, in the same tensors, which a CUDA graph reads."""
        self.starts = list(other.starts)
        self._slots = list(other._slots)
        self._groups = []
        self._spans = []
        for name in ("token_slots", "token_columns", "_steps", *(("used", "table") if self.is_varlen else ())):
            getattr(self, name).copy_(getattr(other, name))

    def advance(self) -> None:
        """Let each row of a call with one token each put the next one behind it."""
        self.token_columns += self._steps
        if self.is_varlen:
            self.used += self._steps.int()
        self.starts = [start + step for start, step in zip(self.starts, self._advances, strict=True)]
        self._spans = []

    @contextmanager
    def attending(self) -> Iterator[None]:
        """Inside this block, the cache's layers and `attend` serve this call."""
        token = _CALL.set(self)
        try:
            yield
        finally:
            _CALL.reset(token)

    @property
    def spans(self) -> list[Span]:
        """Its rows without flash attention: neighbours together as long as what is read in vain costs less than another
        call of the kernel."""
        if not self._groups:
            for row, slot in enumerate(self._slots):
                if row and slot == self._slots[row - 1] + 1 and self._is_cheap([*self._groups[-1], row]):
                    self._groups[-1].append(row)
                else:
                    self._groups.append([row])
        if not self._spans:
            self._spans = [self._span(group) for group in self._groups]
        return self._spans

    def _is_cheap(self, rows: Sequence[int]) -> bool:
        lengths = [self.starts[row] for row in rows]
        vain = len(rows) * max(lengths) - sum(lengths)
        return self.most_new == 1 and vain * self._column_bytes <= _CALL_BYTES * (len(rows) - 1)

    def _span(self, rows: Sequence[int]) -> Span:
        row = rows[0]
        ends = torch.tensor([self.starts[each] + self._counts[each] for each in rows])
        columns = int(ends.max())
        tokens = sum(self._counts[each] for each in rows)
        if len(rows) == 1:
            allowed = torch.ones(tokens, columns, dtype=torch.bool).tril(columns - tokens)[None, None]
            masked = tokens > 1 and self.starts[row] > 0
        else:
            allowed = (torch.arange(columns) < ends[:, None])[:, None, None]
            masked = len(set(ends.tolist())) > 1
        mask = None
        if masked:
            mask = torch.zeros(allowed.shape, dtype=self._dtype)
            mask = mask.masked_fill_(~allowed, torch.finfo(self._dtype).min).to(self.token_slots.device)
        return Span(sum(self._counts[:row]), tokens, self._slots[row], len(rows), columns, mask)


_CALL: ContextVar[Call] = ContextVar("call")


def current_call() -> Call:
    """The call that is served now."""
    return _CALL.get()


def takes_varlen(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether flash attention serves rows of unlike length on this device."""
    return device.type == "cuda" and dtype in _HALF


@torch.compiler.disable
def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    scaling: float | None = None,
    **kwargs: object,
) -> tuple[torch.Tensor, None]:
    """An attention function of transformers that serves the current call: `query` (rows, heads, new columns, head size)
    has its tokens, row by row, `key` and `value` are all slots (slots, columns, key heads, head size). Returns (rows,
    new columns, heads, head size). Raises ModelError for what is more than causal attention."""
    others = [name for name in ("softcap", "s_aux", "sliding_window") if kwargs.get(name) is not None]
    if others:
        raise _not_causal(f"its attention has {others[0]}")
    rows, heads, columns, size = query.shape
    queries = query.transpose(1, 2).reshape(rows * columns, heads, size)
    kernel = _flash if current_call().is_varlen else _by_spans
    attended = kernel(current_call(), queries, key, value, scaling)
    return attended.view(rows, columns, heads, value.shape[-1]), None


def _flash(
    call: Call, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Causal flash attention, (tokens, heads, head size); slots are pages, or ranges of columns before PyTorch 2.12."""
    columns = keys.shape[1]
    is_causal = call.most_new > 1  # one token attends to all: said so, heads that share a key head are served together
    if _TAKES_PAGES:
        window = (-1, 0) if is_causal else (-1, -1)
        attended = varlen_attn(
            queries, keys, values, call.first, call.first, call.most_new, columns, scale=scale, window_size=window,
            enable_gqa=True, seqused_k=call.used, block_table=call.table, num_splits=SPLITS,
        )  # fmt: skip
        assert isinstance(attended, torch.Tensor), "nothing else was asked for"
        return attended
    starts = torch.nn.functional.pad(call.table[:, 0] * columns, (0, 1))
    flat = keys.flatten(0, 1), values.flatten(0, 1)
    return torch.ops.aten._flash_attention_forward(
        queries, *flat, call.first, starts, call.most_new, columns, 0.0, is_causal, False, scale=scale,
        seqused_k=call.used,
    )[0]  # fmt: skip


def _by_spans(
    call: Call, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scale: float | None
) -> torch.Tensor:
    """Attention span by span, (tokens, heads, head size). Query heads that share a key head are columns of one."""
    heads = queries.shape[1]
    key_heads = keys.shape[2]
    attended = []
    for span in call.spans:
        new = queries[span.first : span.first + span.tokens]
        slots = slice(span.slot, span.slot + span.rows)
        kept = [states[slots, : span.columns].transpose(1, 2) for states in (keys, values)]
        if span.rows == span.tokens:
            grouped = new.unflatten(1, (key_heads, heads // key_heads))
            made = scaled_dot_product_attention(grouped, *kept, attn_mask=span.mask, scale=scale)
            attended.append(made.flatten(1, 2))
        else:
            made = scaled_dot_product_attention(
                new.transpose(0, 1)[None], *kept, attn_mask=span.mask, is_causal=span.mask is None, scale=scale,
                enable_gqa=heads > key_heads,
            )  # fmt: skip
            attended.append(made[0].transpose(0, 1))
    return torch.cat(attended)


def _no_mask(*, mask_function: Callable[..., object], **kwargs: Any) -> None:
    """The mask of transformers' layers; raises ModelError for attention that is not causal."""
    if mask_function is not causal_mask_function:
        raise _not_causal("its attention has a mask of its own")


def _not_causal(what: str) -> ModelError:
    return ModelError(f"{what}, and a reply that goes on from cached keys and values needs causal attention alone")


@contextmanager
def inference_state(model: PreTrainedModel, settings: GenerationConfig, to_slots: bool) -> Iterator[None]:
    """Inside this block the model is in eval mode, its text layers attend `to_slots` or as they did, `generate()` reads
    `settings` instead of the model's own, and PyTorch's defaults that are slow or inexact for us are off in the whole
    process. Afterwards all of it is as before."""
    attention = model.config.get_text_config(decoder=True)._attn_implementation
    changes: list[tuple[Any, str, object]] = [(model, "generation_config", settings)]
    changes += [(module, "training", False) for module in model.modules() if module.training]
    if model.dtype == torch.float32:  # cuDNN would round the patch embedding's convolution to TF32's 10 bits
        changes.append((torch.backends.cudnn.conv, "fp32_precision", "ieee"))
    former = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        if to_slots:
            _set_attention(model, NAME)
        with sdpa_kernel(_KERNELS):
            yield
    finally:
        with deferred_interrupts():
            for owner, name, value in former:
                setattr(owner, name, value)
            if to_slots:
                _set_attention(model, attention)


def _set_attention(model: PreTrainedModel, name: str) -> None:
    """Let the text layers of a model use this attention function."""
    text_config = model.config.get_text_config(decoder=True)
    parts = [part for part in model.config.sub_configs if getattr(model.config, part, None) is text_config]
    named = dict.fromkeys(parts, name) if parts else name
    model.set_attn_implementation(named)


AttentionInterface.register(NAME, attend)
AttentionMaskInterface.register(NAME, _no_mask)
