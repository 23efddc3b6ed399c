"""OpenAI-compatible servers: each conversation is a chat at one of several URLs, and many run at once."""

import base64
import hashlib
import ipaddress
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import numpy as np
import openai

from models import ModelError, ModelOptions, Reply, ReplyFormat, ServerOptions
from models.conversation import Conversation, Message

log = logging.getLogger(__name__)

CONNECT_S = 5.0
REST_S = 300.0
"""How long a URL that has stopped answering gets no conversations, if another URL answers."""
QUOTED = 300
"""Characters of a server's text that an error message quotes."""
CHECK_TOKENS = 16
"""Reply limit of the request that checks a server; some models refuse lower ones."""
CHECK_SIDE = 64
"""Side of the image in that request, pixels; some models refuse smaller ones."""
ABSENT = (502, 503, 504)
"""Statuses with which a gateway says that there is no server behind it."""

Result = TypeVar("Result")


class ServerError(ModelError):
    """A server could not be reached, refused a request or did not send a reply; the message says what to do.

    `status` is the HTTP status, None without a response; `text` is what the server said; `attempts` counts the
    requests.
    """

    def __init__(self, message: str, status: int | None = None, text: str = "", attempts: int = 1) -> None:
        super().__init__(message)
        self.status = status
        self.text = text
        self.attempts = attempts

    @property
    def server_absent(self) -> bool:
        """Whether another server may reply to the same request."""
        return self.status is None or self.status in ABSENT


class Unreachable(ServerError):
    """Nothing listens at a URL."""


@dataclass(frozen=True)
class Answer:
    """The JSON object that a server sent, and the number of requests that failed before."""

    body: dict[str, Any]
    retries: int


