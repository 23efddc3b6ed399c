"""OpenAI-compatible servers: each conversation is a chat at one of several URLs, many of them at once."""

import base64
import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

import httpx2
import openai

from models import ModelError, ModelOptions, Reply, ReplyFormat, ServerOptions
from models.conversation import Conversation, Message

log = logging.getLogger(__name__)

CONNECT_S = 5.0
QUOTED = 300
"""Characters of a server's text that an error message quotes."""
CHECK_TOKENS = 16
"""Longest reply to a request that checks a server; some models refuse a limit of 1."""

Result = TypeVar("Result")


class ServerError(ModelError):
    """A server could not be reached, refused a request or sent something else than a reply; the message says what to
    do.

    `status` is the HTTP status, None without a response; `text` is what the server said.
    """

    def __init__(self, message: str, status: int | None = None, text: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class Unreachable(ServerError):
    """No server listens at a URL."""


@dataclass(frozen=True)
class Answer:
    """The JSON object that a server sent, and how many requests failed before it did."""

    body: dict[str, Any]
    retries: int


class Endpoint:
    """One URL of a server for `model`, behind the official client. May be used from several threads."""

    def __init__(self, url: str, model: str, options: ServerOptions) -> None:
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
            ),
        )

    def post(self, path: str, body: dict[str, Any] | bytes, retries: int | None = None) -> Answer:
        """Send a request, up to `retries` times again where that may help (None: as the options say), and parse the
        JSON object that comes back. The body is bytes where it is JSON already.

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
                },
            )
        except openai.OpenAIError as error:
            failure = self._explained(error, retries)
        else:
            return Answer(self._parsed(response), int(response.request.headers.get("x-stainless-retry-count", 0)))
        raise failure  # not in the handler: the original error holds its request, whose headers hold the key

    def close(self) -> None:
        """Close all connections."""
        self._client.close()

    def error(self, message: str, status: int | None = None, text: str = "") -> ServerError:
        """An error about this URL, without the API key, which some servers echo."""
        return ServerError(f"{self.url} {self._redacted(message)}", status, self._redacted(text))

    def _redacted(self, text: str) -> str:
        return text.replace(self.options.key, "<API key>") if self.options.key else text

    def _limit_body(self, response: httpx2.Response) -> None:
        """A hook of the HTTP client, whose own limit starts again with every byte."""
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
                f"answered with {kind} that is not a JSON object ({_clipped(response.text)!r}): --base-url takes the "
                "root of an OpenAI-compatible API, which usually ends in /v1",
                response.status_code,
                response.text,
            )
        return body

    def _explained(self, error: openai.OpenAIError, retries: int) -> ServerError:
        match error:
            case openai.APIStatusError():
                return self._refused(error.status_code, _said(error), retries)
            case openai.APIConnectionError() if isinstance(
                error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout
            ):
                why = f"({_root(error)}): start the server, or correct --base-url"
                return Unreachable(self.error(f"cannot be reached {why}").args[0])
            case openai.APITimeoutError():
                return self.error(
                    f"did not answer within {self.options.timeout_s:g} s, {retries + 1} times in a row: ask fewer "
                    "questions at a time with --concurrency, or wait longer with --request-timeout"
                )
            case openai.APIConnectionError():
                return self.error(
                    f"broke the connection {retries + 1} times in a row ({_root(error)}): see whether the server still "
                    "runs, then resume with --continue and --retry-failed"
                )
            case _:
                return self.error(f"cannot be asked: {error}")

    def _refused(self, status: int, said: str, retries: int) -> ServerError:
        """The error for an HTTP status, with the flag to change."""
        variable, quoted = self.options.key_env, _clipped(said)
        match status:
            case 401 if self.options.key is None:
                what = f"asks for an API key (401): set the environment variable {variable}, or name another one with "
                what += "--api-key-env"
            case 401:
                what = f"does not accept the API key in {variable} (401: {quoted}): name the variable that holds the "
                what += "right one with --api-key-env"
            case 403:
                what = f"does not let this API key use {self.model} (403: {quoted}): name the variable that holds "
                what += "another key with --api-key-env, or another model with --model"
            case 404:
                what = f"does not have {self.model} (404: {quoted}): give the name under which the server has it with "
                what += "--model, or correct --base-url, which usually ends in /v1"
            case 413:
                what = f"takes no request as large as this conversation (413: {quoted}): run with a smaller "
                what += "--image-size or fewer --steps"
            case 400 | 422:
                what = f"refuses this request ({status}: {quoted}): if it is too long or has too many images, run with "
                what += "a smaller --image-size, fewer --steps or a lower --max-new-tokens"
            case 429:
                what = f"takes no more requests for now (429, {retries + 1} times in a row: {quoted}): ask fewer "
                what += "questions at a time with --concurrency"
            case _:
                what = f"failed ({status}, {retries + 1} times in a row: {quoted})"
        return self.error(what, status, said)


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
    """What a server says about its refusal, wherever in the body it says it."""
    body = error.body
    if isinstance(body, dict):
        for key in ("message", "detail", "error"):
            if isinstance(body.get(key), str):
                return body[key]
    return error.response.text


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else line[: QUOTED - 3] + "..."


def _root(error: BaseException) -> str:
    """The first cause of an error, in words."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _clipped(str(error)) or type(error).__name__


