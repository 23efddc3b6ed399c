"""Runs `generate()` on a batch: encoded conversations in, generated token ids out."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch.nn.functional import pad
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel, StoppingCriteriaList

from roomscout.base.interrupts import undone_on_failure
from roomscout.models import ModelError, ModelOptions, OutOfMemory, Reply, ReplyFormat
from roomscout.models.conversation import why_too_long
from roomscout.models.transformers import decoding
from roomscout.models.transformers.attention import inference_state
from roomscout.models.transformers.decoding import GrammarConstraint, compiled_grammar
from roomscout.models.transformers.devices import is_out_of_memory
from roomscout.models.transformers.encoding import ConversationEncoder, EncodedConversation, EncodedTurn
from roomscout.models.transformers.kv_cache import CachedBatch, KVStore, cache_argument
from roomscout.models.transformers.layers import keeps_states, kv_token_bytes, layer_makers
from roomscout.models.transformers.loading import end_tokens
from roomscout.models.transformers.steps import DecodingLoop, captured

log = logging.getLogger(__name__)

# Rows with this many more new tokens than the batch's minimum, and at least twice as many, are prefilled separately.
_STRAGGLER_COLUMNS = 64

Steps = Literal["eager", "compiled", "graphs", "compiled graphs"]
"""How decoding steps run: in `generate()`'s own loop, compiled with `torch.compile`, or as CUDA graphs of either."""

Ended = Callable[[int, Reply | ModelError], None]
"""Called with a reply, without its text, or with why there is none, and with its index in the call."""


@dataclass(frozen=True)
class _Prefill:
    """The uncached columns of a batch, left-padded, on the CPU."""

    ids: torch.Tensor  # (rows, columns)
    mask: torch.Tensor  # (rows, columns)
    positions: torch.Tensor  # (position axes, rows, columns)
    turns: list[EncodedTurn]  # those with uncached images


