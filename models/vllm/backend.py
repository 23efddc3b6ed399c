"""Conversations as requests to a vLLM server: token ids in, token ids out, each image sent once."""

import base64
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import accumulate, groupby
from typing import TYPE_CHECKING, Any

from models import ModelError, ModelOptions, Reply, ReplyFormat
from models.conversation import Conversation, Message
from models.vllm import VllmOptions
from models.vllm.server import RequestFailed, VllmServer

if TYPE_CHECKING:
    from models.transformers.encoding import EncodedConversation

log = logging.getLogger(__name__)

GENERATE = "/inference/v1/generate"
"""vLLM's token dialect: vllm/entrypoints/scale_out/token_in_token_out in its source."""
CACHE_MISS = "Cache miss"
"""What the server says of an image that was sent by its hash alone and is not in its cache any more."""
MOST_ATTEMPTS = 3
"""Failures of one request before its question fails: the request may be what kills the server."""
LENGTH_MARGIN = 1.25
"""Conversations may be planned too short, since texts of later turns are estimated."""
NEVER = -100.0
"""The lowest bias that vLLM takes for a token's logit; a probability of e^-100 of what it was."""


class VllmBackend:
    """Replies of a checkpoint in a vLLM server of its own, which batches the requests of several threads.

    The server gets the ids that `TransformersBackend` would compute from, and replies end where its replies end, so in
    float32 they are equal but for ties: tokens whose logits differ by rounding alone. Above temperature 0 a reply
    depends on the seed, the conversation's id and its turn, but on vLLM's random numbers.

    Constructing a backend starts the server and returns when it takes requests; raises ModelError.
    """

    concurrent = True

    def __init__(self, model: str, options: ModelOptions, vllm: VllmOptions) -> None:
        from transformers import AutoProcessor

        from models.transformers.decoding import never_generated
        from models.transformers.encoding import ConversationEncoder
        from models.transformers.loading import checkpoint_config, checkpoint_part, end_tokens, generation_settings

        self.name = model
        config = checkpoint_config(model)
        processor = checkpoint_part(AutoProcessor, model)
        self._options = options
        self._tokenizer = processor.tokenizer
        self._image_id: int = config.image_token_id
        self._end_ids = end_tokens(generation_settings(model), self._tokenizer)
        forbidden = never_generated(self._tokenizer, self._end_ids, config.get_text_config().vocab_size)
        self._bias = {str(id): NEVER for id in forbidden}
        self._encoder = ConversationEncoder(processor, config, tiles_per_view=options.tiles_per_view)
        self._encoding = threading.Lock()  # tokenizers may not be used by two threads at a time
        if vllm.max_model_len is None and options.planned_tokens:
            most = min(config.get_text_config().max_position_embeddings, int(LENGTH_MARGIN * options.planned_tokens))
            vllm = replace(vllm, max_model_len=most)
        self._server = VllmServer(model, options, vllm)
        self._longest = self._server.longest_conversation()

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order, all asked for at once.

        Raises ModelError for a conversation that cannot be replied to, ServerLost where the server cannot be kept
        running.
        """
        if len(conversations) == 1:
            return [self._reply(conversations[0], reply_format)]
        if not conversations:
            return []
        with ThreadPoolExecutor(len(conversations), thread_name_prefix="request") as threads:
            return list(threads.map(lambda each: self._reply(each, reply_format), conversations))

    def release(self, conversation: Conversation) -> None:
        """Forget a conversation's encoding; vLLM evicts its keys and values when it needs room."""
        with self._encoding:
            self._encoder.release(conversation.id)

    def peak_memory_bytes(self) -> int:
        """The server's memory is not known here."""
        return 0

    def close(self) -> None:
        """Stop the server; requests that are in flight raise ModelError. May be repeated."""
        self._server.close()

    def _reply(self, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        started = time.perf_counter()
        with self._encoding:
            encoded = self._encoder.encode(conversation)
            for turn in encoded.turns:
                turn.image.inputs = None  # the server makes its own
        prompt = encoded.ids
        self._check_length(conversation, len(prompt))
        encoded_at = time.perf_counter()
        tokens: list[int] = []
        cached, retries, finished = None, 0, False
        while not finished and len(tokens) < self._options.max_new_tokens:
            answer = self._ask(conversation, prompt + tokens, len(tokens), reply_format)
            retries += answer.failures
            cached = answer.cached if cached is None else cached
            # A request ends at each closing character; one in prose does not complete the reply.
            tokens, finished = self._read(tokens, answer, reply_format)
        ended = time.perf_counter()
        reused = cached or 0
        log.debug("[%s] %d of %d prompt tokens were cached", conversation.id, reused, len(prompt))
        return Reply(
            text=self._tokenizer.decode(tokens, skip_special_tokens=True),
            tokens=tuple(tokens),
            prompt_tokens=len(prompt),
            reused_tokens=reused,
            generated_tokens=len(tokens),
            finish_reason="stop" if finished else "length",
            seconds=ended - started,
            preprocess_seconds=encoded_at - started,
            images_encoded=sum(end > reused for end in _image_ends(encoded)),
            retries=retries,
        )

    def _check_length(self, conversation: Conversation, prompt_tokens: int) -> None:
        """Raise ModelError for a conversation that is too long; vLLM would shorten the reply instead."""
        needed = prompt_tokens + self._options.max_new_tokens
        if needed > self._longest:
            raise ModelError(
                f"conversation {conversation.id} needs {needed} tokens with its reply, and the vLLM server takes "
                f"{self._longest}: use a larger --max-model-len, fewer --steps, a smaller --image-size or fewer "
                "--max-new-tokens"
            )

    def _ask(self, conversation: Conversation, ids: list[int], generated: int, reply_format: ReplyFormat) -> "_Answer":
        """Continue `ids`, of which the last `generated` are the begun reply, to a closing character or the end.

        Raises ModelError where the server refuses them, sends something else, or dies on them repeatedly.
        """
        messages = [message for message in conversation.messages if message.image is not None]
        body = {
            # One placeholder stands for an image; vLLM expands it.
            "token_ids": [id for id, run in groupby(ids) for _ in ([0] if id == self._image_id else run)],
            "sampling_params": self._sampling(conversation, generated, reply_format),
            "return_token_ids": True,
        }
        failures, all_images = 0, False
        while failures < MOST_ATTEMPTS:
            life = self._server.life
            known = set() if all_images else life.images
            body["content_parts"] = [_image_part(message, message.sha256 not in known) for message in messages]
            try:
                response = life.request(GENERATE, body)
            except RequestFailed as error:
                if error.status == 400 and CACHE_MISS in error.said and not all_images:
                    log.debug("[%s] an image was evicted: sending all again", conversation.id)
                    all_images = True
                    continue
                if error.status is not None and error.status < 500:
                    raise ModelError(f"the vLLM server refuses conversation {conversation.id} ({error})") from None
                failures, why = failures + 1, str(error)
                self._server.survives(life)
                continue
            life.images.update(message.sha256 for message in messages)
            self._server.replied()
            return _read_answer(response, ids, conversation.id, failures)
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
            turn = len(conversation.images)
            from models.transformers.decoding import seed_of

            sampling["seed"] = seed_of(f"{options.seed} {conversation.id} {turn} {generated}")
        if reply_format.grammar is None:
            sampling["stop"] = [reply_format.closing]
        else:  # it ends the reply itself, and could not be continued by another request
            sampling["structured_outputs"] = {"grammar": reply_format.grammar}
        return sampling

    def _read(self, before: list[int], answer: "_Answer", reply_format: ReplyFormat) -> tuple[list[int], bool]:
        """A begun reply with the new tokens up to its end, and whether that has come; as `ReplyStop` has it."""
        tokens = list(before)
        for token in answer.tokens:
            if token in self._end_ids:
                return tokens, True
            tokens.append(token)
            closes = reply_format.closing in self._tokenizer.convert_ids_to_tokens(token)
            if closes and reply_format.is_complete(self._tokenizer.decode(tokens)):
                return tokens, True
        return tokens, False


@dataclass(frozen=True)
class _Answer:
    """New ids, how many ids of the prompt were cached, and how many requests failed before."""

    tokens: list[int]
    cached: int
    failures: int


def _read_answer(response: dict[str, Any], ids: list[int], name: str, failures: int) -> _Answer:
    """The new tokens in a response; raises ModelError where the server read another prompt than `ids`."""
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


def _image_part(message: Message, with_pixels: bool) -> dict[str, Any]:
    """An image under its content hash: vLLM believes that equal names are equal images. Without pixels it is one that
    the server has received before."""
    url = "data:image/png;base64," + base64.b64encode(message.png).decode("ascii") if with_pixels else None
    return {"type": "image_url", "url": url, "uuid": message.sha256}


def _image_ends(encoded: "EncodedConversation") -> list[int]:
    """For each image, the number of ids up to the end of its placeholders."""
    starts = accumulate((len(turn.ids) for turn in encoded.turns), initial=0)
    return [start + turn.image_end for start, turn in zip(starts, encoded.turns, strict=False)]
