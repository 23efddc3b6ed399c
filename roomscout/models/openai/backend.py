"""Replies of models behind OpenAI-compatible servers."""

import hashlib
import json
import logging
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, wait
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from roomscout.models import Backend, EngineLost, ModelOptions, Reply, ReplyFormat, ServerOptions
from roomscout.models.conversation import Conversation, Message, folded
from roomscout.models.openai.dialect import agreed_dialect, encoded_message, read_reply, require_schema, response_format
from roomscout.models.openai.endpoint import Endpoint, start
from roomscout.models.openai.routes import Routes

log = logging.getLogger(__name__)


class OpenAIBackend(Backend):
    """Replies of a model behind OpenAI-compatible URLs. Constructing it sends each a short conversation, and with
    `server.constrained` one with a JSON schema; raises ModelError for a wrong key, model or URL, or too few images."""

    concurrent = True

    def __init__(self, model: str, options: ModelOptions, server: ServerOptions) -> None:
        self.name = model
        self._options = options
        self._server = server
        self._encoded: dict[int, list[tuple[Message, bytes]]] = {}
        self._read: dict[int, tuple[int, int]] = {}
        """By conversation: the views and the tokens that the server read for the last reply."""
        self._warned_of_dropped_views = False
        self._closed: Future[None] = Future()
        self._endpoints = [Endpoint(url, model, server) for url in server.urls]
        self._routes = Routes(self._endpoints, server.timeout_s)
        self._dialects = {endpoint.url: agreed_dialect(endpoint, options) for endpoint in self._endpoints}
        if server.constrained:
            for endpoint in self._endpoints:
                require_schema(endpoint, self._dialects[endpoint.url], options)

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order, all requested at once. Replies have no token ids. Raises ModelError for
        a conversation that cannot be replied to, EngineLost if no URL answers for long, and once closed."""
        calls = [start(partial(self._reply, chat, reply_format)) for chat in conversations]
        for call in calls:
            either: list[Future[Any]] = [call, self._closed]
            wait(either, return_when=FIRST_COMPLETED)
            if self._closed.done():
                raise EngineLost("the run ended before the server replied")
        return [call.result() for call in calls]

    def release(self, conversation: Conversation) -> None:
        """Forget the conversation's URL and its encoded messages; unknown ones are ignored."""
        self._routes.release(conversation.key)
        self._encoded.pop(conversation.key, None)
        self._read.pop(conversation.key, None)

    def close(self) -> None:
        """Abandon all requests in flight."""
        with suppress(InvalidStateError):
            self._closed.set_result(None)
        self._routes.close()
        for endpoint in self._endpoints:
            endpoint.close()

    def _messages(self, conversation: Conversation, system_role: bool) -> list[bytes]:
        """The messages as JSON. Encodes each only once: encoding nine views of 640x480 takes 20 ms."""
        messages = conversation.messages if system_role else folded(conversation.messages)
        if conversation.origin is not None:
            return [*self._messages(conversation.origin, system_role)[:-1], encoded_message(messages[-1])]
        kept = self._encoded.setdefault(conversation.key, [])
        for index, message in enumerate(messages):
            if index == len(kept) or kept[index][0] != message:
                kept[index:] = [(message, encoded_message(message))]
        return [encoded for _, encoded in kept]

    def _reply(self, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        key = (conversation.origin or conversation).key
        reply, failed = self._routes.ask(key, lambda endpoint: self._ask(endpoint, conversation, reply_format))
        return replace(reply, retries=failed)

    def _ask(self, endpoint: Endpoint, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        started = time.perf_counter()
        dialect = self._dialects[endpoint.url]
        stream = f"{self._options.seed} {conversation.id} {conversation.views}"  # a seed for this turn, of 31 bits
        seed = int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4]) >> 1
        settings = dialect.settings(self._options, seed)
        rest: dict[str, Any] = {"model": self.name, **settings, **self._server.extra_body}
        if reply_format.schema is not None:
            rest["response_format"] = response_format(reply_format.schema)
        messages = self._messages(conversation, dialect.system_role)
        body = json.dumps(rest).encode()[:-1] + b', "messages": [' + b", ".join(messages) + b"]}"
        built_at = time.perf_counter()
        answer = endpoint.post("/chat/completions", body)
        reply = read_reply(answer, endpoint, self._options.max_new_tokens)
        ended = time.perf_counter()
        if conversation.origin is None:
            self._warn_of_dropped_views(conversation, reply, endpoint)
        return replace(reply, seconds=ended - started, preprocess_seconds=built_at - started, dropped=dialect.dropped)

    def _warn_of_dropped_views(self, conversation: Conversation, reply: Reply, endpoint: Endpoint) -> None:
        """Warn once of a server that reads no more tokens of a conversation although a view has come in. Ollama and
        llama.cpp drop the beginning of a conversation that is longer than their context, with status 200."""
        views = len(conversation.images)
        tokens = reply.prompt_tokens
        views_before, tokens_before = self._read.get(conversation.key, (views, 0))
        self._read[conversation.key] = views, tokens
        if views > views_before and 0 < tokens <= tokens_before and not self._warned_of_dropped_views:
            self._warned_of_dropped_views = True
            log.warning(
                "%s read %d tokens of a conversation of %d views, and %d of one of %d: it seems to drop the beginning "
                "of conversations that are longer than its context; give it a longer one (Ollama: "
                "OLLAMA_CONTEXT_LENGTH), or use smaller views, fewer steps or fewer kept views",
                endpoint.url, tokens_before, views_before, tokens, views,
            )  # fmt: skip
