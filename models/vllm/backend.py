"""Generates replies with a dedicated vLLM server: token ids in, token ids out, each image sent once."""

import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from typing import Any

from roomscout.models import ModelError, ModelOptions, Reply, ReplyFormat
from roomscout.models.conversation import Conversation, why_too_long
from roomscout.models.transformers.decoding import CompletionCheck, never_generated, seed_of
from roomscout.models.transformers.encoding import EncodedConversation
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.loading import (
    checkpoint_config,
    checkpoint_processor,
    end_tokens,
    generation_settings,
)
from roomscout.models.vllm import VllmOptions
from roomscout.models.vllm.prompts import (
    LayoutEncoder,
    image_ends,
    image_part,
    processor_settings,
    prompt_ids,
    require_served,
)
from roomscout.models.vllm.server import RequestFailed, VllmServer

log = logging.getLogger(__name__)

GENERATE = "/inference/v1/generate"
"""vLLM's token dialect: vllm/entrypoints/scale_out/token_in_token_out in its source."""
CACHE_MISS = "Cache miss"
"""The server's error for an image that was sent by hash alone and is no longer in its cache."""
MOST_ATTEMPTS = 3
"""Failures of one request before its question fails: the request may be what kills the server."""
LENGTH_MARGIN = 1.25
"""Conversations may turn out longer than planned, because the texts of later turns are estimated."""
NEVER = -100.0
"""The lowest logit bias that vLLM accepts; it multiplies a token's odds by e^-100."""


