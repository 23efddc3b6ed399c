"""Keys and values that live across turns: kept for each conversation, regrouped with the batches, bounded in bytes."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import torch
from torch.nn.functional import pad
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from models.transformers.encoding import EncodedConversation

log = logging.getLogger(__name__)

WINDOW = 64
"""Compiled and captured steps attend to multiples of so many columns."""
# A buffer whose planned length is not known gets this many spare columns when it grows, or a quarter of what it must
# hold where that is more: it is then copied every other turn.
_ROOM = 64
# Rows are packed again when their batch is wider than the longest of them by this factor (and by _ROOM).
_SLACK = 1.25


class GrowingLayer(DynamicLayer):
    """One layer's keys and values, (rows, heads, columns, head size) each, in buffers with spare columns at the end.

    Each generated token writes one column in place, while transformers' DynamicLayer copies all columns.
    Buffers start with `planned` columns; they are not moved until more are needed.
    """

    is_initialized: bool

    def __init__(self, planned: int = 0) -> None:
        super().__init__()
        self._planned = planned
        self._buffers: list[torch.Tensor] = []

    @classmethod
    def of(cls, buffers: Sequence[torch.Tensor], columns: int, planned: int = 0) -> "GrowingLayer":
        """A layer in these buffers of keys and of values, which holds their first `columns`; the others are zero."""
        layer = cls(planned)
        layer.lazy_initialization(*buffers)
        layer._buffers = [*buffers]
        layer._show(columns)
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
        self._make_room(columns)
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, used:columns] = states
        self._show(columns)
        return self.keys, self.values

    def reserve(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffers of keys and of values, at least this many columns long.

        Those after the held ones may be written to and then be held. They are finite until then: masked columns must
        contribute exactly 0, which NaN would not.
        """
        used = self.get_seq_length()
        self._make_room(columns)
        self._show(used)
        return self._buffers[0], self._buffers[1]

    def hold(self, columns: int) -> None:
        """Hold exactly the first `columns` of the buffers; 0 frees the buffers."""
        if not self.is_initialized:
            return
        if columns == 0:
            self.is_initialized = False
            self._buffers, self.keys, self.values = [], None, None
        else:
            self._show(columns)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, spare columns included."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def _make_room(self, columns: int) -> None:
        """Copy the held columns into longer buffers where these are shorter than `columns`, keys before values."""
        used = self.get_seq_length()
        for kind, buffer in enumerate(self._buffers):
            if buffer.shape[2] < columns:
                room = columns + max(_ROOM, columns // 4) if columns > self._planned else self._planned
                self._buffers[kind] = _lengthened(buffer, used, room)

    def _show(self, columns: int) -> None:
        self.keys, self.values = (buffer[:, :, :columns] for buffer in self._buffers)


def kv_token_bytes(text_config: Any, number_bytes: int) -> int:
    """Bytes of the keys and values of one token in all layers of a language model that keep them."""
    head = getattr(text_config, "head_dim", None) or text_config.hidden_size // text_config.num_attention_heads
    kinds = getattr(text_config, "layer_types", None) or ["full_attention"] * text_config.num_hidden_layers
    layers = len(kinds) - kinds.count("linear_attention")
    return 2 * layers * text_config.num_key_value_heads * head * number_bytes


@dataclass(eq=False)
class CachedRow:
    """The cached start of one conversation: `ids` are the tokens whose keys and values are held in `batch`."""

    encoded: EncodedConversation
    ids: list[int] = field(default_factory=list)
    batch: "CachedBatch | None" = None
    last_use: int = 0


class CachedBatch:
    """Rows that were generated together: `mask` (rows, columns), on the CPU, says which columns hold a row's tokens.

    None marks a row whose conversation was released; its memory is freed when the batch is next packed.
    """

    def __init__(self, rows: Sequence[CachedRow], mask: torch.Tensor, layers: list[GrowingLayer]) -> None:
        self.rows: list[CachedRow | None] = list(rows)
        self.mask = mask
        self.cache = Cache(layers=layers)
        for row in rows:
            row.batch = self

    @property
    def live(self) -> list[CachedRow]:
        """The rows that still belong to a conversation."""
        return [row for row in self.rows if row is not None]

    @property
    def nbytes(self) -> int:
        """Bytes of memory held on the device."""
        return sum(layer.nbytes for layer in self.cache.layers)

    def roll_back(self) -> None:
        """Drop the columns that a failed call has added after those of `mask`."""
        for layer in self.cache.layers:
            layer.hold(self.mask.shape[1])

    def cut(self, row: CachedRow, length: int) -> None:
        """Keep the first `length` tokens of a row."""
        index = self.rows.index(row)
        columns = self.mask[index].nonzero().squeeze(1)
        self.mask[index, columns[length:]] = False
        row.ids = row.ids[:length]

    def fits(self, rows: Sequence[CachedRow]) -> bool:
        """Whether a call for these rows can continue from here as it is: the same rows, few columns unused."""
        longest = max(len(row.ids) for row in rows)
        return self.rows == list(rows) and self.mask.shape[1] <= _SLACK * longest + _ROOM


class KVStore:
    """Keeps what a model has computed of conversations, as batches that follow how the conversations are grouped.

    `limit_bytes` bounds what stays between calls. Beyond it conversations are evicted, least recently used first, and
    encoded again. The buffers of a batch are made long enough for conversations of `planned_tokens` at once, as far as
    the limit allows for all conversations; `token_bytes` are the keys and values of one token in all layers.
    """

    def __init__(self, layers: int, limit_bytes: int, planned_tokens: int = 0, token_bytes: int = 0) -> None:
        self._layers = layers
        self._limit_bytes = limit_bytes
        self._planned = buffer_columns(planned_tokens) if planned_tokens else 0
        self._token_bytes = token_bytes
        self._rows: dict[str, CachedRow] = {}
        self._calls = 0

    def reusable(self, encoded: EncodedConversation) -> int:
        """How many of the conversation's first ids are held; at least one is always left to compute."""
        row = self._rows.get(encoded.id)
        if row is None or row.encoded is not encoded:
            return 0
        return min(_common_length(row.ids, encoded.ids), len(encoded.ids) - 1)

    def arrange(self, conversations: Sequence[EncodedConversation]) -> CachedBatch:
        """A batch with one row for each conversation, in order, holding what `reusable` says of each.

        Reuses the batch of the last call where it fits. Otherwise copies the rows into a new one, and gives each other
        row of their old batches a batch of its own.
        """
        self._calls += 1
        wanted = [self._row(encoded) for encoded in conversations]
        held = wanted[0].batch
        if held is not None and held.fits(wanted):
            return held
        sources = {id(row.batch): row.batch for row in wanted if row.batch is not None}.values()
        others = [row for source in sources for row in source.live if row not in wanted]
        return self._regroup([wanted, *([row] for row in others)])[0]

    def _columns_at_once(self) -> int:
        """How many columns new buffers get: the planned length, or less where all conversations together would
        exceed the limit."""
        if not self._planned:
            return 0
        return min(self._planned, self._limit_bytes // (len(self._rows) * self._token_bytes))

    def extend(self, held: CachedBatch, mask: torch.Tensor, ids: Sequence[list[int]]) -> None:
        """Record a call: `mask` (rows, new columns) are the tokens it added, `ids` each row's tokens from then on."""
        held.mask = torch.cat([held.mask, mask], dim=1)
        for row, row_ids in zip(held.live, ids, strict=True):
            row.ids = row_ids

    def release(self, conversation_id: str) -> None:
        """Free a conversation's keys and values; unknown ones are ignored."""
        row = self._rows.pop(conversation_id, None)
        if row is not None and row.batch is not None:
            row.batch.rows[row.batch.rows.index(row)] = None

    def held(self) -> set[str]:
        """The ids of the conversations of which anything is held."""
        return {id for id, row in self._rows.items() if row.ids}

    def release_others(self, conversations: Sequence[EncodedConversation]) -> None:
        """Evict all conversations but these."""
        for id in self._rows.keys() - {encoded.id for encoded in conversations}:
            self.release(id)

    def trim(self) -> int:
        """Evict conversations until the rest is within the limit, and pack the batches that lost rows; returns how
        many were evicted."""
        batches = list({id(row.batch): row.batch for row in self._rows.values() if row.batch is not None}.values())
        row_bytes = {id(batch): batch.nbytes / len(batch.rows) for batch in batches}
        oldest_first = sorted(self._rows.values(), key=lambda row: row.last_use)
        total = sum(row_bytes[id(row.batch)] for row in oldest_first)
        dropped = 0
        for row in oldest_first:
            if total <= self._limit_bytes:
                break
            total -= row_bytes[id(row.batch)]
            self.release(row.encoded.id)
            dropped += 1
        if not dropped:
            return 0
        log.warning(
            "The KV cache is full (%.2f GiB): %d of %d conversations will be encoded again at their next turn",
            self._limit_bytes / 2**30, dropped, dropped + len(self._rows),
        )  # fmt: skip
        for batch in batches:
            if batch.live and None in batch.rows:
                self._regroup([batch.live])
        return dropped

    def _row(self, encoded: EncodedConversation) -> CachedRow:
        """The conversation's row, cut to what can be reused of it, or a new and empty one."""
        reusable = self.reusable(encoded)
        if not reusable:
            self.release(encoded.id)
        row = self._rows.setdefault(encoded.id, CachedRow(encoded))
        if row.batch is not None and reusable < len(row.ids):
            row.batch.cut(row, reusable)
        row.last_use = self._calls
        return row

    def _regroup(self, groups: Sequence[Sequence[CachedRow]]) -> list[CachedBatch]:
        """Copy rows into one new batch for each group; the batches they came from end.

        Goes layer by layer and frees each as it is copied, so that only one layer is ever held twice. A failure in
        between (out of memory) loses all of these rows; they are encoded again.
        """
        planned = self._columns_at_once()
        try:
            copies = [_Copies.of(group) for group in groups]
            layers: list[list[GrowingLayer]] = [[] for _ in groups]
            for index in range(self._layers):
                for copy, into in zip(copies, layers, strict=True):
                    into.append(_packed(copy, index, planned))
                for copy in copies:
                    copy.free(index)
        except BaseException:
            for row in (row for group in groups for row in group):
                self.release(row.encoded.id)
            raise
        return [CachedBatch(group, copy.mask, into) for group, copy, into in zip(groups, copies, layers, strict=True)]


@dataclass(frozen=True)
class _Source:
    """Rows of one batch and where they go: row `rows[i]` becomes row `into[i]`. With `columns` (rows, new width) their
    tokens move to the right, column `columns[i, j]` to j; what is copied to the left of them is masked. Without it the
    columns stay as they are. Index tensors are on the device."""

    batch: CachedBatch
    into: torch.Tensor
    rows: torch.Tensor
    columns: torch.Tensor | None

    def read(self, states: torch.Tensor) -> torch.Tensor:
        """Of a layer's (rows, heads, columns, head size) those to copy, (new rows, heads, new width, head size)."""
        chosen = states.index_select(0, self.rows)
        if self.columns is None:
            return chosen
        return chosen.take_along_dim(self.columns[:, None, :, None], dim=2)


@dataclass(frozen=True)
class _Copies:
    """How a new batch is put together: `mask` (rows, width) is that of the new batch, on the CPU."""

    mask: torch.Tensor
    sources: list[_Source]

    @classmethod
    def of(cls, group: Sequence[CachedRow]) -> "_Copies":
        """Rows that all come from one batch and leave few of its columns unused keep their columns, which is one copy a
        layer; else every row is moved to end in the last column."""
        held = [(into, row, row.batch) for into, row in enumerate(group) if row.batch is not None and row.ids]
        batches = list({id(batch): batch for _, _, batch in held}.values())
        longest = max(len(row.ids) for row in group)
        stay = len(held) == len(group) and len(batches) == 1 and batches[0].mask.shape[1] <= _SLACK * longest + _ROOM
        mask = torch.arange(longest) >= longest - torch.tensor([len(row.ids) for row in group])[:, None]
        sources = []
        for batch in batches:
            into, rows = zip(*((into, batch.rows.index(row)) for into, row, of in held if of is batch), strict=True)
            kept, columns, device = batch.mask[list(rows)], None, batch.cache.layers[0].keys.device
            if stay:
                mask = kept
            else:  # a stable sort puts unused columns first and keeps the order of the others
                columns = kept.int().argsort(dim=1, stable=True)[:, -longest:]
                columns = pad(columns, (longest - columns.shape[1], 0)).to(device)
            sources.append(
                _Source(batch, torch.tensor(into, device=device), torch.tensor(rows, device=device), columns)
            )
        return cls(mask, sources)

    def free(self, layer: int) -> None:
        """Free a layer of the batches that the rows come from, other rows' too."""
        for source in self.sources:
            source.batch.cache.layers[layer] = GrowingLayer()


def _packed(copies: _Copies, layer: int, planned: int) -> GrowingLayer:
    """A layer of the new batch, its buffers at least `planned` columns long."""
    if not copies.sources:
        return GrowingLayer(planned)
    rows, width = copies.mask.shape
    buffers = []
    for kind in ("keys", "values"):
        states = [getattr(source.batch.cache.layers[layer], kind) for source in copies.sources]
        _, heads, _, size = states[0].shape
        buffer = states[0].new_zeros(rows, heads, max(width, planned), size)
        for source, of in zip(copies.sources, states, strict=True):
            buffer[source.into, :, :width] = source.read(of)
        buffers.append(buffer)
    return GrowingLayer.of(buffers, width, planned)


def buffer_columns(tokens: int) -> int:
    """Columns of a buffer that serves conversations of up to `tokens` tokens without growing: compiled steps attend to
    multiples of `WINDOW` columns, and need one column more than they read."""
    return -(-tokens // WINDOW) * WINDOW + 1


def _lengthened(buffer: torch.Tensor, used: int, columns: int) -> torch.Tensor:
    """A buffer of `columns` that begins with the `used` columns of this one and is zero after them."""
    rows, heads, _, size = buffer.shape
    longer = buffer.new_empty(rows, heads, columns, size)
    longer[:, :, :used] = buffer[:, :, :used]
    longer[:, :, used:] = 0  # `reserve` promises that
    return longer


def _common_length(first: list[int], second: list[int]) -> int:
    if second[: len(first)] == first:
        return len(first)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