class Endpoint:
    """One URL of a server for `model`, behind the official client. Thread-safe.

    Raises ModelError for a key that no HTTP header can hold.
    """

    def __init__(self, url: str, model: str, options: ServerOptions) -> None:
        if options.key and not re.fullmatch(r"[!-~]+", options.key):
            raise ModelError(
                f"the environment variable {options.key_env} does not hold an API key: it contains spaces, line breaks "
                "or characters outside ASCII"
            )
        self.url = url
        self.model = model
        self.options = options
        self._client = openai.OpenAI(
            base_url=url,
            api_key=options.key or "none",  # the client wants one, and "none" is not sent: see post()
            http_client=openai.DefaultHttpxClient(
                timeout=httpx2.Timeout(options.timeout_s, connect=CONNECT_S),
                limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
                event_hooks={"response": [self._limit_body]},
                trust_env=not _is_loopback(url),  # a proxy cannot reach this machine's loopback
            ),
        )

    def post(self, path: str, body: dict[str, Any] | bytes, retries: int | None = None) -> Answer:
        """Send a request and parse the JSON object in the response. Retries where that may help, up to `retries` times
        (None: `options.retries`). The body is bytes if it is JSON already.

        `path` continues the URL unless it is a URL itself. Raises ServerError; neither its text nor its causes hold the
        API key.
        """
        retries = self.options.retries if retries is None else retries
        try:
            response = self._client.post(
                path,
                content=body if isinstance(body, bytes) else json.dumps(body).encode(),
                cast_to=httpx2.Response,
                options={
                    "max_retries": retries,
                    "headers": {} if self.options.key else {"Authorization": openai.Omit()},
                    "follow_redirects": False,  # most redirects turn a POST into a GET
                },
            )
        except openai.OpenAIError as error:
            failure = self._explained(error, retries + 1)
        else:
            return Answer(self._parsed(response), _retries_of(response))
        raise failure  # not in the handler: the original error holds its request, whose headers hold the key

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def error(self, message: str, status: int | None = None, text: str = "", attempts: int = 1) -> ServerError:
        """An error about this URL, without the API key, which some servers echo."""
        return ServerError(f"{self.url} {self._redacted(message)}", status, self._redacted(text), attempts)

    def quoted(self, text: str) -> str:
        """A server's text for an error message: one line, shortened, without the API key."""
        return _clipped(self._redacted(text))  # in this order: half a key would not be recognized

    def _redacted(self, text: str) -> str:
        if not self.options.key:
            return text
        in_json = json.dumps(self.options.key)[1:-1]
        return text.replace(in_json, "<API key>").replace(self.options.key, "<API key>")

    def _limit_body(self, response: httpx2.Response) -> None:
        """A hook of the HTTP client, whose own timeout starts again with every byte."""
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _LimitedStream(response.stream, self.options.timeout_s)

    def _parsed(self, response: httpx2.Response) -> dict[str, Any]:
        try:
            body = response.json()
        except ValueError:  # not JSON, or not UTF-8
            body = None
        if not isinstance(body, dict):
            kind = response.headers.get("content-type", "no content type")
            raise self.error(
                f"answered with {kind} that is not a JSON object ({self.quoted(response.text)!r}): --base-url takes "
                "the root of an OpenAI-compatible API, which usually ends in /v1",
                response.status_code,
                response.text,
            )
        return body

    def _explained(self, error: openai.OpenAIError, attempts: int) -> ServerError:
        match error:
            case openai.APIStatusError():
                return self._refused(error.response, _said(error))
            case openai.APIConnectionError() if isinstance(
                error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout
            ):
                why = f"({_root(error)}): start the server, or correct --base-url"
                return Unreachable(self.error(f"cannot be reached {why}").args[0], attempts=attempts)
            case openai.APITimeoutError():
                what = (
                    f"did not answer within {self.options.timeout_s:g} s{_times(attempts)}: ask fewer questions at a "
                    "time with --concurrency, or wait longer with --request-timeout"
                )
            case openai.APIConnectionError():
                what = (
                    f"broke the connection{_times(attempts)} ({_root(error)}): check that the server still runs, then "
                    "resume with --continue and --retry-failed"
                )
            case _:
                what = f"cannot be asked: {error}"
        return self.error(what, attempts=attempts)

    def _refused(self, response: httpx2.Response, said: str) -> ServerError:
        """The error for an HTTP status, with the flag to change."""
        variable, quoted, status = self.options.key_env, self.quoted(said), response.status_code
        attempts = 1 + _retries_of(response)
        match status:
            case 301 | 302 | 303 | 307 | 308:
                where = response.headers.get("location", "").partition("?")[0].removesuffix("/chat/completions")
                what = f"redirects to {self.quoted(where)} ({status}): give the URL of the API itself with --base-url"
            case 401 if self.options.key is None:
                what = f"asks for an API key (401): set the environment variable {variable}, or name another one with "
                what += "--api-key-env"
            case 401:
                what = f"does not accept the API key in {variable} (401: {quoted}): name the variable that holds the "
                what += "right one with --api-key-env"
            case 403:
                what = f"denies access to {self.model} (403: {quoted}): name the variable that holds a key with access "
                what += "with --api-key-env, or another model with --model"
            case 404:
                what = f"does not have {self.model} (404: {quoted}): give the name under which the server has it with "
                what += "--model, or correct --base-url, which usually ends in /v1"
            case 413:
                what = f"takes no request as large as this conversation (413: {quoted}): run with a smaller "
                what += "--image-size or fewer --steps"
            case 400 | 422 if _mentions("temperature", said):
                what = f"refuses the temperature ({status}: {quoted}): choose another --temperature, or leave it out"
            case 400 | 422:
                what = f"refuses this request ({status}: {quoted}): if it is too long or has too many images, run with "
                what += "a smaller --image-size, fewer --steps or a lower --max-new-tokens"
            case 429:
                what = f"takes no more requests for now (429{_times(attempts)}: {quoted}): ask fewer questions at a "
                what += "time with --concurrency, and resume with --continue and --retry-failed"
            case _ if status < 500:
                what = f"refuses requests ({status}{_times(attempts)}: {quoted}): fix what it names, or correct "
                what += "--base-url or --model"
            case _:
                what = f"failed ({status}{_times(attempts)}: {quoted}): once it works again, resume with --continue "
                what += "and --retry-failed"
        return self.error(what, status, said, attempts)


class _LimitedStream(httpx2.SyncByteStream):
    """A response's body that must arrive within `seconds`."""

    def __init__(self, stream: httpx2.SyncByteStream, seconds: float) -> None:
        self._stream = stream
        self._deadline = time.monotonic() + seconds

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._stream:
            if time.monotonic() > self._deadline:
                raise httpx2.ReadTimeout("the body took too long")
            yield chunk

    def close(self) -> None:
        self._stream.close()


def _said(error: openai.APIStatusError) -> str:
    """The server's explanation of a refusal, wherever it is in the body; routers quote the server behind them."""
    body = error.body
    if isinstance(body, dict):
        behind = _object(body, "metadata").get("raw")
        for key in ("message", "detail", "error"):
            if isinstance(body.get(key), str):
                return f"{body[key]}: {behind}" if isinstance(behind, str) else body[key]
    return error.response.text


