"""A pool of slots for keys and values: each conversation has one, across turns and batches, within a limit of bytes."""

import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from transformers import Cache

from roomscout.base.interrupts import deferred_interrupts, undone_on_failure
from roomscout.models.transformers.attention import PAGE
from roomscout.models.transformers.encoding import EncodedConversation
from roomscout.models.transformers.layers import KeptLayer, SlotLayer, StateLayer

log = logging.getLogger(__name__)


def cache_argument(model: torch.nn.Module) -> str:
    """The name of the argument of forward() that takes a cache, which transformers 5.24 renamed."""
    return "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"


class SlotCache(Cache):
    """A cache that compiled layers do not look into: it differs from layer to layer."""

    update = torch.compiler.disable(Cache.update)


def buffer_columns(tokens: int) -> int:
    """The columns of a slot for so many tokens: whole pages, and one column more for idle rows of a CUDA graph."""
    return -(-(tokens + 1) // PAGE) * PAGE


NO_SLOT = -1


@dataclass(eq=False)
class Row:
    """What is cached of a conversation: the keys and values of `ids` are in the first columns of its slot. The next
    tokens go behind them; to forget tokens is to shorten `ids`."""

    encoded: EncodedConversation
    ids: list[int] = field(default_factory=list)
    slot: int = NO_SLOT
    last_use: int = 0


class Pool:
    """The slots of all conversations in the buffers of `layers`. Rows join and leave calls at no cost. Beyond
    `limit_bytes`, the least recently used are evicted between calls and later recomputed. Slots are for
    `planned_tokens`, as far as the limit allows for all; a token takes `token_bytes` in all layers. If layers
    keep states, of which nothing can be taken back, a cached prefix is reused whole or not at all."""

    def __init__(
        self,
        layers: Sequence[KeptLayer],
        limit_bytes: int,
        planned_tokens: int = 0,
        token_bytes: int = 0,
    ) -> None:
        self.cache = SlotCache(layers=list(layers))
        self.version = 0  # another one once buffers are others
        self.columns = 0
        self._layers = layers
        self._slots = 0
        self._used: set[int] = set()  # slots that had tokens
        self._limit_bytes = limit_bytes
        self._planned = buffer_columns(planned_tokens) if planned_tokens else 0
        self._token_bytes = max(1, token_bytes)
        self.keeps_states = bool(self.state_layers)
        self._rows: dict[int, Row] = {}
        self._calls = 0
        self._told = False

    @property
    def nbytes(self) -> int:
        """Bytes of memory allocated on the device."""
        return sum(layer.nbytes for layer in self._layers)

    @property
    def state_layers(self) -> list[StateLayer]:
        """The layers that keep states."""
        return [layer for layer in self._layers if isinstance(layer, StateLayer)]

    def reusable(self, encoded: EncodedConversation) -> int:
        """How many first ids are cached, with an origin's, up to one that differs or of another view; never all."""
        row = self._rows.get(encoded.owner.key)
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
        return 0 if self.keeps_states and same < len(cached) else same

    def in_order(self, conversations: Sequence[EncodedConversation]) -> list[int]:
        """Their indices in the order of their slots, so that neighbours are together; new ones are last."""

        def place(index: int) -> tuple[bool, int]:
            row = self._rows.get(conversations[index].owner.key)
            return (True, index) if row is None or row.slot == NO_SLOT else (False, row.slot)

        return sorted(range(len(conversations)), key=place)

    def rows(self, conversations: Sequence[EncodedConversation], more: int) -> list[Row]:
        """The row of each conversation, cut to its `reusable` prefix, in a slot with columns for `more` tokens than it
        has. Alternatives have rows of their own in the slots of their origins, which stay as they are: see `lent`."""
        self._calls += 1
        prefixes = list(map(self.reusable, conversations))
        wanted = []
        for encoded, prefix in zip(conversations, prefixes, strict=True):
            row = self._rows.setdefault(encoded.owner.key, Row(encoded.owner))
            row.last_use = self._calls
            if encoded.origin is None:
                row.ids = row.ids[:prefix]  # before it has other views, if an interrupt comes in between
                row.encoded = encoded
            wanted.append(row)
        self._make_room(wanted, max(len(encoded.ids) for encoded in conversations) + more)
        return [
            row if encoded.origin is None else Row(encoded, encoded.ids[:prefix], row.slot)
            for row, encoded, prefix in zip(wanted, conversations, prefixes, strict=True)
        ]

    @contextmanager
    def lent(self, alternatives: Sequence[Row]) -> Iterator[None]:
        """Put back, when the block ends, what these alternatives overwrite of their origins."""
        saved = list[tuple[torch.Tensor, int, slice, torch.Tensor]]()
        for row in alternatives:
            columns = slice(len(row.ids), len(self._rows[row.encoded.owner.key].ids))
            for layer in self._layers:
                if isinstance(layer, SlotLayer) and layer.is_initialized:
                    for buffer in (layer.keys, layer.values):
                        saved.append((buffer, row.slot, columns, buffer[row.slot, columns].clone()))
        try:
            yield
        finally:
            with deferred_interrupts():
                for buffer, slot, columns, held in saved:
                    buffer[slot, columns] = held

    def keep(self, rows: Sequence[Row], ids: Sequence[list[int]], states: bool = False) -> None:
        """Record what a call has put into the slots of rows: the tokens that each has now, and perhaps `states`."""
        with deferred_interrupts(), undone_on_failure(self._lose):
            for layer in self.state_layers if states else ():
                layer.keep([row.slot for row in rows])
            for row, row_ids in zip(rows, ids, strict=True):
                row.ids = row_ids

    def release(self, key: int) -> None:
        """Free the slot of the conversation with this key; unknown ones are ignored."""
        self._rows.pop(key, None)

    def cached(self) -> set[int]:
        """The keys of the conversations with cached tokens."""
        return {key for key, row in self._rows.items() if row.ids}

    def release_others(self, conversations: Sequence[EncodedConversation]) -> bool:
        """Evict all conversations but these, or of alternatives their origins, and free the slots in which nothing is
        cached; returns whether there were slots of others, used or not."""
        kept = {encoded.owner.key for encoded in conversations}
        self._rows = {key: row for key, row in self._rows.items() if key in kept}
        had_others = len(self._held) < self._slots
        for row in self._rows.values():
            row.slot = row.slot if row.ids else NO_SLOT
        if len(self._held) < self._slots:
            self._rebuild(len(self._held), self.columns)
        return had_others

    def forget(self) -> None:
        """Free all conversations and the memory."""
        self._rows.clear()
        self._rebuild(0, 0)

    def trim(self) -> None:
        """Evict conversations until the rest fits into the limit, and free the memory."""
        if self._slots and self.nbytes > self._limit_bytes:
            self._evict(int(self._limit_bytes // (self.nbytes / self._slots)), [])
            self._rebuild(len(self._held), self.columns)

    @property
    def _held(self) -> list[Row]:
        """The rows with a slot, by slot."""
        return sorted((row for row in self._rows.values() if row.slot != NO_SLOT), key=lambda row: row.slot)

    def _make_room(self, rows: Sequence[Row], columns: int) -> None:
        """Give each of these rows a slot of at least so many columns."""
        new = [row for row in rows if row.slot == NO_SLOT]
        held = self._held
        slots = len(held) + len(new)
        width = max(self.columns, buffer_columns(columns))
        if slots > self._slots or width > self.columns:
            if not self.columns:
                planned = min(self._planned, self._limit_bytes // (slots * self._token_bytes))
                width = max(width, planned // PAGE * PAGE)
            elif width > self.columns:
                width = max(width, self.columns * 5 // 4 // PAGE * PAGE)
                if self._planned and not self._told:
                    log.warning("A conversation is longer than planned: keys and values are copied into larger slots")
                    self._told = True
            if slots * width * self._token_bytes > self._limit_bytes:  # narrow slots rather than few
                width = buffer_columns(max(columns, *(len(row.ids) for row in held), 0))
            self._evict(self._limit_bytes // (width * self._token_bytes) - len(new), rows)
            self._rebuild(max(len(self._held) + len(new), len(rows)), width)
        taken = {row.slot for row in self._rows.values()}
        for row, slot in zip(new, [slot for slot in range(self._slots) if slot not in taken], strict=False):
            for layer in self._layers if slot in self._used else ():
                if isinstance(layer, SlotLayer):  # a state is replaced as a whole
                    layer.clean(slot)
            self._used.add(slot)
            row.slot = slot

    def _evict(self, most: int, spared: Sequence[Row]) -> None:
        """Evict the least recently used of the rows with a slot until there are at most so many, or `spared` alone."""
        held = self._held
        others = sorted((row for row in held if row not in spared), key=lambda row: row.last_use)
        evicted = others[: max(0, len(held) - max(0, most))]
        for row in evicted:
            self.release(row.encoded.key)
        if evicted:
            log.warning(
                "The KV cache is full (%.2f GiB): %d of %d conversations will be recomputed in their next turn",
                self._limit_bytes / 2**30, len(evicted), len(held),
            )  # fmt: skip

    def _rebuild(self, slots: int, columns: int) -> None:
        """Copy the rows into so many slots, layer by layer, so that one layer at most is in memory twice. A failure in
        between (out of memory) loses them all; they are recomputed."""
        held = self._held
        columns = columns if slots else 0
        with undone_on_failure(self._lose):
            for layer in self._layers:
                layer.rebuild([(row.slot, len(row.ids)) for row in held], slots, columns)
            for place, row in enumerate(held):
                row.slot = place
        self._slots = slots
        self._used = set(range(len(held)))
        self.columns = columns
        self.version += 1

    def _lose(self) -> None:
        self._rows = {key: Row(row.encoded, last_use=row.last_use) for key, row in self._rows.items()}
        self._slots = 0
        self.columns = 0
        self.version += 1
        for layer in self._layers:
            layer.rebuild([], 0, 0)
