"""One URL of a server: requests, retries, and errors that hold no API key."""

import ipaddress
import json
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx2
import openai

from models import ModelError, ServerOptions

CONNECT_S = 5.0
QUOTED = 300
"""Characters of a server's text that an error message quotes."""
ABSENT = (502, 503, 504)
"""Statuses with which a gateway says that there is no server behind it."""


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
            case 400 | 422 if mentions("temperature", said):
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
        behind = object_at(body, "metadata").get("raw")
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


def mentions(name: str, text: str) -> bool:
    """Whether a text has a name as a word, in any case."""
    return re.search(rf"\b{name}\b", text, re.IGNORECASE) is not None


def _clipped(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else line[: QUOTED - 3] + "..."


def _root(error: BaseException) -> str:
    """The message of an error's root cause."""
    while error.__cause__ is not None:
        error = error.__cause__
    return _clipped(str(error)) or type(error).__name__


def object_at(body: dict[str, Any], key: str) -> dict[str, Any]:
    """The object at a key; empty if the server sent none."""
    value = body.get(key)
    return value if isinstance(value, dict) else {}
