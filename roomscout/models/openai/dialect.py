"""What a server takes, found with a short request before the first question, and how chats are sent and read."""

import base64
import json
import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from roomscout.base.text import counted
from roomscout.models import ModelOptions, Reply
from roomscout.models.conversation import Message, folded
from roomscout.models.openai.endpoint import Answer, Endpoint, ServerError
from roomscout.models.openai.responses import finish_of, first_choice, parsed, said_in
from roomscout.models.openai.routes import Routes

log = logging.getLogger(__name__)

CHECK_TEXT = "Say hello."  # what the request that checks a server asks for
CHECK_TOKENS = 16  # reply limit of that request; some models refuse lower ones
CHECK_SIDE = 64  # side of the images in that request, pixels; some models refuse smaller ones
EMPTY_REPLY = "(empty reply)"  # what stands for a reply without text in the requests after it
CHECK_RETRIES = 2  # retries of that request: a server that is not there is named soon
CONSEQUENCES = {  # what a server does without what it refuses
    "temperature": "refuses temperature 0: it samples replies at its default, so answers differ from run to run",
    "system_role": "takes no system message: it is the beginning of the first user message",
    "seed": "refuses seeds: replies differ from run to run",
}
REFUSED = (400, 404, 405, 415, 422, 500, 501)  # for what a request asks; llama.cpp and some routers say 500
TEXT_PARTS = ("text", "output_text")  # types of parts of a message that are text
MOST_TOKENS = 10**9  # higher token counts are errors of the server
REASONING_FIELDS = ("reasoning_content", "reasoning")  # hold the thoughts of models that reason, never a reply


@dataclass(frozen=True)
class Dialect:
    """What a server takes."""

    limit: str = "max_tokens"  # the name of the reply limit
    dropped: tuple[str, ...] = ()  # what it refuses: "seed", "temperature", and "system_role" for system messages

    @property
    def system_role(self) -> bool:
        """Whether the server takes a system message."""
        return "system_role" not in self.dropped

    def settings(self, options: ModelOptions, seed: int) -> dict[str, Any]:
        """The parameters of a request."""
        settings = {"temperature": options.temperature, "seed": seed, self.limit: options.max_new_tokens}
        settings |= options.generation
        taken = {name: value for name, value in settings.items() if name not in self.dropped}
        return {"stream": False, **taken}  # some proxies stream unless they are told not to

    def without(self, *names: str) -> "Dialect":
        """This dialect of a server that also refuses these."""
        return replace(self, dropped=(*self.dropped, *names))

    def adapted(self, refusal: ServerError, options: ModelOptions) -> "Dialect | None":
        """The dialect to try after a refusal, None if it has another reason; never drops a temperature other than 0."""
        if refusal.status not in (400, 422):
            return None
        if self.limit == "max_tokens" and "max_completion_tokens" in refusal.text:
            return replace(self, limit="max_completion_tokens")
        # The seed first: some servers repeat the whole request, and without a seed fewer answers change.
        for name in ("seed",) if options.temperature else ("seed", "temperature"):
            if name not in self.dropped and re.search(rf"\b{name}\b", refusal.text, re.IGNORECASE):
                return self.without(name)
        return None


def agreed_dialect(endpoint: Endpoint, options: ModelOptions) -> Dialect:
    """The parameters that an endpoint takes, found with a short conversation that has as many images as the longest;
    raises ServerError if it refuses all, lacks the model, or replies without text."""
    dialect = Dialect()
    short = replace(options, max_new_tokens=min(CHECK_TOKENS, options.max_new_tokens))
    while True:
        try:
            answer = _checked(endpoint, _check(endpoint, dialect, short))
            break
        except ServerError as error:
            if adapted := dialect.adapted(error, options):
                dialect = adapted
            elif error.status in (400, 422) and short != options:
                short = options  # models that reason refuse a limit that leaves no room for a reply
            elif error.status not in REFUSED:
                raise
            elif dialect.system_role:
                dialect = dialect.without("system_role")
            elif error.status == 404:  # the URL or the name of the model, as the error says
                raise
            else:
                images = counted(endpoint.options.images, "image")
                said = endpoint.quoted(said_in(error.text))
                why = f"refuses a conversation with {images}, as many as a question may have ({error.status}: {said})"
                raise endpoint.error(why, error.status, text=error.text) from None
    choice = choice_of(answer, endpoint)
    if finish_of(choice) != "length":  # the short limit may end within the thought of a model that reasons
        require_reply(object_at(choice, "message"), endpoint)
    served = answer.body.get("model")
    served = served if isinstance(served, str) and served else endpoint.model
    name = endpoint.quoted(served)
    log.debug("%s answers as %s, with %s", endpoint.url, name, dialect)
    if served not in endpoint.model and endpoint.model not in served:
        log.warning("%s was asked for %s and answers as %s", endpoint.url, endpoint.model, name)
    for refused in dialect.dropped:
        if refused != "seed" or options.temperature:
            log.warning("%s %s", endpoint.url, CONSEQUENCES[refused])
    return dialect


def _checked(endpoint: Endpoint, body: dict[str, Any]) -> Answer:
    """What a server sends for the request that checks it, also if it first limits requests. Raises ServerError soon for
    one that does not answer, and EngineLost for one whose limit lasts too long."""
    post = partial(Endpoint.post, path="/chat/completions", body=body)
    try:
        return post(endpoint)
    except ServerError as error:
        if error.rest_s is None or math.isinf(error.rest_s):
            raise
        is_limit = error.status == 429 and error.rest_s > 0
    if is_limit:
        return Routes([endpoint], endpoint.options.timeout_s).ask(0, post)[0]
    return post(endpoint, retries=CHECK_RETRIES)