class VllmBackend:
    """Generates replies with a dedicated vLLM server, which batches the requests of several threads.

    The server gets the ids that `TransformersBackend` would compute from, and replies end under the same conditions, so
    in float32 they are equal up to ties: tokens whose logits differ by rounding alone. Above temperature 0 a reply
    depends on the seed, the conversation's id and its turn, but is drawn with vLLM's random numbers.

    Constructing a backend starts the server and returns when it accepts requests; raises ModelError.
    """

    concurrent = True

    def __init__(self, model: str, options: ModelOptions, vllm: VllmOptions) -> None:
        self.name = model
        config = checkpoint_config(model)
        family, text_config = family_of(config), config.get_text_config()
        require_served(family)
        processor = checkpoint_processor(model)
        self._options = options
        self._tokenizer = processor.tokenizer
        self._image_id: int = config.image_token_id
        self._end_ids = end_tokens(generation_settings(model), self._tokenizer)
        forbidden = never_generated(self._tokenizer, self._end_ids, text_config.vocab_size)
        self._bias = {str(id): NEVER for id in forbidden}
        self._encoder = LayoutEncoder(processor, config, tiles_per_view=options.tiles_per_view)
        self._encoding = threading.Lock()  # tokenizers are not thread-safe
        if vllm.max_model_len is None and options.planned_tokens:
            longest = min(text_config.max_position_embeddings, int(LENGTH_MARGIN * options.planned_tokens))
            vllm = replace(vllm, max_model_len=longest)
        self._server = VllmServer(model, options, vllm, processor_settings(family, options.tiles_per_view))
        self._longest = self._server.longest_conversation()

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; all requests are sent at once.

        Raises ModelError for a conversation that cannot be replied to, ServerLost if the server cannot be kept running.
        """
        if len(conversations) == 1:
            return [self._reply(conversations[0], reply_format)]
        if not conversations:
            return []
        with ThreadPoolExecutor(len(conversations), thread_name_prefix="request") as threads:
            asked = [threads.submit(copy_context().run, self._reply, each, reply_format) for each in conversations]
            return [each.result() for each in asked]

    def release(self, conversation: Conversation) -> None:
        """Forget a conversation's encoding; vLLM evicts its keys and values when it needs memory."""
        with self._encoding:
            self._encoder.release(conversation.key)

    def peak_memory_bytes(self) -> int:
        """0: the server's memory is not measured."""
        return 0

    def close(self) -> None:
        """Stop the server; requests in flight raise ModelError. May be repeated."""
        self._server.close()

    def _reply(self, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        started = time.perf_counter()
        with self._encoding:
            encoded = self._encoder.encode(conversation)
        prompt_tokens = len(encoded.ids)
        self._check_length(conversation, prompt_tokens)
        encoded_at = time.perf_counter()
        tokens: list[int] = []
        check = CompletionCheck(self._tokenizer, reply_format)
        cached, retries, finished = None, 0, False
        while not finished and len(tokens) < self._options.max_new_tokens:
            answer = self._ask(conversation, encoded, tokens, reply_format)
            retries += answer.failures
            cached = answer.cached if cached is None else cached
            # A request ends at every closing character, but one in prose does not complete the reply.
            tokens, finished = self._read(tokens, answer, check)
        ended = time.perf_counter()
        reused = cached or 0
        log.debug("[%s] %d of %d prompt tokens were cached", conversation.id, reused, prompt_tokens)
        return Reply(
            text=self._tokenizer.decode(tokens, skip_special_tokens=True),
            tokens=tuple(tokens),
            prompt_tokens=prompt_tokens,
            reused_tokens=reused,
            generated_tokens=len(tokens),
            finish_reason="stop" if finished else "length",
            seconds=ended - started,
            preprocess_seconds=encoded_at - started,
            images_encoded=sum(end > reused for end in image_ends(encoded)),
            retries=retries,
        )

    def _check_length(self, conversation: Conversation, prompt_tokens: int) -> None:
        """Raise ModelError for a conversation that is too long; vLLM would shorten the reply instead."""
        needed = prompt_tokens + self._options.max_new_tokens
        if needed > self._longest:
            takes = f"the vLLM server takes {self._longest}"
            raise ModelError(why_too_long(len(conversation.images), needed, takes, "a larger --max-model-len, "))

    def _ask(
        self, conversation: Conversation, encoded: EncodedConversation, begun: list[int], reply_format: ReplyFormat
    ) -> "_Answer":
        """Continue a conversation and a begun reply up to a closing character or the end.

        Raises ModelError if the server rejects the request, sends an unexpected response, or crashes repeatedly.
        """
        views = conversation.views
        body = {
            "token_ids": prompt_ids(encoded, self._image_id) + begun,
            "sampling_params": self._sampling(conversation, len(begun), reply_format),
            "return_token_ids": True,
        }
        failures, all_images = 0, False
        while failures < MOST_ATTEMPTS:
            server = self._server.current
            known = set() if all_images else server.images
            body["content_parts"] = [image_part(view, view.sha256 not in known) for view in views]
            try:
                response = server.request(GENERATE, body)
            except RequestFailed as error:
                if error.status == 400 and CACHE_MISS in error.said and not all_images:
                    log.debug("[%s] an image was evicted: sending all again", conversation.id)
                    all_images = True
                    continue
                if error.status is not None and error.status < 500:
                    raise ModelError(f"the vLLM server rejects conversation {conversation.id} ({error})") from None
                failures, why = failures + 1, str(error)
                self._server.ensure_alive(server)
                continue
            server.images.update(view.sha256 for view in views)
            self._server.replied()
            return _read_answer(response, encoded.ids + begun, conversation.id, failures)
        raise ModelError(f"the vLLM server failed {failures} times to reply to conversation {conversation.id} ({why})")

    def _sampling(self, conversation: Conversation, generated: int, reply_format: ReplyFormat) -> dict[str, Any]:
        options = self._options
        sampling: dict[str, Any] = {
            "temperature": options.temperature,
            "max_tokens": options.max_new_tokens - generated,
            "stop_token_ids": self._end_ids,
            "logit_bias": self._bias,
        }
        if options.temperature:
            sampling["seed"] = seed_of(f"{options.seed} {conversation.id} {len(conversation.images)} {generated}")
        if reply_format.grammar is None:
            sampling["stop"] = [reply_format.closing]
        else:  # a grammar ends the reply itself, and another request could not continue it
            sampling["structured_outputs"] = {"grammar": reply_format.grammar}
        return sampling

    def _read(self, before: list[int], answer: "_Answer", check: CompletionCheck) -> tuple[list[int], bool]:
        """A begun reply with its new tokens, cut at its end, and whether it has ended; the rules are `ReplyStop`'s."""
        tokens = list(before)
        for token in answer.tokens:
            if token in self._end_ids:
                return tokens, True
            tokens.append(token)
            if check.append(token):
                return tokens, True
        return tokens, False


@dataclass(frozen=True)
class _Answer:
    """New ids, the number of cached prompt ids, and the number of requests that failed first."""

    tokens: list[int]
    cached: int
    failures: int


def _read_answer(response: dict[str, Any], ids: list[int], name: str, failures: int) -> _Answer:
    """The new tokens in a response; raises ModelError if the server computed from other ids than `ids`."""
    choice, cached = response["choices"][0], response["usage"]["prompt_tokens_details"]
    if response["prompt_token_ids"] != ids:
        raise ModelError(
            f"conversation {name}: the vLLM server read {len(response['prompt_token_ids'])} tokens which differ from "
            f"the {len(ids)} of this package: it prepares this checkpoint's images differently, so use --engine "
            "transformers"
        )
    if choice["finish_reason"] not in ("stop", "length") or not choice["token_ids"]:
        raise ModelError(f"conversation {name}: the vLLM server ended its reply with {choice['finish_reason']!r}")
    return _Answer(choice["token_ids"], (cached or {}).get("cached_tokens") or 0, failures)