class Pins:
    """Which endpoint each conversation uses, from its first turn until it is released: the one with the fewest."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = list(endpoints)
        self._pinned: dict[str, Endpoint] = {}
        self._lock = threading.Lock()

    def endpoint_of(self, conversation_id: str) -> Endpoint:
        """The endpoint of a conversation."""
        with self._lock:
            if conversation_id not in self._pinned:
                taken = list(self._pinned.values())
                self._pinned[conversation_id] = min(self._endpoints, key=taken.count)
            return self._pinned[conversation_id]

    def avoid(self, endpoint: Endpoint) -> None:
        """Pin no further conversation to an endpoint that has stopped to answer, as long as another is left."""
        with self._lock:
            if endpoint in self._endpoints and len(self._endpoints) > 1:
                self._endpoints.remove(endpoint)
                log.warning("%s is asked no further questions: it does not answer any more", endpoint.url)

    def release(self, conversation_id: str) -> None:
        """Forget a conversation; unknown ones are ignored."""
        with self._lock:
            self._pinned.pop(conversation_id, None)


class Calls:
    """Runs blocking calls so that `close` ends the wait for them at once, whatever the server does."""

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

    def result(self, outcome: "Future[Result]") -> Result:
        """Wait for a call and return what it does; raises what it raises, and ModelError once closed."""
        either: list[Future[Any]] = [outcome, self._closed]
        wait(either, return_when=FIRST_COMPLETED)
        if not outcome.done():
            raise ModelError("the run ended before the server replied")
        return outcome.result()

    def close(self) -> None:
        """End all waiting, now and later."""
        with self._lock:
            if not self._closed.done():
                self._closed.set_result(None)


@dataclass(frozen=True)
class Dialect:
    """Which parameters a server takes: the name of the limit on a reply's tokens, and whether there may be a seed."""

    limit: str = "max_tokens"
    seed: bool = True

    def settings(self, options: ModelOptions, seed: int) -> dict[str, Any]:
        """The parameters of a request."""
        settings = {"temperature": options.temperature, self.limit: options.max_new_tokens}
        return {**settings, "seed": seed} if self.seed else settings

    def adapted(self, refusal: ServerError) -> "Dialect | None":
        """What to try after a refusal; None where it is about something else."""
        if refusal.status not in (400, 422):
            return None
        if self.limit == "max_tokens" and "max_completion_tokens" in refusal.text:
            return replace(self, limit="max_completion_tokens")
        if self.seed and "seed" in refusal.text:
            return replace(self, seed=False)
        return None


