"""Generates replies with a dedicated vLLM server: token ids in, token ids out, each image sent once."""

import base64
import logging
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from roomscout.base.shots import Shot
from roomscout.models import Backend, EngineLost, ModelError, ModelOptions, Reply, ReplyFormat
from roomscout.models.adapters import write_merged
from roomscout.models.conversation import Conversation, why_too_long
from roomscout.models.transformers import loading
from roomscout.models.transformers.decoding import never_generated, seed_of, with_thought
from roomscout.models.transformers.encoding import ConversationEncoder, EncodedConversation
from roomscout.models.transformers.families import family_of
from roomscout.models.transformers.families.internvl import INTERNVL
from roomscout.models.transformers.families.qwen import QWEN2_5_VL, QWEN3_VL
from roomscout.models.vllm import VllmOptions
from roomscout.models.vllm.server import RequestFailed, VllmServer

log = logging.getLogger(__name__)

GENERATE = "/inference/v1/generate"  # vLLM's token dialect: vllm/entrypoints/scale_out/token_in_token_out in its source
CACHE_MISS = "Cache miss"  # the server's error for an image that was sent by hash alone and is no longer in its cache
MOST_ATTEMPTS = 3  # failures of one request before the run ends: the request may be what kills the server
LENGTH_MARGIN = 1.25  # conversations may turn out longer than planned, because the texts of later turns are estimated
NEVER = -100.0  # the lowest logit bias that vLLM accepts; it multiplies a token's odds by e^-100
COMPARED = (QWEN3_VL, QWEN2_5_VL, INTERNVL)  # families whose replies through vLLM equal those of transformers