def _is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name
        return host == "localhost"


def _retries_of(response: httpx2.Response) -> int:
    return int(response.request.headers.get("x-stainless-retry-count", 0))


def _times(attempts: int) -> str:
    return f", {attempts} times in a row" if attempts > 1 else ""


def _mentions(name: str, text: str) -> bool:
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else line[: QUOTED - 3] + "..."


def _root(error: BaseException) -> str:
    """The message of an error's root cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _clipped(str(error)) or type(error).__name__


class Pins:
    """The endpoint of each conversation from its first turn until it is released, chosen as the one with the fewest.

    A conversation moves only if its endpoint has stopped answering. If all have, the one that stopped first is next.
    """

    def __init__(self, endpoints: Sequence[Endpoint], rest_s: float = REST_S) -> None:
        self._endpoints = endpoints
        self._rest_s = rest_s
        self._rests_until: dict[str, float] = {}
        self._pinned: dict[str, Endpoint] = {}
        self._lock = threading.Lock()

    def endpoint_of(self, conversation_id: str) -> Endpoint:
        """The endpoint of a conversation."""
        with self._lock:
            awake = self._awake() or [min(self._endpoints, key=lambda each: self._rests_until[each.url])]
            if self._pinned.get(conversation_id) not in awake:
                taken = list(self._pinned.values())
                self._pinned[conversation_id] = min(awake, key=taken.count)
            return self._pinned[conversation_id]

    def rest(self, endpoint: Endpoint) -> None:
        """Move the conversations of an endpoint that has stopped answering, and pin none to it for `rest_s` seconds."""
        with self._lock:
            if endpoint in self._awake() and len(self._endpoints) > 1:
                log.warning(
                    "%s does not answer any more: its questions move to the other URLs, and it is tried again after "
                    "%g s", endpoint.url, self._rest_s,
                )  # fmt: skip
            self._rests_until[endpoint.url] = time.monotonic() + self._rest_s

    def release(self, conversation_id: str) -> None:
        """Forget a conversation; unknown ones are ignored."""
        with self._lock:
            self._pinned.pop(conversation_id, None)

    def _awake(self) -> list[Endpoint]:
        now = time.monotonic()
        return [each for each in self._endpoints if self._rests_until.get(each.url, now) <= now]


class Calls:
    """Runs blocking calls so that `close` ends the wait for them immediately, whatever the server does."""

    def __init__(self) -> None:
        self._closed: Future[None] = Future()
        self._lock = threading.Lock()

    def start(self, call: Callable[[], Result]) -> Future[Result]:
        """Run `call` on a thread that does not keep the process alive."""
        outcome: Future[Result] = Future()

        def run() -> None:
            try:
                outcome.set_result(call())
            except Exception as error:  # noqa: BLE001 (raised again where the result is taken)
                outcome.set_exception(error)

        threading.Thread(target=run, name="request", daemon=True).start()
        return outcome

    def result(self, outcome: Future[Result]) -> Result:
        """The result of a call; raises what the call raises, and ModelError once closed."""
        either: list[Future[Any]] = [outcome, self._closed]
        wait(either, return_when=FIRST_COMPLETED)
        if not outcome.done():
            raise ModelError("the run ended before the server replied")
        return outcome.result()

    def close(self) -> None:
        """Make all waiting calls, and later ones, raise ModelError."""
        with self._lock:
            if not self._closed.done():
                self._closed.set_result(None)


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
        if self.limit == "max_tokens" and _mentions("max_completion_tokens", refusal.text):
            return replace(self, limit="max_completion_tokens")
        # The seed first: some servers repeat the whole request, and without a seed fewer answers change.
        for name in ("seed",) if options.temperature else ("seed", "temperature"):
            if name not in self.dropped and _mentions(name, refusal.text):
                return replace(self, dropped=(*self.dropped, name))
        return None


def agreed_dialect(endpoint: Endpoint, options: ModelOptions) -> Dialect:
    """The parameters that an endpoint takes, found with a short request that has an image.

    Raises ServerError if it refuses all, or if the model takes no images.
    """
    dialect = Dialect()
    retries: int | None = 0  # fail at once if no server listens
    short = replace(options, max_new_tokens=min(CHECK_TOKENS, options.max_new_tokens))
    while True:
        try:
            answer = endpoint.post("/chat/completions", _check(endpoint, dialect, short), retries)
            break
        except Unreachable:
            raise
        except ServerError as error:
            if adapted := dialect.adapted(error, options):
                dialect = adapted
            elif error.status in (400, 422) and short != options:
                short = options  # models that reason refuse a limit that leaves no room for a reply
            elif retries == 0 and (error.status in (None, 408, 409, 429) or error.status >= 500):
                retries = None  # as many as the options allow
            elif error.status in (400, 404, 415, 422, 500) and _replies_without_image(endpoint, dialect, options):
                raise endpoint.error(
                    f"does not take images for {endpoint.model} ({error.status}: {endpoint.quoted(error.text)}): name "
                    "a vision-language model with --model"
                ) from None
            else:
                raise
    _choice_of(answer.body, endpoint)
    served = str(answer.body.get("model") or endpoint.model)
    without = f", without {' and '.join(dialect.dropped)}" if dialect.dropped else ""
    log.info("%s answers as %s, with %s%s", endpoint.url, served, dialect.limit, without)
    if served not in endpoint.model and endpoint.model not in served:
        log.warning("%s was asked for %s and answers as %s", endpoint.url, endpoint.model, served)
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
        message = _object(_choice_of(endpoint.post("/chat/completions", body).body, endpoint), "message")
        said = _text_of(message.get("content")) or ""
    except ServerError as error:
        if error.status not in (400, 422):
            raise
        said = error.text
    try:
        followed = set(json.loads(said)) == {"ready"}
    except (ValueError, TypeError):  # not JSON, or not an object
        followed = False
    if not followed:
        raise endpoint.error(
            f"does not keep replies to a JSON schema ({endpoint.quoted(said)}): leave out --constrained"
        )
    log.info("%s keeps replies to a JSON schema", endpoint.url)


def _check(endpoint: Endpoint, dialect: Dialect, options: ModelOptions, image: bool = True) -> dict[str, Any]:
    """A short request in the form of a turn's."""
    grey = np.full((CHECK_SIDE, CHECK_SIDE, 3), 128, dtype=np.uint8) if image else None
    messages = [json.loads(chat_message(Message("user", "Say hello.", grey)))]
    return {"model": endpoint.model, "messages": messages, **dialect.settings(options, options.seed)}


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """The parameter of a request that asks for a JSON schema."""
    return {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}}


