"""The parameters that a server takes, found with a short request before the first question."""

import base64
import json
import logging
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roomscout.models import ModelOptions
from roomscout.models.conversation import Message, View
from roomscout.models.openai.bodies import object_at, parsed
from roomscout.models.openai.endpoint import Endpoint, ServerError
from roomscout.models.openai.failures import mentions
from roomscout.models.openai.replies import choice_of, text_of

log = logging.getLogger(__name__)

CHECK_TOKENS = 16
"""Reply limit of the request that checks a server; some models refuse lower ones."""
CHECK_SIDE = 64
"""Side of the image in that request, pixels; some models refuse smaller ones."""


@dataclass(frozen=True)
class Dialect:
    """The parameters that a server takes: the name of the reply limit, and the settings it refuses."""

    limit: str = "max_tokens"
    dropped: tuple[str, ...] = ()

    def settings(self, options: ModelOptions, seed: int) -> dict[str, Any]:
        """The parameters of a request."""
        settings = {"temperature": options.temperature, "seed": seed, self.limit: options.max_new_tokens}
        return {name: value for name, value in settings.items() if name not in self.dropped}

    def adapted(self, refusal: ServerError, options: ModelOptions) -> "Dialect | None":
        """The dialect to try after a refusal; None if the refusal has another reason.

        A temperature other than 0 is the user's choice and is never dropped.
        """
        if refusal.status not in (400, 422):
            return None
        if self.limit == "max_tokens" and mentions("max_completion_tokens", refusal.text):
            return replace(self, limit="max_completion_tokens")
        # The seed first: some servers repeat the whole request, and without a seed fewer answers change.
        for name in ("seed",) if options.temperature else ("seed", "temperature"):
            if name not in self.dropped and mentions(name, refusal.text):
                return replace(self, dropped=(*self.dropped, name))
        return None


def agreed_dialect(endpoint: Endpoint, options: ModelOptions) -> Dialect:
    """The parameters that an endpoint takes, found with a short request that has an image.

    Raises ServerError if it refuses all, or if the model takes no images.
    """
    dialect = Dialect()
    short = replace(options, max_new_tokens=min(CHECK_TOKENS, options.max_new_tokens))
    while True:
        try:
            answer = endpoint.post("/chat/completions", _check(endpoint, dialect, short), reconnect=False)
            break
        except ServerError as error:
            if adapted := dialect.adapted(error, options):
                dialect = adapted
            elif error.status in (400, 422) and short != options:
                short = options  # models that reason refuse a limit that leaves no room for a reply
            elif error.status in (400, 404, 415, 422, 500) and _replies_without_image(endpoint, dialect, options):
                raise endpoint.error(
                    f"does not take images for {endpoint.model} ({error.status}: {endpoint.quoted(error.text)}): name "
                    "a vision-language model with --model"
                ) from None
            else:
                raise
    choice_of(answer, endpoint)
    served = answer.body.get("model")
    served = served if isinstance(served, str) and served else endpoint.model
    name = endpoint.quoted(served)
    without = f", without {' and '.join(dialect.dropped)}" if dialect.dropped else ""
    log.debug("%s answers as %s, with %s%s", endpoint.url, name, dialect.limit, without)
    if served not in endpoint.model and endpoint.model not in served:
        log.warning("%s was asked for %s and answers as %s", endpoint.url, endpoint.model, name)
    if "temperature" in dialect.dropped:
        log.warning(
            "%s refuses temperature 0: it samples replies at its default, so answers differ from run to run",
            endpoint.url,
        )
    if "seed" in dialect.dropped and options.temperature:
        log.warning("%s refuses seeds: replies differ from run to run", endpoint.url)
    return dialect


def _replies_without_image(endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> bool:
    try:
        endpoint.post("/chat/completions", _check(endpoint, dialect, options, image=False), 0)
    except ServerError:
        return False
    return True


PROBE_SCHEMA = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}


def require_schemas(endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> None:
    """Raise ServerError unless a reply follows a JSON schema that no model would follow unasked."""
    body = {**_check(endpoint, dialect, options), "response_format": response_format(PROBE_SCHEMA)}
    try:
        message = object_at(choice_of(endpoint.post("/chat/completions", body), endpoint), "message")
        said = text_of(message.get("content")) or ""
    except ServerError as error:
        if error.status not in (400, 422):
            raise
        said = error.text
    if set(parsed(said) or ()) != {"ready"}:
        raise endpoint.error(
            f"does not keep replies to a JSON schema ({endpoint.quoted(said)}): leave out --constrained"
        )
    log.debug("%s keeps replies to a JSON schema", endpoint.url)


def _check(endpoint: Endpoint, dialect: Dialect, options: ModelOptions, image: bool = True) -> dict[str, Any]:
    """A short request in the form of a turn's."""
    grey = np.full((CHECK_SIDE, CHECK_SIDE, 3), 128, dtype=np.uint8) if image else None
    messages = [json.loads(chat_message(Message("user", "Say hello.", grey)))]
    return {"model": endpoint.model, "messages": messages, **dialect.settings(options, options.seed)}


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The parameter of a request that asks for a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}}


def chat_message(message: Message) -> bytes:
    """A message of a chat as JSON, the images before its text."""
    text = json.dumps(message.text).encode()
    if not message.views:
        return b'{"role": "%b", "content": %b}' % (message.role.encode(), text)
    images = b", ".join(b'{"type": "image_url", "image_url": {"url": "%b"}}' % data_url(view) for view in message.views)
    return b'{"role": "%b", "content": [%b, {"type": "text", "text": %b}]}' % (message.role.encode(), images, text)


def data_url(view: View) -> bytes:
    """A view as a data URL."""
    return b"data:image/png;base64," + base64.b64encode(view.png)
