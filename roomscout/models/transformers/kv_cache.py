"""A KV cache that persists across turns, follows how conversations are batched, and is bounded in bytes."""

import inspect
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Self

import torch
from transformers import Cache

from roomscout.base.interrupts import deferred_interrupts, undone_on_failure
from roomscout.models.transformers.encoding import EncodedConversation
from roomscout.models.transformers.layers import SPARE, GrowingLayer, IndexedLayer, KeptLayer, RowSource, StateLayer

log = logging.getLogger(__name__)

WINDOW = 64  # compiled and captured steps attend to a multiple of this many columns
# Rows are repacked if their batch is wider than this factor times the longest row, plus SPARE.
_MAX_WIDTH_RATIO = 1.25


def cache_argument(model: torch.nn.Module) -> str:
    """The name of the argument of forward() that takes a cache, which transformers 5.24 renamed."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


@dataclass(eq=False)
class CachedRow:
    """The cached prefix of one conversation: `ids` are the tokens whose keys and values are in `batch`."""

    encoded: EncodedConversation
    ids: list[int] = field(default_factory=list)
    batch: "CachedBatch | None" = None
    last_use: int = 0


class CachedBatch:
    """Rows of one cache, None once released; `mask` (rows, columns), on the CPU, marks those with tokens. A call uses
    the first `width` rows. Alternatives share the layers of their `origin`."""

    def __init__(
        self, rows: Sequence[CachedRow], mask: torch.Tensor, layers: list[KeptLayer], origin: Self | None = None
    ) -> None:
        self.rows: list[CachedRow | None] = list(rows)
        self.mask = mask
        self.cache = Cache(layers=layers)
        self.width = len(rows)
        self.origin: CachedBatch | None = origin
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

    def protect(self) -> None:
        """Prepare a call which `roll_back` undoes, unless it is recorded."""
        for layer in self.cache.layers:
            if isinstance(layer, StateLayer):
                layer.protect()

    @property
    def moves(self) -> bool:
        """Whether its rows can be moved in place."""
        return not any(isinstance(layer, IndexedLayer) for layer in self.cache.layers)

    def narrow(self, size: int, live: Sequence[int]) -> list[int]:
        """Let a call go on, until `widen` or `roll_back`, with `size` of its rows, which become the first: the `live`
        ones, then others. Returns their former indices. If memory runs out meanwhile, nothing is cached any more."""
        wanted = [*live, *(row for row in range(self.width) if row not in live)][:size]
        order = list(range(len(self.rows)))
        places = [row for row in range(size) if row not in wanted]
        for place, row in zip(places, [row for row in wanted if row >= size], strict=True):
            order[place] = row
            order[row] = place
        with deferred_interrupts(), undone_on_failure(self._forget):
            for layer in self.cache.layers:
                layer.reorder(order)
            for batch in filter(None, (self, self.origin)):
                batch.rows = [batch.rows[row] for row in order]
                batch.mask = batch.mask[order]
        for layer in self.cache.layers:
            layer.use(size)
        self.width = size
        return order[:size]

    def widen(self) -> None:
        """Use all rows again."""
        for layer in self.cache.layers:
            layer.use(None)
        self.width = len(self.rows)

    def roll_back(self) -> None:
        """Drop what a call has added."""
        self.widen()
        for layer in self.cache.layers:
            layer.set_length(self.mask.shape[1])

    def _forget(self) -> None:
        for row in [*self.live, *(self.origin.live if self.origin else ())]:
            row.ids = []
            row.batch = None

    def truncate(self, row: CachedRow, length: int) -> None:
        """Keep only the first `length` tokens of a row."""
        index = self.rows.index(row)
        self.mask[index, self.columns(index)[length:]] = False
        row.ids = row.ids[:length]

    def fits(self, rows: Sequence[CachedRow]) -> bool:
        """Whether a call for these rows can use this batch without copying: the same rows, few unused columns."""
        longest = max(len(row.ids) for row in rows)
        return self.rows == list(rows) and self.mask.shape[1] <= _MAX_WIDTH_RATIO * longest + SPARE


class KVStore:
    """The KV caches of all conversations, batched as in their last calls; `makers` make that of each layer. Beyond
    `limit_bytes`, the least recently used are evicted between calls and later recomputed. Buffers are for
    `planned_tokens`, as far as the limit allows for all; a token takes `token_bytes` in all layers. With `whole`, a
    cached prefix is reused whole or not at all, since layers keep states, of which nothing can be taken back."""

    def __init__(
        self,
        makers: Sequence[Callable[[int], KeptLayer]],
        limit_bytes: int,
        planned_tokens: int = 0,
        token_bytes: int = 0,
        whole: bool = False,
    ) -> None:
        self._makers = makers
        self._limit_bytes = limit_bytes
        self._planned = buffer_columns(planned_tokens) if planned_tokens else 0
        self._token_bytes = token_bytes
        self._whole = whole
        self._rows: dict[int, CachedRow] = {}
        self._calls = 0
        self._fork_keys = count(-1, -1)  # conversations have keys from 0

    def reusable(self, encoded: EncodedConversation) -> int:
        """How many first ids are cached, with an origin's, up to one that differs or of another view; never all."""
        row = self._rows.get((encoded.origin or encoded).key)
        if row is None:
            return 0
        cached = row.ids
        ids = encoded.ids
        same = min(len(cached), len(ids) - 1)
        if cached[:same] != ids[:same]:
            same = next(index for index, pair in enumerate(zip(cached, ids, strict=False)) if pair[0] != pair[1])
        start = 0
        for before, turn in zip(row.encoded.turns, encoded.turns, strict=False):
            if list(map(id, before.views)) != list(map(id, turn.views)):
                same = min(same, start + min(before.image_start, turn.image_start))
                break
            start += len(before.ids)
        return 0 if self._whole and same < len(cached) else same

    def in_order(self, conversations: Sequence[EncodedConversation]) -> list[int]:
        """Their indices in the order in which they are cached, so that a call for them needs no copies."""

        def place(index: int) -> tuple[int, int]:
            row = self._rows.get((conversations[index].origin or conversations[index]).key)
            return (-1, index) if row is None or row.batch is None else (id(row.batch), row.batch.rows.index(row))

        return sorted(range(len(conversations)), key=place)

    def arrange(self, conversations: Sequence[EncodedConversation]) -> CachedBatch:
        """A batch with one row per conversation, in order, each with its `reusable` prefix: the current one if it fits,
        else new; other rows of current batches move to a batch of their own."""
        self._calls += 1
        return self._batch_of([self._row(encoded) for encoded in conversations])

    def share(self, alternatives: Sequence[EncodedConversation]) -> CachedBatch:
        """A batch with one row per alternative, in order, over the buffers of the origins' batch, in which all columns
        that an alternative lacks are masked. Roll back what one call appends, and the origins are as before."""
        self._calls += 1
        batch = self._batch_of([self._row(encoded.origin, whole=True) for encoded in alternatives if encoded.origin])
        mask = batch.mask.clone()
        rows = []
        for index, encoded in enumerate(alternatives):
            prefix = self.reusable(encoded)
            mask[index, batch.columns(index)[prefix:]] = False
            rows.append(CachedRow(encoded, encoded.ids[:prefix]))
        return CachedBatch(rows, mask, batch.cache.layers, batch)

    def fork(self, encoded: EncodedConversation) -> EncodedConversation:
        """A copy of a conversation, with a copy of what is reusable for it."""
        prefix = self.reusable(encoded)
        row = self._rows.get((encoded.origin or encoded).key)
        copied = replace(encoded, key=next(self._fork_keys), origin=None)
        fork = CachedRow(copied, encoded.ids[:prefix], last_use=self._calls)
        self._rows[copied.key] = fork
        if row is not None and prefix and (source := _source(row)) is not None:
            layers = [make(0) for make in self._makers]
            for index, layer in enumerate(layers):
                layer.take([source(index)])
            CachedBatch([fork], torch.ones(1, len(row.ids), dtype=torch.bool), layers)
        return copied

    @contextmanager
    def without_forks(self) -> Iterator[None]:
        """Release the copies that `fork` makes in this block, however it ends."""
        try:
            yield
        finally:
            for key in [key for key in self._rows if key < 0]:
                self.release(key)

    def extend(self, batch: CachedBatch, mask: torch.Tensor, ids: Sequence[list[int]]) -> None:
        """Record a call: `mask` (rows, new columns) marks the tokens it added, `ids` are each row's tokens after it."""
        batch.mask = torch.cat([batch.mask, mask], dim=1)
        for layer in batch.cache.layers:
            if isinstance(layer, StateLayer):
                layer.keep()
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

    def trim(self) -> None:
        """Evict conversations until the rest fits into the limit, and repack their batches."""
        batches = list({id(row.batch): row.batch for row in self._rows.values() if row.batch is not None}.values())
        row_bytes = {id(batch): batch.nbytes / len(batch.rows) for batch in batches}
        oldest_first = sorted(self._rows.values(), key=lambda row: row.last_use)
        total = sum(row_bytes[id(row.batch)] for row in oldest_first)
        evicted = 0
        for row in oldest_first:
            if total <= self._limit_bytes:
                break
            total -= row_bytes[id(row.batch)]
            self.release(row.encoded.key)
            evicted += 1
        if not evicted:
            return
        log.warning(
            "The KV cache is full (%.2f GiB): %d of %d conversations will be recomputed in their next turn",
            self._limit_bytes / 2**30, evicted, evicted + len(self._rows),
        )  # fmt: skip
        for batch in batches:
            if batch.live and None in batch.rows:
                self._regroup([batch.live])

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
            batches = {id(row.batch): row.batch for row in rows if row.batch is not None}.values()
            sources = {id(row): _source(row) for row in rows}
            layers: list[list[KeptLayer]] = [[] for _ in groups]
            for index, make in enumerate(self._makers):
                for group, new in zip(groups, layers, strict=True):
                    new.append(make(planned))
                    of_group = [sources[id(row)] for row in group]
                    new[-1].take([None if source is None else source(index) for source in of_group])
                for batch in batches:
                    batch.cache.layers[index] = GrowingLayer()
        made = []
        for group, new in zip(groups, layers, strict=True):
            lengths = torch.tensor([len(row.ids) for row in group])[:, None]
            made.append(CachedBatch(group, torch.arange(lengths.max()) >= lengths.max() - lengths, new))
        return made


def _source(row: CachedRow) -> Callable[[int], RowSource] | None:
    """What the layer at an index copies a row from, None if nothing of the row is cached."""
    if row.batch is None or not row.ids:
        return None
    index = row.batch.rows.index(row)
    layers = row.batch.cache.layers
    device = next(layer.device for layer in layers if isinstance(layer, GrowingLayer))
    columns = row.batch.columns(index).to(device)
    return lambda layer: (layers[layer], index, columns)


def buffer_columns(tokens: int) -> int:
    """Buffer columns for so many tokens: compiled steps attend to multiples of `WINDOW` and need one column more."""
    return -(-tokens // WINDOW) * WINDOW + 1