def agreed_dialect(endpoint: Endpoint, options: ModelOptions) -> Dialect:
    """The parameters that an endpoint takes, found with a short request; raises ServerError where it refuses all."""
    dialect = Dialect()
    retries: int | None = 0  # the first request finds out at once that no server listens
    short = replace(options, max_new_tokens=min(CHECK_TOKENS, options.max_new_tokens))
    while True:
        try:
            answer = endpoint.post("/chat/completions", _short_chat(endpoint, dialect, short), retries)
            break
        except Unreachable:
            raise  # a server that is not there needs no patience
        except ServerError as error:
            adapted = dialect.adapted(error)
            if adapted is None and retries is None:
                raise
            dialect, retries = adapted or dialect, retries if adapted else None
    _choice_of(answer.body, endpoint)
    dropped = "" if dialect.seed else ", without a seed"
    log.info("%s answers as %s, with %s%s", endpoint.url, endpoint.model, dialect.limit, dropped)
    return dialect


PROBE_SCHEMA = {
    "type": "object",
    "properties": {"ready": {"type": "boolean"}},
    "required": ["ready"],
    "additionalProperties": False,
}


def require_schemas(endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> None:
    """Raise ServerError unless a reply keeps to a JSON schema that no model would follow unasked."""
    short = replace(options, max_new_tokens=2 * CHECK_TOKENS)
    body = {**_short_chat(endpoint, dialect, short), "response_format": response_format(PROBE_SCHEMA)}
    try:
        said = _object(_choice_of(endpoint.post("/chat/completions", body).body, endpoint), "message").get("content")
    except ServerError as error:
        if error.status not in (400, 422):
            raise
        said = error.text
    try:
        kept = isinstance(said, str) and set(json.loads(said)) == {"ready"}
    except (ValueError, TypeError):  # not JSON, or not an object
        kept = False
    if not kept:
        raise endpoint.error(f"does not keep replies to a JSON schema ({_clipped(str(said))}): leave out --constrained")
    log.info("%s keeps replies to a JSON schema", endpoint.url)


def _short_chat(endpoint: Endpoint, dialect: Dialect, options: ModelOptions) -> dict[str, Any]:
    """A request that costs a server next to nothing."""
    messages = [{"role": "user", "content": "Say hello."}]
    return {"model": endpoint.model, "messages": messages, **dialect.settings(options, options.seed)}


def response_format(schema: dict[str, Any]) -> dict[str, Any]:
    """A JSON schema as a request takes it."""
    return {"type": "json_schema", "json_schema": {"name": "action", "strict": True, "schema": schema}}


def chat_message(message: Message) -> bytes:
    """A message as JSON for a chat, the image before its text."""
    text = json.dumps(message.text).encode()
    if message.image is None:
        return b'{"role": "%b", "content": %b}' % (message.role.encode(), text)
    image = b'{"type": "image_url", "image_url": {"url": "%b"}}' % data_url(message)
    return b'{"role": "%b", "content": [%b, {"type": "text", "text": %b}]}' % (message.role.encode(), image, text)


def data_url(message: Message) -> bytes:
    """The image of a user message as a data URL."""
    return b"data:image/png;base64," + base64.b64encode(message.png)


def turn_seed(seed: int, conversation: Conversation) -> int:
    """A seed of 31 bits for the turn that is due, which depends only on `seed`, the conversation's id and the turn."""
    stream = f"{seed} {conversation.id} {len(conversation.images)}"
    return int.from_bytes(hashlib.sha256(stream.encode()).digest()[:4]) >> 1


def until_complete(text: str, reply_format: ReplyFormat) -> str:
    """`text` up to where generation would have ended: at the first closing character that completes the reply."""
    end = text.find(reply_format.closing)
    while end != -1:
        if reply_format.is_complete(text[: end + 1]):
            return text[: end + 1]
        end = text.find(reply_format.closing, end + 1)
    return text


def read_reply(answer: Answer, endpoint: Endpoint, reply_format: ReplyFormat, max_new_tokens: int) -> Reply:
    """The reply in a chat completion, as far as it goes; raises ServerError where there is none."""
    choice = _choice_of(answer.body, endpoint)
    content, reason = _object(choice, "message").get("content"), choice.get("finish_reason")
    if not isinstance(content, str):
        raise endpoint.error(f"sent a reply without text (finish_reason {reason!r})", 200)
    text = until_complete(content, reply_format)
    truncated = reason == "length" and not reply_format.is_complete(text)
    usage = _object(answer.body, "usage")
    return Reply(
        text=text,
        prompt_tokens=_count(usage, "prompt_tokens"),
        reused_tokens=_count(_object(usage, "prompt_tokens_details"), "cached_tokens"),
        generated_tokens=_count(usage, "completion_tokens") or (max_new_tokens if truncated else 0),
        finish_reason="length" if truncated else "stop",
        retries=answer.retries,
    )


def _object(body: dict[str, Any], key: str) -> dict[str, Any]:
    """The object below a key; empty where a server leaves it out or sends something else."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}


def _count(body: dict[str, Any], key: str) -> int:
    value = body.get(key)
    return value if isinstance(value, int) else 0


def _choice_of(body: dict[str, Any], endpoint: Endpoint) -> dict[str, Any]:
    """The first choice of a chat completion; raises ServerError where there is none."""
    choices = body.get("choices")
    if not (isinstance(choices, list) and choices and isinstance(choices[0], dict)):
        said = json.dumps(body)
        raise endpoint.error(f"sent no choices ({_clipped(said)}): --base-url takes a server of chat completions", 200)
    return choices[0]


class OpenAIBackend:
    """Replies of a model behind one or more OpenAI-compatible URLs.

    Constructing a backend sends each URL a short request, so that a wrong key, model or URL ends the command at once;
    raises ModelError. Where `server.constrained`, it must also keep to a JSON schema, which a second request finds out.
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
        """One reply per conversation, in order, all asked for at once; token ids stay with the server.

        Raises ModelError for a conversation that cannot be replied to.
        """
        calls = [self._calls.start(partial(self._reply, each, reply_format)) for each in conversations]
        return [self._calls.result(call) for call in calls]

    def release(self, conversation: Conversation) -> None:
        """Forget the conversation's URL and its encoded messages; unknown ones are ignored."""
        self._pins.release(conversation.id)
        self._encoded.pop(conversation.id, None)

    def peak_memory_bytes(self) -> int:
        """The server's memory is not known here."""
        return 0

    def close(self) -> None:
        """Abandon all requests that are in flight."""
        self._calls.close()
        for endpoint in self._endpoints:
            endpoint.close()

    def _messages(self, conversation: Conversation) -> bytes:
        """The messages as JSON, each encoded once: encoding nine views of 640x480 again takes 20 ms."""
        known = self._encoded.setdefault(conversation.id, [])
        for index, message in enumerate(conversation.messages):
            if index == len(known) or known[index][0] is not message:
                known[index:] = [(message, chat_message(message))]
        return b", ".join(encoded for _, encoded in known)

    def _reply(self, conversation: Conversation, reply_format: ReplyFormat) -> Reply:
        started = time.perf_counter()
        endpoint = self._pins.endpoint_of(conversation.id)
        settings = self._dialects[endpoint.url].settings(self._options, turn_seed(self._options.seed, conversation))
        rest: dict[str, Any] = {"model": self.name, **settings}
        if reply_format.schema is not None:
            rest["response_format"] = response_format(reply_format.schema)
        body = json.dumps(rest).encode()[:-1] + b', "messages": [' + self._messages(conversation) + b"]}"
        built_at = time.perf_counter()
        try:
            answer = endpoint.post("/chat/completions", body)
        except ServerError as error:
            if error.status is None:
                self._pins.avoid(endpoint)
            raise
        reply = read_reply(answer, endpoint, reply_format, self._options.max_new_tokens)
        ended = time.perf_counter()
        return replace(reply, seconds=ended - started, preprocess_seconds=built_at - started)