def chat_message(message: Message) -> bytes:
    """A message of a chat as JSON, the image before its text."""
    text = json.dumps(message.text).encode()
    if message.image is None:
        return b'{"role": "%b", "content": %b}' % (message.role.encode(), text)
    image = b'{"type": "image_url", "image_url": {"url": "%b"}}' % data_url(message)
    return b'{"role": "%b", "content": [%b, {"type": "text", "text": %b}]}' % (message.role.encode(), image, text)


def data_url(message: Message) -> bytes:
    """The image of a user message as a data URL."""
    return b"data:image/png;base64," + base64.b64encode(message.png)


def turn_seed(seed: int, conversation: Conversation) -> int:
    """A 31-bit seed for the next turn, which depends only on `seed`, the conversation's id and the turn."""
    stream = f"{seed} {conversation.id} {len(conversation.images)}"
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4]) >> 1


def read_reply(answer: Answer, endpoint: Endpoint, reply_format: ReplyFormat, max_new_tokens: int) -> Reply:
    """The reply in a chat completion, cut where it is complete; raises ServerError if it has no text."""
    choice = _choice_of(answer.body, endpoint)
    message, reason = _object(choice, "message"), choice.get("finish_reason")
    content = _text_of(message.get("content"))
    if reason == "error":  # a router's report that the server behind it failed
        raise endpoint.error(f"aborted its reply ({endpoint.quoted(json.dumps(choice))})", 200)
    if reason == "length" and not (content and content.strip()):
        raise endpoint.error(
            f"spent all {max_new_tokens} tokens without a word of reply (finish_reason 'length'): models that reason "
            "before they reply need a higher --max-new-tokens, in a new run",
            200,
        )
    if content is None:
        refusal = message.get("refusal")
        why = endpoint.quoted(refusal) if isinstance(refusal, str) else f"finish_reason {reason!r}"
        raise endpoint.error(f"sent a reply without text ({why})", 200)
    end = reply_format.end_of(content)
    text, truncated = content[:end], reason == "length" and end is None
    usage = _object(answer.body, "usage")
    return Reply(
        text=text,
        prompt_tokens=_count(usage, "prompt_tokens"),
        reused_tokens=_count(_object(usage, "prompt_tokens_details"), "cached_tokens"),
        generated_tokens=_count(usage, "completion_tokens") or (max_new_tokens if truncated else 0),
        finish_reason="length" if truncated else "stop",
        retries=answer.retries,
    )


