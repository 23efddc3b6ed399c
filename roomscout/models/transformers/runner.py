"""Runs batches: encoded conversations in, generated token ids out."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal

import torch
from transformers import GenerationConfig, LogitsProcessorList, PreTrainedModel

from roomscout.models import ModelError, ModelOptions, OutOfMemory, Reply, ReplyFormat
from roomscout.models.conversation import why_too_long
from roomscout.models.transformers import decoding, library
from roomscout.models.transformers.attention import Call, inference_state, takes_varlen
from roomscout.models.transformers.decoding import GrammarConstraint, compiled_grammar
from roomscout.models.transformers.devices import is_out_of_memory, onednn_products
from roomscout.models.transformers.encoding import ConversationEncoder, EncodedConversation
from roomscout.models.transformers.kv_cache import Pool, Row
from roomscout.models.transformers.layers import cache_layers, kv_token_bytes
from roomscout.models.transformers.loading import end_tokens
from roomscout.models.transformers.steps import DecodingSteps, StaticStep, captured, compiled_layers

log = logging.getLogger(__name__)

Steps = Literal["eager", "compiled", "graphs", "compiled graphs"]
"""How decoding steps run: layer by layer, with compiled layers, or as CUDA graphs of either."""

Ended = Callable[[int, Reply | ModelError], None]
"""Called with a reply, without its text, or with why there is none, and with its index in the call."""


class ModelRunner:
    """Runs a model and owns its KV cache. Outside `run` the model is as its owner left it. At most `kv_bytes` of keys
    and values are kept between calls; with 0, every call recomputes its conversations by the library's `generate()`.
    `options` say how to sample, how long replies are and slots at first. Replies are `forced` to have all of their
    tokens in measurements."""

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
        self._reuses_kv = kv_bytes > 0
        text = model.config.get_text_config()
        layers = cache_layers(model.config) if self._reuses_kv else None
        token_bytes = kv_token_bytes(model.config, model.dtype.itemsize)
        self._column_bytes = token_bytes // max(1, text.num_hidden_layers)
        self._pool = Pool(layers or [], kv_bytes, options.planned_tokens, token_bytes)
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
        self._always = LogitsProcessorList([decoding.SuppressTokens(forbidden, model.device)])
        if forced:
            self._always.append(decoding.SuppressTokens(self._end_ids, model.device))
        capture = None
        if "graphs" in steps and takes_varlen(model.device, model.dtype):
            capture = partial(captured, model.device)
        elif "graphs" in steps and model.device.type == "cuda":
            log.warning("Decoding steps in %s run without CUDA graphs: those take bfloat16 or float16", model.dtype)
        compiled = compiled_layers(model) if "compiled" in steps else []
        self._steps = DecodingSteps(model, self._pool, self._column_bytes, self._always, capture, compiled)
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
        order = self._pool.in_order(batch)
        cached = self._pool.cached()
        started = time.perf_counter()
        reused = list(map(self._pool.reusable, batch))
        rows: dict[int, Reply | ModelError] = {}

        def attempt() -> bool:
            """Generate the rows that have not ended; False if memory runs out."""
            left = [index for index in order if index not in rows]

            def tell(place: int, row: Reply | ModelError) -> None:
                rows[left[place]] = row
                ended(left[place], row)

            undone = [batch[index] for index in left]
            reused_before = [reused[index] for index in left]
            with _until_out_of_memory():
                self._generate(undone, reused_before, reply_format, started, tell)
                return True
            self._steps.free()
            torch.cuda.empty_cache()
            return False

        with inference_state(self._model, self._settings, to_slots=self._reuses_kv):
            done = attempt()
            if not done:
                freed = True  # if copying what is left runs out of memory, it is lost, too
                with _until_out_of_memory():
                    freed = self._pool.release_others(batch)
                evicted = cached - self._pool.cached()  # the failed attempt may have lost some already
                if evicted or freed:
                    log.warning("Out of memory: evicted the KV cache of %d conversations, trying again", len(evicted))
                    done = attempt()
        if not done:
            raise OutOfMemory(f"a batch of {len(batch)} does not fit into memory: use smaller batches or smaller views")
        made = [rows[index] for index in range(len(batch))]
        replies = [row for row in made if isinstance(row, Reply)]
        with _until_out_of_memory():
            self._pool.trim()
            return replies
        torch.cuda.empty_cache()
        log.warning("Out of memory while repacking the KV cache: some conversations will be recomputed")
        return replies

    def release(self, key: int) -> None:
        """Free the KV cache of the conversation with this key; unknown ones are ignored."""
        self._pool.release(key)

    def forget(self) -> None:
        """Free what is cached of all conversations, as after a change of weights."""
        self._pool.forget()
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
        reused = list(map(min, reused_before, map(self._pool.reusable, batch)))
        images = [encoded.images_after(length) for encoded, length in zip(batch, reused, strict=True)]
        finite = decoding.FiniteLogits(len(batch), self._model.device)
        more = self._chosen_by(batch, reply_format.grammar)
        processors = LogitsProcessorList([finite, *self._always, *more])
        logprobs = decoding.RecordedLogprobs(processors) if options.logprobs else None
        processors = LogitsProcessorList([logprobs]) if logprobs else processors

        def tell(row: int) -> None:
            made = stop.replies[row]
            if made.failed:
                self._pool.release(batch[row].owner.key)  # nothing of it is used again, also if the call is interrupted
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

        columns = 1 if self._reuses_kv else max(len(encoded.ids) for encoded in batch)
        stop = decoding.ReplyStop(self._end_ids, columns, len(batch), options.max_new_tokens, tell, finite)
        if not self._reuses_kv:
            library.generate(self._model, self._encoder, batch, self._pad_id, options.max_new_tokens, processors, stop)
            return
        regular = None if more or logprobs else finite
        with onednn_products(self._model):
            self._in_slots(batch, stop, processors, regular)

    def _in_slots(
        self,
        batch: Sequence[EncodedConversation],
        stop: decoding.ReplyStop,
        processors: LogitsProcessorList,
        finite: decoding.FiniteLogits | None,
    ) -> None:
        """Prefill what is not cached, and decode; `finite` if nothing chooses tokens by those before. What is cached of
        a conversation's reply are the tokens that a forward pass has seen; of alternatives nothing."""
        pool = self._pool
        self._prefill_ahead(batch)
        rows = pool.rows(batch, self._options.max_new_tokens)
        kept = [row for row in rows if row.encoded.origin is None and not pool.keeps_states]
        with pool.lent([row for row in rows if row.encoded.origin is not None]):
            logits = None
            if pool.keeps_states:
                self._prefill_evenly(rows, [len(encoded.ids) - 1 for encoded in batch], keep=False)
            else:
                logits = self._forward(rows, [len(encoded.ids) for encoded in batch])
            pool.keep(kept, [row.encoded.ids for row in kept])
            self._decode(rows, logits, stop, processors, finite)
        for row, made in zip(rows, stop.replies, strict=True):
            if row in kept and not made.failed:
                pool.keep([row], [row.encoded.ids + made.tokens[: None if made.finished else -1]])
        for turn in (turn for encoded in batch for turn in encoded.turns):
            turn.inputs.clear()

    def _not_finite(self, tokens: int) -> ModelError:
        dtype = str(self._model.dtype).removeprefix("torch.")
        return ModelError(
            f"the model's logits for token {tokens + 1} of the reply are not finite numbers: its numbers are too large "
            f"for {dtype} (try another data type), or its weights are damaged (download them again)"
        )

    def _decode(
        self,
        rows: list[Row],
        logits: torch.Tensor | None,
        stop: decoding.ReplyStop,
        processors: LogitsProcessorList,
        finite: decoding.FiniteLogits | None,
    ) -> None:
        """Decode from `logits`, or from the last tokens of the prompts, until all rows have ended. Rows that end leave;
        with graphs, once another serves the rest."""
        ids = torch.tensor([row.encoded.ids[-1:] for row in rows])

        def choose(logits: torch.Tensor) -> torch.Tensor:
            return decoding.processed(processors, ids, logits.float()).argmax(dim=1, keepdim=True)

        def begin() -> StaticStep:
            """The steps of the rows, whose newest token is not cached yet."""
            behind = ids.shape[1] - 2
            starts = [len(row.encoded.ids) + behind for row in rows]
            positions = torch.stack([row.encoded.positions[:, -1] for row in rows], dim=1) + behind + 1
            return self._steps.begin(rows, starts, positions, choose, finite)

        steps: StaticStep | None = None
        if logits is None:
            steps = begin()
            new = steps.after(ids.to(self._model.device), 1)
        else:
            new = choose(logits)
        while True:
            ids = torch.cat([ids, new.cpu()], dim=1)
            stop(ids, None)
            live = stop.live
            if not live:
                return
            if self._steps.size(len(live)) < self._steps.size(len(rows)):
                rows = [rows[index] for index in live]
                ids = ids[live]
                new = new[live]
                decoding.keep_rows([stop, *processors], live)
                for layer in self._pool.state_layers:
                    layer.use({name: states[live] for name, states in layer.states.items()})
                steps = None
            steps = steps or begin()
            new = steps.after(new[:, -1:], self._options.max_new_tokens + 1 - ids.shape[1])

    def _prefill_ahead(self, batch: Sequence[EncodedConversation]) -> None:
        """Compute and keep what is cached before the call itself: of alternatives, their origins up to the last image;
        of layers that keep states, of which no token can be taken back, all but the last token of the prompts. Once
        alternatives were asked for, and if a template rewrites turns, that ends with the last image, too: the texts
        behind it differ."""
        alternatives = any(encoded.origin is not None for encoded in batch)
        more = self._options.max_new_tokens
        owners = [encoded.owner for encoded in batch]
        ends = [owner.last_image_end for owner in owners]
        if self._pool.keeps_states:
            self._alternatives_come |= alternatives
            if not (self._alternatives_come or self._encoder.chat.rewrites):
                ends = [len(owner.ids) - 1 for owner in owners]
            self._prefill_evenly(self._pool.rows(owners, more), ends, keep=True)
        if self._pool.keeps_states or not alternatives:
            return
        self._pool.rows(batch, more)  # makes room for all, so that none is evicted for another
        missing = [
            owner
            for encoded, owner, end in zip(batch, owners, ends, strict=True)
            if encoded.origin is not None and self._pool.reusable(owner) < end
        ]
        if missing:
            rows = self._pool.rows(missing, more)
            self._forward(rows, [owner.last_image_end for owner in missing])
            self._pool.keep(rows, [owner.ids[: owner.last_image_end] for owner in missing])

    def _prefill_evenly(self, rows: Sequence[Row], ends: Sequence[int], keep: bool) -> None:
        """Prefill rows of layers that keep states up to `ends`, those with equally many new tokens together, and `keep`
        the states, or go on from them."""
        groups: dict[tuple[int, bool], list[int]] = {}
        for index, (row, end) in enumerate(zip(rows, ends, strict=True)):
            groups.setdefault((max(0, end - len(row.ids)), not row.ids), []).append(index)
        layers = self._pool.state_layers
        order = list[int]()
        parts: list[list[dict[tuple[str, int], torch.Tensor]]] = [[] for _ in layers]
        for (new, fresh), indices in groups.items():
            if keep and not new:
                continue
            group = [rows[index] for index in indices]
            slots = None if fresh else [row.slot for row in group]
            for layer in layers:
                layer.begin(slots)
            if new:
                self._forward(group, [ends[index] for index in indices])
            if keep:
                kept = [row.encoded.ids[: ends[index]] for row, index in zip(group, indices, strict=True)]
                self._pool.keep(group, kept, states=True)
            order += indices
            for of_layer, layer in zip(parts, layers, strict=True):
                of_layer.append(layer.states)
        if not keep:
            places = [order.index(index) for index in range(len(rows))]
            for of_layer, layer in zip(parts, layers, strict=True):
                layer.use({name: torch.cat([part[name] for part in of_layer])[places] for name in of_layer[0]})

    def _forward(self, rows: Sequence[Row], ends: Sequence[int]) -> torch.Tensor:
        """Put each row's tokens up to `ends` behind its cached ones; returns the logits after the last ones (rows,
        vocabulary). All are one row to the model; to layers that keep states they are rows with equally many each."""
        device = self._model.device
        starts = [len(row.ids) for row in rows]
        counts = [end - start for end, start in zip(ends, starts, strict=True)]
        parts = list(zip(rows, starts, ends, strict=True))
        ids = torch.tensor([id for row, start, end in parts for id in row.encoded.ids[start:end]])
        positions = torch.cat([row.encoded.positions[:, start:end] for row, start, end in parts], dim=1)
        slots = [row.slot for row in rows]
        call = Call(slots, starts, counts, device, self._model.dtype, self._column_bytes)
        turns = [turn for row, start, _ in parts for turn in row.encoded.turns_after(start)]
        of_a_row = counts[:1] if self._pool.keeps_states else counts
        last = torch.tensor(of_a_row).cumsum(0) - 1
        images = library.image_inputs(self._encoder, turns, device)
        return self._steps.forward(ids.to(device), positions.to(device), call, **images, logits_to_keep=last.to(device))

    def _chosen_by(self, batch: Sequence[EncodedConversation], grammar: str | None) -> LogitsProcessorList:
        """What chooses tokens by those before."""
        options = self._options
        processors = LogitsProcessorList()
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


@contextmanager
def _until_out_of_memory() -> Iterator[None]:
    """Ends the block if it runs out of memory. The error keeps the block's tensors alive until then."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
