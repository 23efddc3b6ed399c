"""Keys and values that live across turns: kept for each conversation, regrouped with the batches, bounded in bytes."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

import torch
from transformers import Cache
from transformers.cache_utils import DynamicLayer

from agent.backends.encoding import EncodedConversation

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger(__name__)

# Columns of room that a buffer is given beyond what it must hold, or a quarter of that where it is more: it is then
# copied every other turn.
_ROOM = 64
# A batch is packed anew when it is wider than its longest row by this factor (and by _ROOM).
_SLACK = 1.25


class GrowingLayer(DynamicLayer):
    """One layer's keys and values, (rows, heads, columns, head size) each, in buffers with room behind them.

    A generated token costs the writing of its own column; transformers' DynamicLayer copies all columns each time.
    """

    is_initialized: bool

    def __init__(self, keys: torch.Tensor | None = None, values: torch.Tensor | None = None) -> None:
        super().__init__()
        self._buffers: list[torch.Tensor] = []
        if keys is not None and values is not None:
            self.lazy_initialization(keys, values)
            self._buffers = [keys, values]
            self._show(keys.shape[-2])

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: object, **kwargs: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append columns, (rows, heads, new columns, head size) each; returns all keys and all values."""
        used = self.get_seq_length()
        columns = used + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self._buffers = [key_states[:, :, :0], value_states[:, :, :0]]
        self._buffers = [_with_room(buffer, used, columns) for buffer in self._buffers]
        for buffer, states in zip(self._buffers, (key_states, value_states), strict=True):
            buffer[:, :, used:columns] = states
        self._show(columns)
        return self.keys, self.values

    def reserve(self, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The buffers of keys and of values, with room for at least so many columns.

        Those behind the held ones may be written to and then be held. They are finite until then: where a mask rules
        them out they add exactly 0, as NaN would not.
        """
        used = self.get_seq_length()
        self._buffers = [_with_room(buffer, used, columns) for buffer in self._buffers]
        self._show(used)
        return self._buffers[0], self._buffers[1]

    def hold(self, columns: int) -> None:
        """Hold the first `columns` of the buffers and no others; with 0 the memory is given back as well."""
        if not self.is_initialized:
            return
        if columns == 0:
            self.is_initialized = False
            self._buffers, self.keys, self.values = [], None, None
        else:
            self._show(columns)

    @property
    def nbytes(self) -> int:
        """Bytes of memory held, room included."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def _show(self, columns: int) -> None:
        self.keys, self.values = (buffer[:, :, :columns] for buffer in self._buffers)


def can_keep(model: "PreTrainedModel") -> bool:
    """Whether a model's keys and values can live across turns here: all of its layers attend to all tokens."""
    config = model.config.text_config
    kinds = getattr(config, "layer_types", None) or ["full_attention"]
    return bool(config.use_cache) and set(kinds) == {"full_attention"}


@dataclass(eq=False)
class CachedRow:
    """The cached start of one conversation: `ids` are the tokens whose keys and values are held in `batch`."""

    encoded: EncodedConversation
    ids: list[int] = field(default_factory=list)
    batch: "CachedBatch | None" = None
    last_use: int = 0


class CachedBatch:
    """Rows that were generated together: `mask` (rows, columns), on the CPU, says which columns hold a row's tokens.

    A row of None belongs to nobody any more; its memory is given back when the batch is next packed.
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
        """Undo what a failed call has added behind the columns that `mask` knows."""
        for layer in self.cache.layers:
            layer.hold(self.mask.shape[1])

    def cut(self, row: CachedRow, length: int) -> None:
        """Keep the first `length` tokens of a row."""
        index = self.rows.index(row)
        columns = self.mask[index].nonzero().squeeze(1)
        self.mask[index, columns[length:]] = False
        row.ids = row.ids[:length]

    def fits(self, rows: Sequence[CachedRow]) -> bool:
        """Whether a call for these rows can go on from here as it is: the same rows, few columns unused."""
        longest = max(len(row.ids) for row in rows)
        return self.rows == list(rows) and self.mask.shape[1] <= _SLACK * longest + _ROOM


class KVStore:
    """Keeps what a model has computed of conversations, as batches that follow how the conversations are grouped.

    `limit_bytes` bounds what stays between calls. What goes beyond it is let go, longest unused first; those
    conversations are encoded again.
    """

    def __init__(self, layers: int, limit_bytes: int) -> None:
        self._layers = layers
        self._limit_bytes = limit_bytes
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

        The batch of the last call is taken as it is where it fits. Otherwise rows are copied into a new one, and rows
        that they shared a batch with are each given their own.
        """
        self._calls += 1
        wanted = [self._row(encoded) for encoded in conversations]
        held = wanted[0].batch
        if held is not None and held.fits(wanted):
            return held
        sources = {id(row.batch): row.batch for row in wanted if row.batch is not None}.values()
        others = [row for source in sources for row in source.live if row not in wanted]
        return self._regroup([wanted, *([row] for row in others)])[0]

    def extend(self, held: CachedBatch, mask: torch.Tensor, ids: Sequence[list[int]]) -> None:
        """Record a call: `mask` (rows, new columns) are the tokens it added, `ids` each row's tokens from then on."""
        held.mask = torch.cat([held.mask, mask], dim=1)
        for row, row_ids in zip(held.live, ids, strict=True):
            row.ids = row_ids

    def release(self, conversation_id: str) -> None:
        """Let go of a conversation; unknown ones are ignored."""
        row = self._rows.pop(conversation_id, None)
        if row is not None and row.batch is not None:
            row.batch.rows[row.batch.rows.index(row)] = None

    def held(self) -> set[str]:
        """The ids of the conversations of which anything is held."""
        return {id for id, row in self._rows.items() if row.ids}

    def release_others(self, conversations: Sequence[EncodedConversation]) -> None:
        """Let go of all conversations but these."""
        for id in self._rows.keys() - {encoded.id for encoded in conversations}:
            self.release(id)

    def trim(self) -> None:
        """Let go of conversations until the rest is within the limit, and pack the batches that lost rows."""
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
            return
        log.warning(
            "The KV cache is full (%.2f GiB): %d of %d conversations will be encoded again at their next turn",
            self._limit_bytes / 2**30, dropped, dropped + len(self._rows),
        )  # fmt: skip
        for batch in batches:
            if batch.live and None in batch.rows:
                self._regroup([batch.live])

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

        Goes layer by layer and lets go of each as it is copied, so that only one layer is ever held twice. Whatever
        breaks in between (memory) loses all of these rows, and with them nothing but time.
        """
        try:
            pieces = [[_Piece.of(row) for row in group] for group in groups]
            layers: list[list[GrowingLayer]] = [[] for _ in groups]
            for index in range(self._layers):
                for group, into in zip(pieces, layers, strict=True):
                    into.append(_packed(group, index))
                for piece in (piece for group in pieces for piece in group):
                    piece.let_go(index)
        except BaseException:
            for row in (row for group in groups for row in group):
                self.release(row.encoded.id)
            raise
        return [
            CachedBatch(group, _right_aligned([len(row.ids) for row in group]), into)
            for group, into in zip(groups, layers, strict=True)
        ]


@dataclass(frozen=True)
class _Piece:
    """Where a row's keys and values are: its batch (None if nowhere), its index there, its columns on the device."""

    batch: CachedBatch | None
    index: int = 0
    columns: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))

    @classmethod
    def of(cls, row: CachedRow) -> "_Piece":
        if row.batch is None or not row.ids:
            return cls(None)
        index = row.batch.rows.index(row)
        columns = row.batch.mask[index].nonzero().squeeze(1)
        return cls(row.batch, index, columns.to(row.batch.cache.layers[0].keys.device))

    def read(self, layer: int) -> tuple[torch.Tensor, torch.Tensor] | None:
        """Keys and values of a layer, (heads, tokens, head size) each."""
        if self.batch is None:
            return None
        held = self.batch.cache.layers[layer]
        keys, values = (states[self.index].index_select(1, self.columns) for states in (held.keys, held.values))
        return keys, values

    def let_go(self, layer: int) -> None:
        """Give back the memory of a layer of the batch, other rows' too."""
        if self.batch is not None:
            self.batch.cache.layers[layer] = GrowingLayer()


