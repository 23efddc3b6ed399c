"""One URL of a server, asked through the official client; errors hold no API key."""

import json
import math
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import httpx2
import openai
from openai._types import RequestOptions

from roomscout.models import ModelError, ServerOptions
from roomscout.models.openai.responses import as_failure, parsed, said_in

CONNECT_S = 5.0
LARGEST_RESPONSE = 16 << 20  # bytes of a response, decompressed. A chat completion of 10,000 tokens has about 50 kB
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")  # hosts that no proxy can reach
QUOTED = 300  # characters of a server's text that an error message quotes
SHORTEST_SECRET = 8  # shorter keys are dummies such as "none" or "EMPTY", which would be found in ordinary words
REDIRECTS = (301, 302, 303, 307, 308)
LASTING = (*REDIRECTS, 401, 402, 403, 404, 405, 407, 410)  # statuses about the key, the URL or the model: no wait helps
PASSING = (408, 409, 425, 429, 498)  # statuses about the moment, like those from 500 on
FILTERED = re.compile(r"content.?(filter|policy)|moderation|flagged", re.IGNORECASE)
"""What servers say of a request that they will not answer, with any status (OpenRouter: 403)."""
USED_UP = re.compile(r"insufficient.{0,2}(quota|balance|credit|fund)|credit balance|api key not valid", re.IGNORECASE)
"""What they say of an account, with other statuses than 401 and 402 (OpenAI: 429; Anthropic, Gemini: 400)."""
ADVICE = {  # what to do about a status; about others, only the server knows
    **dict.fromkeys(REDIRECTS, "give the URL of the API itself"),
    401: "set the environment variable {key_env} to a valid key",
    403: "use a key with access to {model}, or another model",
    404: "correct the URL, which usually ends in /v1",
    413: "use smaller views, fewer steps or fewer kept views, which make conversations shorter",
    429: "ask fewer questions at a time, and retry later",
}
NO_TIME = "ask fewer questions at a time, or allow a request more time"
NO_ANSWER = "check that the server runs, its URL, and the proxies and certificates that environment variables name"

Result = TypeVar("Result")


class ServerError(ModelError):
    """A server was not reached, refused, or sent no reply; the message says what to do. `status` is None without a
    response, and `text` what the server said. `rest_s` is None for what it says about this request alone; else no
    question is to blame: the seconds that the server asks to wait, 0 if it does not say, infinity if no wait helps."""

    def __init__(
        self,
        message: str,
        status: int | None = None,
        text: str = "",
        setting: str | None = None,
        rest_s: float | None = None,
    ) -> None:
        super().__init__(message, setting=setting)
        self.status = status
        self.text = text
        self.rest_s = rest_s


@dataclass(frozen=True)
class Answer:
    """The JSON object that a server sent, and its text."""

    body: dict[str, Any]
    text: str