class ModelRunner:
    """Runs a model and owns its KV cache. Outside `run` the model is as its owner left it. At most `kv_bytes` of keys
    and values are kept between calls; with 0, every call recomputes its conversations. `options` say how to sample, how
    long replies are and buffers at first. Replies are `forced` to have all of their tokens in measurements."""

    def __init__(
        self,
        model: PreTrainedModel,
        encoder: ConversationEncoder,
        options: ModelOptions,
        kv_bytes: int,
        steps: Steps = "eager",
        forced: bool = False,
    ) -> None:
        self._model = model
        self._encoder = encoder
        self._tokenizer = encoder.chat.processor.tokenizer
        self._options = options
        self._steps = steps
        self._forced = forced
        self._reuses_kv = kv_bytes > 0
        self._cache_argument = cache_argument(model)
        text = model.config.get_text_config()
        self._keeps_states = keeps_states(model.config) and self._reuses_kv
        token_bytes = kv_token_bytes(model.config, model.dtype.itemsize)
        makers = layer_makers(model.config)
        self._store = KVStore(makers or [], kv_bytes, options.planned_tokens, token_bytes, self._keeps_states)
        self._alternatives_come = False
        self._end_ids = end_tokens(model.generation_config, self._tokenizer)
        if not self._end_ids:
            raise ModelError(
                f"neither the tokenizer nor the generation settings of {type(model).__name__} name an end token: set "
                "eos_token_id in model.generation_config"
            )
        self._pad_id = self._end_ids[0] if self._tokenizer.pad_token_id is None else self._tokenizer.pad_token_id
        # Only these of the model's own settings apply, so that greedy decoding is greedy.
        self._settings = GenerationConfig(eos_token_id=self._end_ids, pad_token_id=self._pad_id, do_sample=False)
        forbidden = decoding.never_generated(self._tokenizer, self._end_ids, text.vocab_size)
        self._suppress = decoding.SuppressTokens(forbidden, model.device)
        compiled = "compiled" in steps
        capture = partial(captured, model.device) if "graphs" in steps else None
        self._loop = None if steps == "eager" else DecodingLoop(model, compiled, capture)
        # Compiled steps have a program for several rows, and another one for a single row is not worth it.
        self._least_rows = 2 if compiled else 1
        self._holds_cache = not encoder.chat.whole and (self._reuses_kv or self._loop is not None)
        self._vocab_size: int = text.vocab_size
        self._grammars: dict[str, Any] = {}  # compiled

    def prepare(self, reply_format: ReplyFormat) -> None:
        """Compile the format's grammar ahead of `run`; cached. Raises ModelError if xgrammar is not installed."""
        grammar = reply_format.grammar
        if grammar is not None and grammar not in self._grammars:
            self._grammars[grammar] = compiled_grammar(grammar, self._tokenizer, self._vocab_size, self._end_ids)

    @torch.inference_mode()
    def run(
        self, batch: Sequence[EncodedConversation], reply_format: ReplyFormat, ended: Ended = lambda index, row: None
    ) -> list[Reply]:
        """Generate one reply in this format for each conversation, in order and without its text; alternatives leave
        nothing, and their origins as they were. Each row is also told once, when it has `ended`, which must change no
        conversation of the batch. Raises ModelError for a conversation too long for the model, OutOfMemory if the batch
        does not fit after evicting all others; the rows that had ended are kept by nobody but whom they were told. One
        whose logits are not finite ends with a ModelError, and is not among the replies that are returned."""
        limit = getattr(self._model.config.get_text_config(), "max_position_embeddings", None)
        for encoded in batch:
            if (needed := len(encoded.ids) + self._options.max_new_tokens) > (limit or needed):
                raise ModelError(why_too_long(needed, f"the model takes {limit}"))
        self.prepare(reply_format)
        order = self._store.in_order(batch)
        cached = self._store.cached()
        started = time.perf_counter()
        reused = list(map(self._store.reusable, batch))
        rows: dict[int, Reply | ModelError] = {}

        def attempt() -> bool:
            """Generate the rows that have not ended; False if memory runs out."""
            left = [index for index in order if index not in rows]

            def tell(place: int, row: Reply | ModelError) -> None:
                rows[left[place]] = row
                ended(left[place], row)

            undone = [batch[index] for index in left]
            reused_before = [reused[index] for index in left]
            with _until_out_of_memory(), self._store.without_forks():
                self._generate(undone, reused_before, reply_format, started, tell)
                return True
            torch.cuda.empty_cache()
            return False

        with inference_state(self._model, self._settings, grouped=not self._encoder.chat.family.by_processor):
            done = attempt()
            if not done:
                self._store.release_others(batch)
                if evicted := cached - self._store.cached():  # the failed attempt may have lost some already
                    log.warning("Out of memory: evicted the KV cache of %d conversations, trying again", len(evicted))
                    done = attempt()
        if not done:
            raise OutOfMemory(f"a batch of {len(batch)} does not fit into memory: use smaller batches or smaller views")
        made = [rows[index] for index in range(len(batch))]
        replies = [row for row in made if isinstance(row, Reply)]
        if not self._reuses_kv:
            self._store.release_others([])
            return replies
        with _until_out_of_memory():
            self._store.trim()
            return replies
        torch.cuda.empty_cache()
        log.warning("Out of memory while repacking the KV cache: some conversations will be recomputed")
        return replies

    def release(self, key: int) -> None:
        """Free the KV cache of the conversation with this key; unknown ones are ignored."""
        self._store.release(key)

    def forget(self) -> None:
        """Free what is cached of all conversations, as after a change of weights."""
        self._store.release_others([])
        self._alternatives_come = False

    def _generate(
        self,
        batch: Sequence[EncodedConversation],
        reused_before: Sequence[int],
        reply_format: ReplyFormat,
        started: float,
        ended: Ended,
    ) -> None:
        """`started` and `reused_before` are those of the run."""
        options = self._options
        reused = list(map(min, reused_before, map(self._store.reusable, batch)))
        images = [encoded.images_after(length) for encoded, length in zip(batch, reused, strict=True)]
        working = self._prefill_ahead(batch)
        shared = working[0].origin is not None
        cached = self._store.share(working) if shared else self._store.arrange(working)
        prefill = self._lay_out_prefill(working, cached)
        width = cached.mask.shape[1] + prefill.ids.shape[1]
        finite = decoding.FiniteLogits(len(batch), self._model.device)
        processors = LogitsProcessorList([finite, *self._logits_processors(batch, reply_format.grammar)])
        logprobs = decoding.RecordedLogprobs(processors) if options.logprobs else None
        processors = LogitsProcessorList([logprobs]) if logprobs else processors
        most_live = self._most_live if self._holds_cache and cached.moves else lambda rows: 0

        def tell(row: int) -> None:
            made = stop.replies[row]
            if made.failed:
                ended(row, self._not_finite(len(made.tokens)))
                return
            first = stop.first_token_at or 0.0
            reply = Reply(
                "",
                tokens=tuple(made.tokens),
                prompt_tokens=len(batch[row].ids),
                reused_tokens=reused[row],
                generated_tokens=len(made.tokens),
                finish_reason="stop" if made.finished else "length",
                seconds=made.ended_at - started,
                prefill_seconds=first - started,
                decode_seconds=made.decode_s * len(batch),
                images_encoded=images[row],
                logprobs=tuple(logprobs.of_row(row)[: len(made.tokens)]) if logprobs else (),
            )
            ended(row, reply)

        stop = decoding.ReplyStop(self._end_ids, width, len(batch), options.max_new_tokens, tell, most_live, finite)
        columns = self._decode(cached, prefill, stop, processors)
        if shared or self._keeps_states:
            cached.roll_back()
        else:
            self._record(batch, cached, prefill.mask, stop.replies, columns - 1)
        for encoded, made in zip(batch, stop.replies, strict=True):
            if made.failed:  # what is masked must be finite, too
                self._store.release((encoded.origin or encoded).key)
        if self._reuses_kv:
            for turn in (turn for encoded in batch for turn in encoded.turns):
                turn.inputs.clear()

    def _not_finite(self, tokens: int) -> ModelError:
        dtype = str(self._model.dtype).removeprefix("torch.")
        return ModelError(
            f"the model's logits for token {tokens + 1} of the reply are not finite numbers: its numbers are too large "
            f"for {dtype} (try another data type), or its weights are damaged (download them again)"
        )

    def _decode(
        self, cached: CachedBatch, prefill: _Prefill, stop: decoding.ReplyStop, processors: LogitsProcessorList
    ) -> int:
        """Prefill, and decode until all rows have ended and left the call; returns the number of generated columns."""
        options = self._options
        # generate() requires ids for the cached columns too, but does not read them.
        ids = pad(prefill.ids, (cached.mask.shape[1], 0), value=self._pad_id).to(self._model.device)
        inputs = self._model_inputs(cached, prefill)
        width = ids.shape[1]
        cached.protect()
        with undone_on_failure(cached.roll_back):
            while True:
                generated = ids.shape[1] - width
                ids = self._model.generate(
                    input_ids=ids,
                    **inputs,
                    max_new_tokens=options.max_new_tokens - generated,
                    pad_token_id=self._pad_id,
                    logits_processor=processors,
                    stopping_criteria=StoppingCriteriaList([stop]),
                    custom_generate=self._loop,
                )
                if not stop.live:
                    cached.widen()
                    return ids.shape[1] - width
                order = cached.narrow(max(self._least_rows, len(stop.live)), stop.live)
                ids = ids[order].to(self._model.device)
                # The newest tokens of these rows are not in the cache yet.
                behind = ids.shape[1] - width - generated
                inputs = {
                    "attention_mask": pad(inputs["attention_mask"][order], (0, behind), value=1),
                    "position_ids": inputs["position_ids"][..., order, -1:] + behind,
                    self._cache_argument: inputs[self._cache_argument],
                }
                decoding.keep_rows([stop, *processors], order)

    def _most_live(self, rows: int) -> int:
        """Of so many rows, how many may still reply when the call goes on with them alone; 0 if it does not. Another
        graph costs as much as some steps, so that it must be for a quarter of the rows."""
        most = rows // 4 if "graphs" in self._steps else rows * 3 // 4
        return most if self._least_rows < rows else 0

    def _prefill_ahead(self, batch: Sequence[EncodedConversation]) -> Sequence[EncodedConversation]:
        """Prefill what generate() should not, in calls of their own; returns the conversations for which it is called.

        Layers that keep states would take in the padding between a row's cached and new tokens. Their rows are
        therefore prefilled up to their last token, rows with equally many tokens together, and their replies are
        computed again in the next turn: cached is what was prefilled. Once alternatives were asked for, and if a
        template rewrites turns, that ends with the last image, behind which texts differ, and the rest is computed on
        copies."""
        if not self._keeps_states:
            self._prefill_stragglers(batch)
            return batch
        self._alternatives_come |= batch[0].origin is not None
        if not (self._alternatives_come or self._encoder.chat.rewrites):
            self._prefill_evenly(batch, [len(encoded.ids) - 1 for encoded in batch])
            return batch
        origins = [encoded.origin or encoded for encoded in batch]
        self._prefill_evenly(origins, [origin.last_image_end for origin in origins])
        copies = [self._store.fork(encoded) for encoded in batch]
        self._prefill_evenly(copies, [len(encoded.ids) - 1 for encoded in copies])
        return copies

    def _prefill_evenly(self, batch: Sequence[EncodedConversation], ends: Sequence[int]) -> None:
        """Prefill conversations up to `ends` where they are not that far yet, in calls without any padding between
        cached and new tokens: of rows with equally many new ones, all of which have cached ones or none."""
        groups: dict[tuple[int, bool], list[tuple[EncodedConversation, int]]] = {}
        for encoded, end in zip(batch, ends, strict=True):
            if (cached := self._store.reusable(encoded)) < end:
                groups.setdefault((end - cached, cached == 0), []).append((encoded, end))
        for group in groups.values():
            self._prefill([encoded for encoded, _ in group], [end for _, end in group])

    def _prefill_stragglers(self, batch: Sequence[EncodedConversation]) -> None:
        """Prefill rows with many more new tokens than the others (new or evicted conversations) up to their last image,
        alone, so that the batch is not padded to their length. An alternative's origin keeps that prefix."""
        if not self._reuses_kv:
            return
        missing = [len(encoded.ids) - self._store.reusable(encoded) for encoded in batch]
        threshold = max(2 * min(missing), min(missing) + _STRAGGLER_COLUMNS)
        stragglers = [
            encoded.origin or encoded
            for encoded, columns in zip(batch, missing, strict=True)
            if columns > threshold and encoded.last_image_end > self._store.reusable(encoded)
        ]
        if stragglers:
            self._prefill(stragglers, [encoded.last_image_end for encoded in stragglers])

    def _prefill(self, batch: Sequence[EncodedConversation], ends: Sequence[int]) -> None:
        """Compute and keep what is not cached of these conversations up to `ends`."""
        cached = self._store.arrange(batch)
        prefill = self._lay_out_prefill(batch, cached, ends)
        cached.protect()
        with undone_on_failure(cached.roll_back):
            ids = prefill.ids.to(self._model.device)
            self._model(input_ids=ids, **self._model_inputs(cached, prefill), use_cache=True, logits_to_keep=1)
        new_ids = [encoded.ids[:end] for encoded, end in zip(batch, ends, strict=True)]
        self._store.extend(cached, prefill.mask, new_ids)

    def _lay_out_prefill(
        self, batch: Sequence[EncodedConversation], cached: CachedBatch, ends: Sequence[int] | None = None
    ) -> _Prefill:
        """Each row's ids from the end of its cached prefix up to `ends`, by default to the last."""
        ends = ends or [len(encoded.ids) for encoded in batch]
        starts = [len(row.ids) for row in cached.live]
        parts = list(zip(batch, starts, ends, strict=True))
        padded = partial(pad_sequence, batch_first=True, padding_side="left")
        new_ids = [torch.tensor(row.ids[start:end], dtype=torch.long) for row, start, end in parts]
        ids = padded(new_ids, padding_value=self._pad_id)
        mask = padded([torch.ones(max(0, end - start), dtype=torch.bool) for _, start, end in parts])
        positions = padded([row.positions[:, start:end].T for row, start, end in parts])
        turns = [turn for row, start, _ in parts for turn in row.turns_after(start)]
        return _Prefill(ids, mask, positions.permute(2, 0, 1).contiguous(), turns)

    def _model_inputs(self, cached: CachedBatch, prefill: _Prefill) -> dict[str, Any]:
        """The common arguments of generate() and forward() except the ids, on the device."""
        device = self._model.device
        positions = prefill.positions
        if self._encoder.chat.whole:
            whole = self._encoder.whole_inputs(prefill.turns)
            return {name: tensor.to(device) for name, tensor in whole.items()}
        inputs = {
            "attention_mask": torch.cat([cached.mask, prefill.mask], dim=1).long().to(device),
            "position_ids": (positions if len(positions) > 1 else positions[0]).to(device),
        }
        if self._holds_cache:  # else the model creates its own cache for this call
            inputs[self._cache_argument] = cached.cache
        if prefill.turns:
            images = [self._encoder.image_inputs(turn) for turn in prefill.turns]
            inputs |= {name: _on(device, _joined([image[name] for image in images])) for name in images[0]}
        return inputs

    def _record(
        self,
        batch: Sequence[EncodedConversation],
        cached: CachedBatch,
        prefill_mask: torch.Tensor,
        replies: Sequence[decoding.RowReply],
        decoded: int,
    ) -> None:
        """Record prompts and replies as cached, but newest tokens that no forward pass has seen; `prefill_mask` (rows,
        columns) marks the prompts' columns. Behind are the `decoded` ones. Rows of `cached` may have been moved."""
        index_of = {encoded.key: index for index, encoded in enumerate(batch)}
        order = [index_of[row.encoded.key] for row in cached.live]
        kept = [replies[index].tokens[:decoded] for index in order]
        reply_mask = torch.arange(decoded) < torch.tensor([len(tokens) for tokens in kept])[:, None]
        ids = [batch[index].ids + tokens for index, tokens in zip(order, kept, strict=True)]
        self._store.extend(cached, torch.cat([prefill_mask[order], reply_mask], dim=1), ids)

    def _logits_processors(self, batch: Sequence[EncodedConversation], grammar: str | None) -> LogitsProcessorList:
        options = self._options
        processors = LogitsProcessorList([self._suppress])
        if self._forced:
            processors.append(decoding.SuppressTokens(self._end_ids, self._model.device))
        if grammar is not None:
            processors.append(GrammarConstraint(self._grammars[grammar], len(batch), self._vocab_size))
        if any(name.endswith("penalty") for name in options.generation):
            prompts = [[id for id in encoded.ids if id < self._vocab_size] for encoded in batch]
            processors.append(decoding.Penalties(prompts, options.generation, self._model.device))
        if options.temperature:
            streams = [f"{options.seed} {encoded.id} {encoded.views}" for encoded in batch]
            processors.append(
                decoding.RowSampling(options.temperature, streams, self._model.device, options.generation)
            )
        return processors


def _on(device: torch.device, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor on the device, copied from pinned memory so that nothing waits for it."""
    return tensor if tensor.device == device else tensor.pin_memory().to(device, non_blocking=True)


def _joined(images: Sequence[torch.Tensor]) -> torch.Tensor:
    """The inputs of several images one after the other, with zeros behind those that are smaller."""
    shape = [max(sizes) for sizes in zip(*(image.shape[1:] for image in images), strict=True)]
    padded = []
    for image in images:
        missing = [most - size for size, most in zip(image.shape[1:], shape, strict=True)]
        padded.append(pad(image, [side for behind in reversed(missing) for side in (0, behind)]))
    return torch.cat(padded)


@contextmanager
def _until_out_of_memory() -> Iterator[None]:
    """Ends the block if it runs out of memory. The error keeps the block's tensors alive until then."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