def _packed(pieces: Sequence[_Piece], layer: int) -> GrowingLayer:
    """A layer of one row for each piece, every row ending in the last column, zeros in front of it."""
    read = [piece.read(layer) for piece in pieces]
    held = [states for states in read if states is not None]
    if not held:
        return GrowingLayer()
    keys, values = (_stacked([None if states is None else states[kind] for states in read]) for kind in range(2))
    return GrowingLayer(keys, values)


def _stacked(rows: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """Rows of (heads, tokens, head size), or None, as (rows, heads, longest, head size)."""
    longest = max((row for row in rows if row is not None), key=lambda row: row.shape[1])
    stacked = longest.new_zeros(len(rows), *longest.shape)
    for into, row in zip(stacked, rows, strict=True):
        if row is not None:
            into[:, longest.shape[1] - row.shape[1] :] = row
    return stacked


def _right_aligned(lengths: Sequence[int]) -> torch.Tensor:
    """A mask (rows, longest) of rows that end in the last column."""
    longest = max(lengths)
    return torch.arange(longest) >= longest - torch.tensor(lengths)[:, None]


def _with_room(buffer: torch.Tensor, used: int, columns: int) -> torch.Tensor:
    """A buffer of at least `columns` that begins with the `used` columns of this one."""
    if columns <= buffer.shape[2]:
        return buffer
    rows, heads, _, size = buffer.shape
    grown = buffer.new_empty(rows, heads, columns + max(_ROOM, columns // 4), size)
    grown[:, :, :used] = buffer[:, :, :used]
    grown[:, :, used:] = 0  # `reserve` promises that
    return grown


def _common_length(first: list[int], second: list[int]) -> int:
    if second[: len(first)] == first:
        return len(first)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))