class Endpoint:
    """A URL of a server for `model`, thread-safe; raises ModelError for an unusable key, proxy or certificate."""

    def __init__(self, url: str, model: str, options: ServerOptions) -> None:
        if options.key and not re.fullmatch(r"[!-~]+", options.key):
            raise ModelError(
                f"the environment variable {options.key_env} does not hold an API key: it contains spaces, line breaks "
                "or characters outside ASCII"
            )
        self.url = url
        self.model = model
        self.options = options
        root, mark, parameters = url.partition("?")
        self._parameters = mark + parameters
        try:
            http_client = _HttpClient(options.timeout_s)
        except (httpx2.InvalidURL, ValueError):  # which may show a password
            why = "HTTP_PROXY, HTTPS_PROXY or ALL_PROXY is not a proxy's URL such as http://HOST:PORT"
            raise ModelError(f"servers cannot be asked: {why}") from None
        except (ImportError, OSError) as error:
            why = "a proxy or the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be used"
            raise ModelError(f"servers cannot be asked: {why} ({error})") from None
        self._client = openai.OpenAI(base_url=root, api_key=options.key or "none", http_client=http_client)

    def post(self, path: str, body: dict[str, Any] | bytes, retries: int = 0) -> Answer:
        """POST a body, bytes if it is JSON already, to `path` below the URL; the client retries up to `retries` times.
        Raises ServerError, which never holds the API key."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        options: RequestOptions = {
            "max_retries": retries,
            "headers": {} if self.options.key else {"Authorization": openai.Omit()},  # the client wants a key
            "follow_redirects": False,  # most redirects turn a POST into a GET
        }
        try:
            url = path + self._parameters
            response = self._client.post(url, content=content, cast_to=httpx2.Response, options=options)
        except openai.OpenAIError as error:
            failure = self._failure(error)
        else:
            answer = parsed(response.content)
            if answer is not None:
                return Answer(answer, response.text)
            failure = self.error(
                f"sent no JSON object ({self.quoted(response.text)}): the URL is the root of an OpenAI-compatible API, "
                "which usually ends in /v1",
                200,
                rest_s=0.0,
            )
        raise failure  # not above: the client's errors hold the key

    def close(self) -> None:
        """Close the connections of all requests."""
        self._client.close()

    def error(self, message: str, status: int | None = None, **facts: Any) -> ServerError:
        """An error about this URL, see ServerError. The message quotes the server only through `quoted`."""
        return ServerError(f"{self.url} {message}", status, **facts)

    def redacted(self, text: str) -> str:
        """A server's text without the API key, which some servers echo."""
        key = self.options.key or ""
        if len(key) < SHORTEST_SECRET:
            return text
        return text.replace(json.dumps(key)[1:-1], "<API key>").replace(key, "<API key>")

    def quoted(self, text: str) -> str:
        """A server's text for a message: one printable line, shortened, without the API key."""
        text = self.redacted(text)[: 100 * QUOTED]  # in this order: half a key would not be recognized
        line = " ".join(text.split())
        line = "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in line)
        return line if len(line) <= QUOTED else line[: QUOTED - 3] + "..."

    def _failure(self, error: openai.OpenAIError) -> ServerError:
        if not isinstance(error, (openai.APIStatusError, openai.APIConnectionError)):
            return self.error(str(error), 200)
        attempts = int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
        times = f", {attempts} times in a row" if attempts > 1 else ""
        if isinstance(error, openai.APIStatusError):
            status = error.status_code
            text = error.response.text
            said = error.response.headers.get("location", "").partition("?")[0] or said_in(text)
            does = "refuses the request" if status < 500 else "fails"
            rest_s = self._rest_s(status, text, error.response.headers)
            is_api = status == 404 and parsed(text) is not None  # which says what it lacks
            is_used_up = status == 429 and rest_s == math.inf
            advice = "" if is_api or is_used_up else ADVICE.get(status, "")
            advice = advice.format(key_env=self.options.key_env, model=self.model)
            message = f"{does} ({status}{times}: {self.quoted(said)}){advice and f': {advice}'}"
            setting = "concurrency" if status == 429 and not is_used_up else None
            return self.error(message, status, text=self.redacted(text), setting=setting, rest_s=rest_s)
        cause = error.__cause__
        if isinstance(cause, (httpx2.ReadTimeout, httpx2.WriteTimeout)):
            message = f"did not answer within {self.options.timeout_s:g} s{times}: {NO_TIME}"
        else:
            message = f"did not answer{times} ({self.quoted(str(cause)) or type(cause).__name__}): {NO_ANSWER}"
        return self.error(message, rest_s=0.0)

    def _rest_s(self, status: int, text: str, headers: httpx2.Headers) -> float | None:
        """Whether a refusal is about one request or about the engine, and then how long: see `ServerError.rest_s`."""
        if FILTERED.search(text):
            return None
        if status in LASTING or USED_UP.search(text):
            return math.inf
        if status < 500 and status not in PASSING and headers.get("x-should-retry") != "true":
            return None
        asked_s = self._client._parse_retry_after_header(headers) or 0.0  # seconds, milliseconds or a date
        return asked_s if 0 < asked_s < math.inf else 0.0


def start(call: Callable[[], Result]) -> Future[Result]:
    """Run a blocking call on a thread that does not keep the process alive, so that its caller may leave it."""
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as error:  # noqa: BLE001 (raised again where the result is taken)
            outcome.set_exception(error)

    threading.Thread(target=copy_context().run, args=(run,), name="request", daemon=True).start()
    return outcome


class _HttpClient(openai.DefaultHttpxClient):
    """An HTTP client, thread-safe, whose responses are complete. `send` raises httpx2.TimeoutException after
    `timeout_s`, whatever comes in between, and OpenAIError, which is not retried, for a body above LARGEST_RESPONSE."""

    def __init__(self, timeout_s: float) -> None:
        super().__init__(
            timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            mounts={f"all://{host}": None for host in LOOPBACK},
        )
        self._timeout_s = timeout_s

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        try:
            return start(partial(self._exchange, request, options)).result(self._timeout_s)
        except TimeoutError:  # httpx2's timeouts begin again with each byte
            raise httpx2.ReadTimeout("the exchange took too long", request=request) from None

    def _exchange(self, request: httpx2.Request, options: dict[str, Any]) -> httpx2.Response:
        body = bytearray()
        deadline = time.monotonic() + self._timeout_s
        with closing(super().send(request, **{**options, "stream": True})) as response:
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > LARGEST_RESPONSE:
                    raise openai.OpenAIError(f"sent a response of more than {LARGEST_RESPONSE >> 20} MiB")
                if time.monotonic() > deadline:  # nobody waits any more
                    raise httpx2.ReadTimeout("the exchange took too long")
        kept = ("location", "retry-after", "retry-after-ms", "x-should-retry")  # no charset: bodies are UTF-8
        headers = {name: response.headers[name] for name in kept if name in response.headers}
        status = response.status_code
        content = bytes(body)
        if status == 200:
            status, content = as_failure(content)
        if status in PASSING or (400 <= status < 500 and b"overloaded" in content.lower()):
            headers["x-should-retry"] = "true"
        return httpx2.Response(status, headers=headers, content=content, request=request)