PROBE_SCHEMA = {
    "type": "object", "properties": {"ready": {"type": "boolean"}}, "required": ["ready"],
    "additionalProperties": False,
}  # fmt: skip


def require_schema(endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> None:
    """Raise ServerError unless a reply follows a JSON schema that no model would follow unasked."""
    body = _check(endpoint, dialect, options) | {"response_format": response_format(PROBE_SCHEMA)}
    try:
        message = object_at(choice_of(_checked(endpoint, body), endpoint), "message")
        said = text_of(message.get("content")) or ""
    except ServerError as error:
        if error.status not in (400, 422):
            raise
        said = error.text
    if set(parsed(said) or ()) != {"ready"}:
        why = f"does not keep replies to a JSON schema ({endpoint.quoted(said)}): leave it out"
        raise endpoint.error(why, setting="constrained")


def _check(endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> dict[str, Any]:
    """A short request in the form of a last turn's, with as many images as the longest conversation."""
    grey = np.full((CHECK_SIDE, CHECK_SIDE, 3), 128, dtype=np.uint8)
    turn = [Message.of_views(CHECK_TEXT, grey), Message("assistant", "Hello.")]
    messages = [Message("system", "Reply in one word."), *(turn * endpoint.options.images)[:-1]]
    taken = messages if dialect.system_role else folded(messages)
    return {
        "model": endpoint.model,
        "messages": [json.loads(encoded_message(message)) for message in taken],
        **dialect.settings(options, options.seed),
        **endpoint.options.extra_body,
    }


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The parameter of a request that asks for a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}}


def encoded_message(message: Message) -> bytes:
    """A message of a conversation as JSON. Images come before the text."""
    said = message.text
    if message.role == "assistant" and not said.strip():  # servers refuse empty messages of the assistant
        said = EMPTY_REPLY
    text = json.dumps(said).encode()
    if not message.shots:
        return b'{"role": "%b", "content": %b}' % (message.role.encode(), text)
    images = b", ".join(
        b'{"type": "image_url", "image_url": {"url": "data:image/png;base64,%b"}}' % base64.b64encode(shot.png)
        for shot in message.shots
    )
    return b'{"role": "%b", "content": [%b, {"type": "text", "text": %b}]}' % (message.role.encode(), images, text)


def read_reply(answer: Answer, endpoint: Endpoint, max_new_tokens: int) -> Reply:
    """The reply in a chat completion, without the API key; raises ServerError if it has no text."""
    choice = choice_of(answer, endpoint)
    message = object_at(choice, "message")
    reason = finish_of(choice)
    content = text_of(message.get("content"))
    if reason not in ("stop", "length"):
        raise endpoint.error(f"ended a reply with finish_reason {reason!r} ({endpoint.quoted(answer.text)})", 200)
    if reason == "length" and not (content and content.strip()):
        raise endpoint.error(
            f"spent all {max_new_tokens} tokens without a word of reply (finish_reason 'length'): models that reason "
            "before they reply need a higher limit, in a new run",
            200,
            setting="max_new_tokens",
        )
    require_reply(message, endpoint)
    if content is None:
        raise endpoint.error(f"sent a reply without text ({endpoint.quoted(answer.text)})", 200)
    read, cached, written = tokens_in(answer)
    return Reply(
        text=endpoint.redacted(content),
        prompt_tokens=read,
        reused_tokens=cached,
        generated_tokens=written or (max_new_tokens if reason == "length" else 0),
        finish_reason="length" if reason == "length" else "stop",
    )


def tokens_in(answer: Answer) -> tuple[int, int, int]:
    """The tokens that a chat completion read, how many of them were cached, and those that it wrote."""
    usage = object_at(answer.body, "usage")
    read = _count(usage, "prompt_tokens")
    cached = _count(object_at(usage, "prompt_tokens_details"), "cached_tokens")
    return read, min(read, cached), _count(usage, "completion_tokens")


def require_reply(message: Mapping[str, Any], endpoint: Endpoint) -> None:
    """Raise ServerError if all text is in a field of thoughts, as when the server's parser does not suit the model."""
    content = text_of(message.get("content"))
    field = next((name for name in REASONING_FIELDS if message.get(name)), None)
    if field is not None and not message.get("refusal") and not (content and content.strip()):
        raise endpoint.error(
            f"sent all of a reply as {field}, which is the model's thought, and none as content: start the server with "
            "the --reasoning-parser of this model or without one, or let the model reply without a thought",
            200,
        )


def choice_of(answer: Answer, endpoint: Endpoint) -> dict[str, Any]:
    """The first choice of a chat completion; raises ServerError if there is none."""
    if (choice := first_choice(answer.body)) is None:
        raise endpoint.error(f"sent no choices ({endpoint.quoted(answer.text)}): it must serve chat completions", 200)
    return choice


def text_of(content: object) -> str | None:
    """The text of a message's content, a string, a part or a list of parts; None if there is no text."""
    if isinstance(content, list | dict):
        parts = content if isinstance(content, list) else [content]
        texts = [part.get("text") for part in parts if isinstance(part, dict) and part.get("type") in TEXT_PARTS]
        return "".join(text for text in texts if isinstance(text, str)) if texts else None
    return content if isinstance(content, str) else None


def object_at(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The object at a key; empty if there is none."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], key: str) -> int:
    """A number of tokens, perhaps as a whole float; 0 for anything that is not a plausible one."""
    value = usage.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= MOST_TOKENS:
        return 0
    return int(value) if value == int(value) else 0
