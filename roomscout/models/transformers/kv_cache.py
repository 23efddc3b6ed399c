"""A KV cache that persists across turns, follows how conversations are batched, and is bounded in bytes."""

import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from roomscout.base.interrupts import undone_on_failure
from roomscout.models.transformers.encoding import EncodedConversation

log = logging.getLogger(__name__)

WINDOW = 64
"""Compiled and captured steps attend to a multiple of this many columns."""
# Without a planned length, a growing buffer gets this many spare columns or a quarter of its size, whichever is more:
# it is then copied only every other turn.
_SPARE_COLUMNS = 64
# Rows are repacked if their batch is wider than this factor times the longest row, plus _SPARE_COLUMNS.
_MAX_WIDTH_RATIO = 1.25


def cache_argument(model: torch.nn.Module) -> str:
    """The name of the argument of forward() that takes a cache, which transformers 5.24 renamed."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class GrowingLayer(DynamicLayer):
    """One layer's keys and values, (rows, heads, columns, head size) each, appended in place to buffers of `planned`
    columns, which grow if they must; transformers' DynamicLayer copies all columns for each token."""

    is_initialized: bool

    def __init__(self, planned: int = 0) -> None:
        super().__init__()
        self._planned = planned
        self._buffers: list[torch.Tensor] = []

    @classmethod
    def of(cls, buffers: Sequence[torch.Tensor], columns: int, planned: int = 0) -> "GrowingLayer":
        """A layer of the first `columns` of these key and value buffers; the remaining columns must be zero."""
        layer = cls(planned)
        layer.lazy_initialization(*buffers)
        layer._buffers = [*buffers]
        layer._set_views(columns)
        return layer

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns, (rows, heads, new columns, head size) each; returns all keys and all values."""
        used = self.get_seq_length()
        columns = used + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [key_states[:, :, :0], value_states[:, :, :0]]
        self._grow(columns)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, used:columns] = states
        self._set_views(columns)
        return self.keys, self.values

    def reserve(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The key and value buffers, grown to this many columns, to write behind the used ones before `set_length`.
        Unused columns are finite: masked ones must contribute exactly 0."""
        used = self.get_seq_length()
        self._grow(columns)
        self._set_views(used)
        return self._buffers[0], self._buffers[1]

    def set_length(self, columns: int) -> None:
        """Use exactly the first `columns` of the buffers; 0 frees the buffers."""
        if not self.is_initialized:
            return
        if columns == 0:
            self.is_initialized = False
            self._buffers, self.keys, self.values = [], None, None
        else:
            self._set_views(columns)

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated, spare columns included."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def _grow(self, columns: int) -> None:
        """Reallocate buffers shorter than `columns`, keys before values so that only one is held twice."""
        used = self.get_seq_length()
        for kind, buffer in enumerate(self._buffers):
            if buffer.shape[2] < columns:
                capacity = self._planned if columns <= self._planned else columns + max(_SPARE_COLUMNS, columns // 4)
                self._buffers[kind] = _grown(buffer, used, capacity)

    def _set_views(self, columns: int) -> None:
        self.keys, self.values = (buffer[:, :, :columns] for buffer in self._buffers)


def kv_token_bytes(text_config: Any, number_bytes: int) -> int:
    """Bytes of one token's keys and values, over all layers of a language model that have a KV cache."""
    head = getattr(text_config, "head_dim", None) or text_config.hidden_size // text_config.num_attention_heads
    kinds = getattr(text_config, "layer_types", None) or ["full_attention"] * text_config.num_hidden_layers
    layers = len(kinds) - kinds.count("linear_attention")
    return 2 * layers * text_config.num_key_value_heads * head * number_bytes


@dataclass(eq=False)
class CachedRow:
    """The cached prefix of one conversation: `ids` are the tokens whose keys and values are in `batch`."""

    encoded: EncodedConversation
    ids: list[int] = field(default_factory=list)
    batch: "CachedBatch | None" = None
    last_use: int = 0


class CachedBatch:
    """Rows of one cache, None once released; `mask` (rows, columns), on the CPU, marks those with tokens."""

    def __init__(self, rows: Sequence[CachedRow], mask: torch.Tensor, layers: list[GrowingLayer]) -> None:
        self.rows: list[CachedRow | None] = list(rows)
        self.mask = mask
        self.cache = Cache(layers=layers)
        for row in rows:
            row.batch = self

    @property
    def live(self) -> list[CachedRow]:
        """The rows that were not released."""
        return [row for row in self.rows if row is not None]

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated on the device."""
        return sum(layer.nbytes for layer in self.cache.layers)

    def columns(self, index: int) -> torch.Tensor:
        """The columns with the tokens of the row at this index, in order."""
        return self.mask[index].nonzero().squeeze(1)

    def roll_back(self) -> None:
        """Drop the columns that a failed call appended."""
        for layer in self.cache.layers:
            layer.set_length(self.mask.shape[1])

    def truncate(self, row: CachedRow, length: int) -> None:
        """Keep only the first `length` tokens of a row."""
        index = self.rows.index(row)
        self.mask[index, self.columns(index)[length:]] = False
        row.ids = row.ids[:length]

    def fits(self, rows: Sequence[CachedRow]) -> bool:
        """Whether a call for these rows can use this batch without copying: the same rows, few unused columns."""
        longest = max(len(row.ids) for row in rows)
        return self.rows == list(rows) and self.mask.shape[1] <= _MAX_WIDTH_RATIO * longest + _SPARE_COLUMNS


class KVStore:
    """The KV caches of all conversations, batched as in their last calls. Beyond `limit_bytes`, the least recently used
    are evicted between calls and later recomputed. Buffers are for `planned_tokens`, as far as the limit allows for
    all; a token takes `token_bytes` in all layers."""

    def __init__(self, layers: int, limit_bytes: int, planned_tokens: int = 0, token_bytes: int = 0) -> None:
        self._layers = layers
        self._limit_bytes = limit_bytes
        self._planned = buffer_columns(planned_tokens) if planned_tokens else 0
        self._token_bytes = token_bytes
        self._rows: dict[int, CachedRow] = {}
        self._calls = 0

    def reusable(self, encoded: EncodedConversation) -> int:
        """How many of the first ids are cached (of an alternative, with its origin), up to the first that differs or
        belongs to another view; at least one is left to compute."""
        row = self._rows.get((encoded.origin or encoded).key)
        if row is None:
            return 0
        cached, ids = row.ids, encoded.ids
        same = min(len(cached), len(ids) - 1)
        if cached[:same] != ids[:same]:
            same = next(index for index, pair in enumerate(zip(cached, ids, strict=False)) if pair[0] != pair[1])
        start = 0
        for before, turn in zip(row.encoded.turns, encoded.turns, strict=False):
            if before.view is not turn.view:
                return min(same, start + min(before.image_start, turn.image_start))
            start += len(before.ids)
        return same

    def arrange(self, conversations: Sequence[EncodedConversation]) -> CachedBatch:
        """A batch with one row per conversation, in order, each with its `reusable` prefix: the current one if it fits,
        else new; other rows of current batches move to a batch of their own."""
        self._calls += 1
        return self._batch_of([self._row(encoded) for encoded in conversations])

    def share(self, alternatives: Sequence[EncodedConversation]) -> CachedBatch:
        """A batch with one row per alternative, in order, over the buffers of the origins' batch, in which all columns
        that an alternative lacks are masked. Roll back what one call appends, and the origins are as before."""
        self._calls += 1
        batch = self._batch_of([self._row(each.origin, whole=True) for each in alternatives if each.origin])
        mask, rows = batch.mask.clone(), []
        for index, encoded in enumerate(alternatives):
            prefix = self.reusable(encoded)
            mask[index, batch.columns(index)[prefix:]] = False
            rows.append(CachedRow(encoded, encoded.ids[:prefix]))
        return CachedBatch(rows, mask, batch.cache.layers)

    def extend(self, batch: CachedBatch, mask: torch.Tensor, ids: Sequence[list[int]]) -> None:
        """Record a call: `mask` (rows, new columns) marks the tokens it added, `ids` are each row's tokens after it."""
        batch.mask = torch.cat([batch.mask, mask], dim=1)
        for row, row_ids in zip(batch.live, ids, strict=True):
            row.ids = row_ids

    def release(self, key: int) -> None:
        """Free the keys and values of the conversation with this key; unknown ones are ignored."""
        row = self._rows.pop(key, None)
        if row is not None and row.batch is not None:
            row.batch.rows[row.batch.rows.index(row)] = None

    def cached(self) -> set[int]:
        """The keys of the conversations with cached tokens."""
        return {key for key, row in self._rows.items() if row.ids}

    def release_others(self, conversations: Sequence[EncodedConversation]) -> None:
        """Evict all conversations but these, or of alternatives their origins."""
        for key in self._rows.keys() - {(encoded.origin or encoded).key for encoded in conversations}:
            self.release(key)

    def trim(self) -> int:
        """Evict conversations until the rest fits into the limit, and repack their batches; returns how many."""
        batches = list({id(row.batch): row.batch for row in self._rows.values() if row.batch is not None}.values())
        row_bytes = {id(batch): batch.nbytes / len(batch.rows) for batch in batches}
        oldest_first = sorted(self._rows.values(), key=lambda row: row.last_use)
        total, evicted = sum(row_bytes[id(row.batch)] for row in oldest_first), 0
        for row in oldest_first:
            if total <= self._limit_bytes:
                break
            total -= row_bytes[id(row.batch)]
            self.release(row.encoded.key)
            evicted += 1
        if not evicted:
            return 0
        log.warning(
            "The KV cache is full (%.2f GiB): %d of %d conversations will be recomputed in their next turn",
            self._limit_bytes / 2**30, evicted, evicted + len(self._rows),
        )  # fmt: skip
        for batch in batches:
            if batch.live and None in batch.rows:
                self._regroup([batch.live])
        return evicted

    def _row(self, encoded: EncodedConversation, whole: bool = False) -> CachedRow:
        """The conversation's row, truncated to its reusable prefix unless `whole`, or a new empty row."""
        reusable = self.reusable(encoded)
        if not reusable:
            self.release(encoded.key)
        row = self._rows.setdefault(encoded.key, CachedRow(encoded))
        if not whole:
            row.encoded = encoded
            if row.batch is not None and reusable < len(row.ids):
                row.batch.truncate(row, reusable)
        row.last_use = self._calls
        return row

    def _batch_of(self, wanted: Sequence[CachedRow]) -> CachedBatch:
        """The batch of exactly these rows, in order: their current one if it fits, else a copy."""
        current = wanted[0].batch
        if current is not None and current.fits(wanted):
            return current
        sources = {id(row.batch): row.batch for row in wanted if row.batch is not None}.values()
        others = [row for source in sources for row in source.live if row not in wanted]
        return self._regroup([wanted, *([row] for row in others)])[0]

    def _regroup(self, groups: Sequence[Sequence[CachedRow]]) -> list[CachedBatch]:
        """Copy each group of rows into a new batch, right-aligned, layer by layer, so that one layer at most is in
        memory twice. A failure in between (out of memory) loses these rows; they are recomputed."""
        planned = 0
        if self._planned:
            planned = min(self._planned, self._limit_bytes // (len(self._rows) * self._token_bytes))
        rows = [row for group in groups for row in group]

        def release_all() -> None:
            for row in rows:
                self.release(row.encoded.key)

        with undone_on_failure(release_all):
            sources = {id(row): _Source.of(row) for row in rows}
            layers: list[list[GrowingLayer]] = [[] for _ in groups]
            for index in range(self._layers):
                for group, new in zip(groups, layers, strict=True):
                    new.append(_copied_layer([sources[id(row)] for row in group], index, planned))
                for source in filter(None, sources.values()):
                    source.batch.cache.layers[index] = GrowingLayer()
        batches = []
        for group, new in zip(groups, layers, strict=True):
            lengths = torch.tensor([len(row.ids) for row in group])[:, None]
            batches.append(CachedBatch(group, torch.arange(lengths.max()) >= lengths.max() - lengths, new))
        return batches


@dataclass(frozen=True)
class _Source:
    """Where a row's keys and values are: `columns`, on the device, of the row at this index of a batch."""

    batch: CachedBatch
    index: int
    columns: torch.Tensor

    @classmethod
    def of(cls, row: CachedRow) -> "_Source | None":
        """None if nothing of the row is cached."""
        if row.batch is None or not row.ids:
            return None
        index = row.batch.rows.index(row)
        return cls(row.batch, index, row.batch.columns(index).to(row.batch.cache.layers[0].keys.device))


def _copied_layer(sources: Sequence[_Source | None], layer: int, planned: int) -> GrowingLayer:
    """A layer of a new batch with these rows, right-aligned, with buffers of at least `planned` columns."""
    cached = [(row, source) for row, source in enumerate(sources) if source is not None]
    if not cached:
        return GrowingLayer(planned)
    width, buffers = max(len(source.columns) for _, source in cached), []
    for kind in ("keys", "values"):
        states = [getattr(source.batch.cache.layers[layer], kind) for _, source in cached]
        _, heads, _, size = states[0].shape
        buffer = states[0].new_zeros(len(sources), heads, max(width, planned), size)
        for (row, source), of_batch in zip(cached, states, strict=True):
            columns = slice(width - len(source.columns), width)
            buffer[row, :, columns] = of_batch[source.index].index_select(1, source.columns)
        buffers.append(buffer)
    return GrowingLayer.of(buffers, width, planned)


def buffer_columns(tokens: int) -> int:
    """Buffer columns for conversations of up to `tokens` tokens: compiled steps attend to multiples of `WINDOW` columns
    and need one more column than they read."""
    return -(-tokens // WINDOW) * WINDOW + 1


def _grown(buffer: torch.Tensor, used: int, columns: int) -> torch.Tensor:
    """A copy of the `used` columns in a buffer of `columns`; the rest is zero."""
    rows, heads, _, size = buffer.shape
    grown = buffer.new_zeros(rows, heads, columns, size)
    grown[:, :, :used] = buffer[:, :, :used]
    return grown