def _text_of(content: object) -> str | None:
    """The text of a message's content, a string or a list of parts; None if there is no text."""
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"]
        return "".join(text for text in texts if isinstance(text, str)) if texts else None
    return content if isinstance(content, str) else None


def _object(body: dict[str, Any], key: str) -> dict[str, Any]:
    """The object at a key; empty if the server sent none."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _count(body: dict[str, Any], key: str) -> int:
    value = body.get(key)
    return value if isinstance(value, int) else 0


def _choice_of(body: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """The first choice of a chat completion; raises ServerError if there is none."""
    choices = body.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        said = endpoint.quoted(json.dumps(body))
        raise endpoint.error(f"sent no choices ({said}): --base-url takes a server of chat completions", 200)
    return choices[0]


class OpenAIBackend:
    """Replies of a model behind one or more OpenAI-compatible URLs.

    Constructing a backend sends each URL a short request, so that a wrong key, model or URL ends the command at once;
    raises ModelError. With `server.constrained`, a second request checks that replies keep to a JSON schema.
    """

    concurrent = True

    def __init__(self, model: str, options: ModelOptions, server: ServerOptions) -> None:
        self.name = model
        self._options = options
        self._calls = Calls()
        self._encoded: dict[str, list[tuple[Message, bytes]]] = {}
        self._endpoints = [Endpoint(url, model, server) for url in server.urls]
        self._pins = Pins(self._endpoints)
        self._dialects = {endpoint.url: agreed_dialect(endpoint, options) for endpoint in self._endpoints}
        if server.constrained:
            for endpoint in self._endpoints:
                require_schemas(endpoint, self._dialects[endpoint.url], options)

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order, all requested at once. Replies have no token ids.

        Raises ModelError for a conversation that cannot be replied to.
        """
        calls = [self._calls.start(partial(self._reply, each, reply_format)) for each in conversations]
        return [self._calls.result(call) for call in calls]

    def release(self, conversation: Conversation) -> None:
        """Forget the conversation's URL and its encoded messages; unknown ones are ignored."""
        self._pins.release(conversation.id)
        self._encoded.pop(conversation.id, None)

    def peak_memory_bytes(self) -> int:
        """Always 0: the server's memory is not known here."""
        return 0

    def close(self) -> None:
        """Abandon all requests in flight."""
        self._calls.close()
        for endpoint in self._endpoints:
            endpoint.close()

    def _messages(self, conversation: Conversation) -> bytes:
        """The messages as JSON. Encodes each only once: encoding nine views of 640x480 takes 20 ms."""
        known = self._encoded.setdefault(conversation.id, [])
        for index, message in enumerate(conversation.messages):
            if index == len(known) or known[index][0] is not message:
                known[index:] = [(message, chat_message(message))]
        return b", ".join(encoded for _, encoded in known)

    def _reply(self, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        attempts = 0
        while True:
            endpoint = self._pins.endpoint_of(conversation.id)
            try:
                reply = self._ask(endpoint, conversation, reply_format)
                return replace(reply, retries=attempts + reply.retries)
            except ServerError as error:
                if not error.server_absent:
                    raise
                self._pins.rest(endpoint)
                # Only one other URL is tried: the request itself may crash servers.
                if attempts or self._pins.endpoint_of(conversation.id) is endpoint:
                    raise
                attempts = error.attempts

    def _ask(self, endpoint: Endpoint, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        started = time.perf_counter()
        dialect = self._dialects[endpoint.url]
        settings = dialect.settings(self._options, turn_seed(self._options.seed, conversation))
        rest: dict[str, Any] = {"model": self.name, **settings}
        if reply_format.schema is not None:
            rest["response_format"] = response_format(reply_format.schema)
        body = json.dumps(rest).encode()[:-1] + b', "messages": [' + self._messages(conversation) + b"]}"
        built_at = time.perf_counter()
        answer = endpoint.post("/chat/completions", body)
        reply = read_reply(answer, endpoint, reply_format, self._options.max_new_tokens)
        ended = time.perf_counter()
        return replace(reply, seconds=ended - started, preprocess_seconds=built_at - started, dropped=dialect.dropped)