class VllmBackend(Backend):
    """Generates replies with a dedicated vLLM server, which batches the requests of several threads.

    The server gets the ids that `TransformersBackend` would compute from, and replies end under the same conditions, so
    in float32 they are equal up to ties: tokens whose logits differ by rounding alone. Above temperature 0 a reply
    depends on the seed, the conversation's id and its turn, but is drawn with vLLM's random numbers.

    Constructing a backend starts the server and returns when it accepts requests; raises ModelError. With an adapter,
    it serves a copy of the checkpoint with merged weights, which is in the temporary folder until `close`."""

    concurrent = True

    def __init__(self, model: str, options: ModelOptions, vllm: VllmOptions) -> None:
        self.name = model
        config = loading.checkpoint_config(model)
        family = family_of(config)
        text_config = config.get_text_config()
        self._is_compared = family in COMPARED
        if not self._is_compared:
            log.warning("vLLM's replies of %s were not compared with those of the engine transformers", family.name)
        processor = loading.checkpoint_processor(model)
        self._options = options
        self._image_id: int | None = getattr(config, "image_token_id", None)
        self._end_ids = loading.end_tokens(loading.generation_settings(model), processor.tokenizer)
        forbidden = never_generated(processor.tokenizer, self._end_ids, text_config.vocab_size)
        self._bias = {str(id): NEVER for id in forbidden}
        self._encoder = LayoutEncoder(processor, config, tiles_per_view=options.tiles_per_view)
        if vllm.max_model_len is None and options.planned_tokens:
            most = getattr(text_config, "max_position_embeddings", options.planned_tokens * 2)
            longest = min(most, int(LENGTH_MARGIN * options.planned_tokens))
            vllm = replace(vllm, max_model_len=longest)
        self._merged = None if options.adapter is None else TemporaryDirectory(prefix="roomscout-merged-")
        if options.adapter is not None and self._merged is not None:
            log.info("Merging %s into the weights of %s", options.adapter, model)
            write_merged(model, options.adapter, options.dtype, Path(self._merged.name))
            model = self._merged.name  # vLLM's own adapters leave out the image encoder
        # With these, the server's image processor makes the tiles that this package expects.
        tiles = {"crop_to_patches": options.tiles_per_view > 1, "max_patches": options.tiles_per_view}
        processor_settings = tiles if family.tiled else {}
        self._server = VllmServer(model, options, vllm, processor_settings)
        self._longest = int(self._server.current.request("/v1/models")["data"][0]["max_model_len"])

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; all requests are sent at once. Raises ModelError for a conversation
        that cannot be replied to, EngineLost if the server cannot be kept running."""
        if len(conversations) == 1:
            return [self._reply(conversations[0], reply_format)]
        if not conversations:
            return []
        with ThreadPoolExecutor(len(conversations), thread_name_prefix="request") as threads:
            calls = [threads.submit(copy_context().run, self._reply, chat, reply_format) for chat in conversations]
            return [call.result() for call in calls]

    def release(self, conversation: Conversation) -> None:
        """Forget a conversation's encoding; vLLM evicts its keys and values when it needs memory."""
        self._encoder.release(conversation.key)

    def close(self) -> None:
        """Stop the server; requests in flight raise ModelError. May be repeated."""
        self._server.close()
        if self._merged is not None:
            self._merged.cleanup()

    def _reply(self, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        started = time.perf_counter()
        encoded = self._encoder.encode(conversation)
        prompt_tokens = len(encoded.ids)
        # vLLM would shorten the reply instead.
        if (needed := prompt_tokens + self._options.max_new_tokens) > self._longest:
            raise ModelError(why_too_long(needed, f"the vLLM server takes {self._longest}"))
        encoded_at = time.perf_counter()
        reply = self._ask(conversation, encoded, reply_format)
        tokens = tuple(takewhile(lambda token: token not in self._end_ids, reply.tokens))
        ended = time.perf_counter()
        log.debug("[%s] %d of %d prompt tokens were cached", conversation.id, reply.reused_tokens, prompt_tokens)
        return replace(
            reply,
            text=self._encoder.reply_text(tokens),
            tokens=tokens,
            generated_tokens=len(tokens),
            seconds=ended - started,
            preprocess_seconds=encoded_at - started,
            images_encoded=encoded.images_after(reply.reused_tokens),
        )

    def _ask(self, conversation: Conversation, encoded: EncodedConversation, reply_format: ReplyFormat) -> Reply:
        """Request a reply; raises ModelError for a refusal or an unexpected response, EngineLost for crashes."""
        shots = conversation.shots
        if self._encoder.chat.family.by_processor or self._image_id is None:
            ids = self._encoder.unexpanded(conversation)
        else:
            ids = prompt_ids(encoded, self._image_id)
        body = {
            "token_ids": ids,
            "sampling_params": self._sampling(conversation, reply_format),
            "return_token_ids": True,
        }
        failures = 0
        all_images = False
        while failures < MOST_ATTEMPTS:
            server = self._server.current
            sent = set() if all_images else server.images
            body["content_parts"] = [image_part(shot, shot.sha256 not in sent) for shot in shots]
            try:
                response = server.request(GENERATE, body)
            except RequestFailed as error:
                if error.status == 400 and CACHE_MISS in str(error) and not all_images:
                    log.debug("[%s] an image was evicted: sending all again", conversation.id)
                    all_images = True
                    continue
                if error.status is not None and error.status < 500:
                    raise ModelError(f"the vLLM server rejects conversation {conversation.id} ({error})") from None
                failures += 1
                why = str(error)
                self._server.ensure_alive(server)
                continue
            server.images.update(shot.sha256 for shot in shots)
            self._server.replied()
            expected = encoded.ids if self._is_compared else None
            return replace(_read_reply(response, expected, conversation.id), retries=failures)
        raise EngineLost(f"the vLLM server failed {failures} times to reply to conversation {conversation.id} ({why})")

    def _sampling(self, conversation: Conversation, reply_format: ReplyFormat) -> dict[str, Any]:
        options = self._options
        sampling: dict[str, Any] = {
            "temperature": options.temperature,
            **options.generation,
            "max_tokens": options.max_new_tokens,
            "stop_token_ids": self._end_ids,
            "logit_bias": self._bias,
        }
        if options.temperature:
            sampling["seed"] = seed_of(f"{options.seed} {conversation.id} {conversation.views}")
        if reply_format.grammar is not None:
            grammar = with_thought(reply_format.grammar, self._encoder.chat.opening)
            sampling["structured_outputs"] = {"grammar": grammar}
        return sampling


def _read_reply(response: dict[str, Any], ids: list[int] | None, name: str) -> Reply:
    """The reply in a response, with end tokens and without text; raises ModelError if it is to other ids than `ids`."""
    choice = response["choices"][0]
    cached = response["usage"]["prompt_tokens_details"]
    if ids is not None and response["prompt_token_ids"] != ids:
        raise ModelError(
            f"conversation {name}: the vLLM server read {len(response['prompt_token_ids'])} tokens which differ from "
            f"the {len(ids)} of this package: it prepares this checkpoint's images differently, so use transformers",
            setting="engine",
        )
    if choice["finish_reason"] not in ("stop", "length") or not choice["token_ids"]:
        raise ModelError(f"conversation {name}: the vLLM server ended its reply with {choice['finish_reason']!r}")
    return Reply(
        "",
        tokens=tuple(choice["token_ids"]),
        prompt_tokens=len(response["prompt_token_ids"]),
        reused_tokens=(cached or {}).get("cached_tokens") or 0,
        finish_reason=choice["finish_reason"],
    )


class LayoutEncoder(ConversationEncoder):
    """Encodes conversations without pixels: ids and positions depend on views' sizes; each size is processed once."""

    keeps_pixels = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._by_size: dict[tuple[int, ...], dict[str, torch.Tensor]] = {}
        super().__init__(*args, **kwargs)

    def _encode_image(self, pixels: np.ndarray) -> dict[str, torch.Tensor]:
        if pixels.shape not in self._by_size:
            self._by_size[pixels.shape] = super()._encode_image(pixels)
        return self._by_size[pixels.shape]

    def unexpanded(self, conversation: Conversation) -> list[int]:
        """The ids of the chat template's text, in which vLLM finds and expands what stands for images."""
        with self._lock:
            return self._tokenize(self.text_of(conversation))


def prompt_ids(encoded: EncodedConversation, image_id: int) -> list[int]:
    """The ids of a conversation with `image_id` in place of all that stands for an image; vLLM expands it."""
    ids = list[int]()
    for turn in encoded.turns:
        ids += [*turn.ids[: turn.image_start], image_id, *turn.ids[turn.image_end :]]
    return ids


def image_part(shot: Shot, with_pixels: bool) -> dict[str, Any]:
    """An image under its content hash, by which vLLM knows it; without pixels, the server must have it already."""
    url = "data:image/png;base64," + base64.b64encode(shot.png).decode("ascii") if with_pixels else None
    return {"type": "image_url", "url": url, "uuid": shot.sha256}
