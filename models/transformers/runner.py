"""The tensors of one `generate()` call: encoded conversations in, generated token ids out."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import torch
from transformers import LogitsProcessorList, StoppingCriteriaList

from models import ModelError, OutOfMemory, ReplyFormat
from models.transformers.attention import pack_heads
from models.transformers.decoding import Forbidden, ReplyStop, RowSampling, never_generated
from models.transformers.encoding import ConversationEncoder, EncodedConversation, EncodedTurn
from models.transformers.families import family_of
from models.transformers.grammar import CompiledGrammar
from models.transformers.kv_cache import CachedBatch, KVStore, kv_token_bytes
from models.transformers.loading import is_out_of_memory
from models.transformers.steps import DecodingLoop

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

log = logging.getLogger(__name__)

# Rows with this many more columns to compute than the shortest of their batch, and at least twice as many, are first
# computed in a separate call.
_FAR_BEHIND = 64

Steps = Literal["eager", "compiled", "graphs", "compiled graphs"]
"""How decoding steps are executed: by `generate()` itself, compiled by `torch.compile`, or as CUDA graphs of either."""

T = TypeVar("T")


@dataclass(frozen=True)
class GenerationOptions:
    """`min_new_tokens` above 0 forces the length of a reply, for measurements; `temperature` 0 is greedy."""

    max_new_tokens: int
    min_new_tokens: int = 0
    temperature: float = 0.0
    seed: int = 0
    steps: Steps = "eager"


@dataclass(frozen=True)
class GeneratedRow:
    """One row's new token ids, without its end token; `finished` is False where the limit truncated it.

    `reused` of its prompt's ids were held from an earlier call, `images` went through the image encoder in this one.
    """

    tokens: tuple[int, ...]
    finished: bool
    reused: int
    images: int


@dataclass(frozen=True)
class GeneratedBatch:
    """The rows of one call in order, and its wall time up to the first new token and after it."""

    rows: list[GeneratedRow]
    prefill_s: float
    decode_s: float


@dataclass(frozen=True)
class _Columns:
    """What a call computes beyond the columns that are held, on the CPU, every row ending in the last column.

    `ids` and `mask` are (rows, columns), `positions` (position axes, rows, columns), `turns` those whose images are
    among them.
    """

    ids: torch.Tensor
    mask: torch.Tensor
    positions: torch.Tensor
    turns: list[EncodedTurn]


class ModelRunner:
    """Owns the model and its KV cache: lays out a batch, runs it, and splits the result into rows.

    At most `kv_bytes` of keys and values are kept between calls; with 0 none are, and every call computes its
    conversations from the start. `planned_tokens` is the length that conversations are expected to reach: memory for it
    is taken at once instead of step by step.
    """

    def __init__(
        self,
        model: "PreTrainedModel",
        tokenizer: "PreTrainedTokenizerBase",
        encoder: ConversationEncoder,
        options: GenerationOptions,
        kv_bytes: int,
        planned_tokens: int = 0,
    ) -> None:
        pack_heads(model)
        self._model = model
        self._tokenizer = tokenizer
        self._encoder = encoder
        self._options = options
        self._keeps = kv_bytes > 0
        self._family = family_of(model.config)
        text = model.config.get_text_config()
        token_bytes = kv_token_bytes(text, model.dtype.itemsize)
        self._store = KVStore(text.num_hidden_layers, kv_bytes, planned_tokens, token_bytes)
        self._end_ids: list[int] = model.generation_config.eos_token_id
        self._pad_id: int = model.generation_config.pad_token_id
        self._forbidden = Forbidden(never_generated(tokenizer, self._end_ids, text.vocab_size), model.device)
        self._loop = DecodingLoop.of(model, options.steps)
        self._vocab_size: int = text.vocab_size
        self._grammars: dict[str, CompiledGrammar] = {}

    def prepare(self, reply_format: ReplyFormat) -> None:
        """Compile the format's grammar, if it has one and this was not done yet; `run` does it otherwise.

        Raises ModelError where xgrammar is not installed.
        """
        grammar = reply_format.grammar
        if grammar is not None and grammar not in self._grammars:
            self._grammars[grammar] = CompiledGrammar(grammar, self._tokenizer, self._vocab_size, self._end_ids)

    @torch.inference_mode()
    def run(self, batch: Sequence[EncodedConversation], reply_format: ReplyFormat) -> GeneratedBatch:
        """Generate one reply in this format for each conversation, in order.

        Raises ModelError for a conversation that is too long for the model, OutOfMemory for a batch too large for the
        device: only if evicting all other conversations did not help.
        """
        for encoded in batch:
            self._check_length(encoded)
        self.prepare(reply_format)
        started, reused = time.perf_counter(), self._reusable(batch)
        held = self._store.held()
        result = self._in_memory(lambda: self._generate(batch, reply_format, started, reused))
        if result is None:
            self._store.release_others(batch)
            evicted = held - self._store.held()  # the failed attempt may have lost some already
            if evicted:
                log.warning("Out of memory: evicted the KV cache of %d conversations, trying again", len(evicted))
                result = self._in_memory(lambda: self._generate(batch, reply_format, started, reused))
        if result is None:
            raise OutOfMemory(
                f"a batch of {len(batch)} does not fit into memory: use a smaller --batch-size or --image-size"
            )
        self._tidy_up()
        return result

    def release(self, conversation_id: str) -> None:
        """Free a conversation's keys and values; unknown ones are ignored."""
        self._store.release(conversation_id)

    def peak_memory_bytes(self) -> int:
        """The most CUDA memory that was allocated at once so far; 0 on other devices."""
        device = self._model.device
        return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0

    def _check_length(self, encoded: EncodedConversation) -> None:
        limit = self._model.config.get_text_config().max_position_embeddings
        needed = len(encoded.ids) + self._options.max_new_tokens
        if needed > limit:
            raise ModelError(
                f"conversation {encoded.id} needs {needed} tokens with its reply, and the model takes {limit}: "
                "use fewer --steps, a smaller --image-size or fewer --max-new-tokens"
            )

    def _tidy_up(self) -> None:
        """Evict what exceeds the store's limit."""
        if not self._keeps:
            self._store.release_others([])
            return
        if self._in_memory(self._store.trim) is None:  # the replies are there, and the store has dropped those rows
            log.warning("Out of memory: the KV cache cannot be packed, some conversations will be encoded again")

    def _in_memory(self, work: Callable[[], T]) -> T | None:
        """What `work` returns; None if memory ran out.

        By then nothing holds the tensors of the failed call: a handler that is still running would keep its error, and
        with it every frame of the call.
        """
        try:
            return work()
        except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        if self._model.device.type == "cuda":
            torch.cuda.empty_cache()
        return None

    def _reusable(self, batch: Sequence[EncodedConversation]) -> list[int]:
        return [self._store.reusable(encoded) for encoded in batch]

    def _generate(
        self,
        batch: Sequence[EncodedConversation],
        reply_format: ReplyFormat,
        started: float,
        reused_before: Sequence[int],
    ) -> GeneratedBatch:
        """Generate once. `started` and `reused_before`, from before any attempt, are what costs are counted from."""
        reused = list(map(min, reused_before, self._reusable(batch)))
        images = [len(_new_turns(encoded, length)) for encoded, length in zip(batch, reused, strict=True)]
        self._catch_up(batch)
        held = self._store.arrange(batch)
        columns = self._columns(batch, held)
        width = held.mask.shape[1] + columns.ids.shape[1]
        stop = ReplyStop(self._tokenizer, self._end_ids, width, reply_format, self._options.min_new_tokens)
        choice = self._choice(batch, reply_format.grammar)
        generated = self._call_generate(held, columns, choice, stop)
        rows = []
        for row, tokens in enumerate(generated):
            kept = tuple(tokens[: stop.lengths.get(row, len(tokens))])
            rows.append(GeneratedRow(kept, row in stop.lengths, reused[row], images[row]))
        self._record(batch, held, columns.mask, [row.tokens for row in rows], len(generated[0]) - 1)
        assert stop.first_token_at is not None
        return GeneratedBatch(rows, stop.first_token_at - started, time.perf_counter() - stop.first_token_at)

    def _call_generate(
        self, held: CachedBatch, columns: _Columns, choice: LogitsProcessorList, stop: ReplyStop
    ) -> list[list[int]]:
        """The new ids of each row, as many for each; those after a row's end mean nothing."""
        options = self._options
        # generate() wants ids for the held columns too, but reads only those that are not held.
        ids = torch.nn.functional.pad(columns.ids, (held.mask.shape[1], 0), value=self._pad_id)
        with _rolled_back(held):
            output = self._model.generate(
                input_ids=ids.to(self._model.device),
                **self._inputs(held, columns),
                max_new_tokens=options.max_new_tokens,
                min_new_tokens=options.min_new_tokens or None,
                pad_token_id=self._pad_id,
                logits_processor=choice,
                stopping_criteria=StoppingCriteriaList([stop]),
                custom_generate=self._loop,
            )
        return output[:, ids.shape[1] :].tolist()

    def _catch_up(self, batch: Sequence[EncodedConversation]) -> None:
        """Compute rows that are far behind up to their last image, in a separate call.

        A row that is new or was evicted has much more to compute than the others; in one call with them, all would be
        padded to its length.
        """
        if not self._keeps:
            return
        missing = [len(encoded.ids) - self._store.reusable(encoded) for encoded in batch]
        threshold = max(2 * min(missing), min(missing) + _FAR_BEHIND)
        behind = [
            encoded
            for encoded, columns in zip(batch, missing, strict=True)
            if columns > threshold and encoded.last_image_end > self._store.reusable(encoded)
        ]
        if not behind:
            return
        held = self._store.arrange(behind)
        ends = [encoded.last_image_end for encoded in behind]
        columns = self._columns(behind, held, ends)
        with _rolled_back(held):
            ids = columns.ids.to(self._model.device)
            self._model(input_ids=ids, **self._inputs(held, columns), use_cache=True, logits_to_keep=1)
        self._store.extend(held, columns.mask, [encoded.ids[:end] for encoded, end in zip(behind, ends, strict=True)])

    def _columns(
        self, batch: Sequence[EncodedConversation], held: CachedBatch, ends: Sequence[int] | None = None
    ) -> _Columns:
        """The columns from where each row is held up to `ends`, by default to the end of its ids."""
        ends = ends or [len(encoded.ids) for encoded in batch]
        starts = [len(row.ids) for row in held.live]
        width = max(end - start for start, end in zip(starts, ends, strict=True))
        ids = torch.full((len(batch), width), self._pad_id)
        mask = torch.zeros(len(batch), width, dtype=torch.bool)
        positions = torch.zeros(self._family.position_axes, len(batch), width, dtype=torch.long)
        for row, (encoded, start, end) in enumerate(zip(batch, starts, ends, strict=True)):
            at = width - (end - start)
            ids[row, at:] = torch.tensor(encoded.ids[start:end])
            mask[row, at:] = True
            positions[:, row, at:] = encoded.positions[:, start:end]
        turns = [turn for encoded, start in zip(batch, starts, strict=True) for turn in _new_turns(encoded, start)]
        return _Columns(ids, mask, positions, turns)

    def _inputs(self, held: CachedBatch, columns: _Columns) -> dict[str, object]:
        """What generate() and forward() both take, but for the ids; on the device."""
        device, axes = self._model.device, self._family.position_axes
        inputs = {
            "attention_mask": torch.cat([held.mask, columns.mask], dim=1).long().to(device),
            "position_ids": (columns.positions if axes > 1 else columns.positions[0]).to(device),
        }
        if self._keeps or self._loop is not None:  # else the model creates its own cache for this call
            inputs["past_key_values"] = held.cache
        if columns.turns:
            images = [self._encoder.image_inputs(turn) for turn in columns.turns]
            inputs |= {name: torch.cat([each[name] for each in images]).to(device) for name in images[0]}
        return inputs

    def _record(
        self,
        batch: Sequence[EncodedConversation],
        held: CachedBatch,
        prefilled: torch.Tensor,
        replies: Sequence[tuple[int, ...]],
        decoded: int,
    ) -> None:
        """Record in the store what its rows hold now: the prompt and the reply, except a newest token not yet computed.

        `prefilled` is the mask of the prompt's new columns; `decoded` columns follow them, and those after a row's end
        are masked.
        """
        lengths = [min(len(reply), decoded) for reply in replies]
        own = torch.arange(decoded) < torch.tensor(lengths)[:, None]
        ids = [
            encoded.ids + list(reply[:length]) for encoded, reply, length in zip(batch, replies, lengths, strict=True)
        ]
        self._store.extend(held, torch.cat([prefilled, own], dim=1), ids)
        if self._keeps:
            for turn in (turn for encoded in batch for turn in encoded.turns):
                turn.image.inputs = None

    def _choice(self, batch: Sequence[EncodedConversation], grammar: str | None) -> LogitsProcessorList:
        """What changes the model's logits before the largest is chosen."""
        options = self._options
        processors = LogitsProcessorList([self._forbidden])
        if grammar is not None:
            processors.append(self._grammars[grammar].processor(len(batch)))
        if options.temperature:
            streams = [f"{options.seed} {encoded.id} {len(encoded.turns)}" for encoded in batch]
            processors.append(RowSampling(options.temperature, streams, self._model.device))
        return processors


def _new_turns(encoded: EncodedConversation, start: int) -> list[EncodedTurn]:
    """The turns whose images come after the first `start` ids. Held ids never end within an image."""
    new, at = [], 0
    for turn in encoded.turns:
        if at + turn.image_end > start:
            new.append(turn)
        at += len(turn.ids)
    return new


@contextmanager
def _rolled_back(held: CachedBatch) -> Iterator[None]:
    """Leave a batch as it was when the call inside fails or is interrupted."""
    try:
        yield
    except BaseException:
        held.roll_back()
        raise
