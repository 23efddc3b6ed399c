"""One URL of a server: requests, retries, and errors that hold no API key."""

import json
import logging
import random
import re
import ssl
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import httpx2
import openai
from openai._types import RequestOptions

from roomscout.base.wording import Worded
from roomscout.models import ModelError, ServerOptions
from roomscout.models.openai.bodies import code_of, explanation, page_in_words, parsed, reported_failure
from roomscout.models.openai.failures import (
    AROUND_PROXY,
    Failure,
    NoResponse,
    Unusable,
    advice_on,
    asked_delay,
    root_cause,
)
from roomscout.models.openai.network import route_to, speaks_tls
from roomscout.models.openai.transport import LimitedClient, ResponseTooLarge, start

log = logging.getLogger(__name__)

FIRST_BACKOFF_S, LONGEST_BACKOFF_S, JITTER = 0.5, 8.0, 0.25
"""The wait before a retry where the server names none: doubled each time, less a random share of up to JITTER."""
GRACE_S = 1.0
"""How much longer than the client's own timeouts, which close the connection, an exchange is waited for."""
NOTED_DELAY_S = 1.0
"""Shorter delays that a server asks for are not logged."""
QUOTED = 300
"""Characters of a server's text that an error message quotes."""
SHORTEST_SECRET = 8
"""Shorter keys are dummies for servers that need none ("none", "EMPTY"), and would be found in ordinary words."""
NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "UNKNOWN_PROTOCOL")
"""What OpenSSL calls an answer without TLS, by version."""
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
    """The JSON object that a server sent, its text, and the number of requests that failed before."""

    body: dict[str, Any]
    text: str
    retries: int


class Endpoint:
    """One URL of a server for `model`, behind the official client. Thread-safe. Requests keep the URL's parameters.

    Raises ModelError for a key that no HTTP header can hold, and for proxies and certificates that cannot be used.
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
        self._route = route_to(url)
        root, mark, parameters = url.partition("?")
        self._parameters = mark + parameters
        self._client = openai.OpenAI(
            base_url=root,
            api_key=options.key or "none",  # the client wants one, and "none" is not sent: see _send()
            max_retries=0,
            http_client=LimitedClient(options.timeout_s, options.largest_response, self._route),
        )
        self._closed: Future[None] = Future()
        self._lock = threading.Lock()
        self._quiet_until = 0.0  # on the monotonic clock; guarded by the lock

    def post(
        self, path: str, body: dict[str, Any] | bytes, retries: int | None = None, reconnect: bool = True
    ) -> Answer:
        """Send a request and parse the JSON object in the response. Retries where that may help, up to `retries` times
        (None: `options.retries`), after the delay that the server asks for. The body is bytes if it is JSON already.

        Without `reconnect`, a server that does not listen is not waited for. `path` continues the URL. Raises
        ServerError; neither its text nor its causes hold the API key. Raises ModelError once closed.
        """
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        retries = self.options.retries if retries is None else retries
        failures = 0
        while True:
            outcome = self._attempt(path, content, failures)
            if isinstance(outcome, Answer):
                return outcome
            failures += 1
            if outcome.reason is NoResponse.BROKEN and not reconnect and self._is_encrypted():
                outcome = Failure(NoResponse.ENCRYPTED)
            lost = outcome.reason in (NoResponse.UNREACHABLE, NoResponse.PROXY) and not reconnect
            if lost or not outcome.passes or failures > retries:
                raise self._error_of(outcome, failures)
            self._wait(outcome, failures)

    def model_names(self) -> list[str]:
        """The models that the server lists; empty if it lists none."""
        response = self._send("/models", None)
        listed = None if isinstance(response, Failure) else (parsed(response.content) or {}).get("data")
        names = [each.get("id") for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        return [name for name in names if isinstance(name, str)]

    def close(self) -> None:
        """Abandon all requests, which raise ModelError at once whatever the server does."""
        with self._lock:
            if not self._closed.done():
                self._closed.set_result(None)
        self._client.close()

    def error(self, message: str, status: int | None = None) -> ServerError:
        """An error about this URL. The message quotes the server only through `quoted`."""
        return ServerError(f"{self.url} {message}", status)

    def redacted(self, text: str) -> str:
        """A server's text without the API key, which some servers echo."""
        key = self.options.key
        if key is None or len(key) < SHORTEST_SECRET:
            return text
        in_json = json.dumps(key)[1:-1]
        return text.replace(in_json, "<API key>").replace(key, "<API key>")

    def quoted(self, text: str) -> str:
        """A server's text for a message: one printable line, shortened, without the API key."""
        text = self.redacted(text)[: 100 * QUOTED]  # in this order: half a key would not be recognized
        line = " ".join(text.split())
        line = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in line)
        return line if len(line) <= QUOTED else line[: QUOTED - 3] + "..."

    def _attempt(self, path: str, content: bytes, failures: int) -> Answer | Failure:
        """One request, after so many that failed."""
        response = self._send(path, content)
        if isinstance(response, Failure):
            return response
        text, body = response.text, parsed(response.content)
        if body is None:
            kind = response.headers.get("content-type", "no content type")
            cause = Unusable.STREAMED if kind.startswith("text/event-stream") else Unusable.NOT_JSON
            return Failure(cause, page_in_words(text), kind=kind)
        if failure := reported_failure(body, text):
            return replace(failure, asked_s=asked_delay(response.headers))
        return Answer(body, text, failures)

    def _send(self, path: str, content: bytes | None) -> httpx2.Response | Failure:
        """The outcome of `_request`, in time: the client's timeouts start again with every byte of the headers."""
        outcome = start(partial(self._request, path, content))
        either: list[Future[Any]] = [outcome, self._closed]
        wait(either, self.options.timeout_s + GRACE_S, FIRST_COMPLETED)
        self._require_open()
        return outcome.result() if outcome.done() else Failure(NoResponse.LATE)

    def _require_open(self) -> None:
        if self._closed.done():
            raise ModelError("the run ended before the server replied")

    def _request(self, path: str, content: bytes | None) -> httpx2.Response | Failure:
        """A response of status 2xx to a request, which posts `content` if there is any. Errors of the client end here:
        their requests hold the key."""
        options: RequestOptions = {
            "headers": {} if self.options.key else {"Authorization": openai.Omit()},
            "follow_redirects": False,  # most redirects turn a POST into a GET
        }
        path += self._parameters
        try:
            if content is None:
                return self._client.get(path, cast_to=httpx2.Response, options=options)
            return self._client.post(path, content=content, cast_to=httpx2.Response, options=options)
        except ResponseTooLarge:
            return Failure(Unusable.TOO_LARGE)
        except openai.APIStatusError as error:
            return _refusal(error)
        except openai.APIConnectionError as error:
            return self._lost(error)
        except openai.OpenAIError as error:
            return Failure(NoResponse.OTHER, str(error))

    def _lost(self, error: openai.APIConnectionError) -> Failure:
        """Why there is no response."""
        reason: NoResponse | Unusable
        root = root_cause(error)
        match error.__cause__, root:
            case _, ssl.SSLCertVerificationError():
                return Failure(NoResponse.UNTRUSTED, root.verify_message or str(root))
            case httpx2.ConnectError(), ssl.SSLError(reason=str(why)) if why in NOT_TLS:
                return Failure(NoResponse.PLAIN)
            case httpx2.ProxyError(), _ if str(error.__cause__).startswith("4"):
                return Failure(407, str(error.__cause__))
            case httpx2.ProxyError(), _:
                reason = NoResponse.PROXY
            case ((httpx2.ConnectError() | httpx2.ConnectTimeout()), _):
                reason = NoResponse.PROXY if self._route.proxy else NoResponse.UNREACHABLE
            case httpx2.TimeoutException(), _:
                reason = NoResponse.LATE
            case httpx2.DecodingError(), _:
                reason = Unusable.NOT_DECODABLE
            case _:
                reason = NoResponse.BROKEN
        return Failure(reason, str(root) or type(root).__name__)

    def _is_encrypted(self) -> bool:
        return self.url.lower().startswith("http:") and self._route.proxy is None and speaks_tls(self.url)

    def _wait(self, failure: Failure, failures: int) -> None:
        """Wait before another attempt, as long as the server asks for or with a growing delay.

        Raises ModelError as soon as the endpoint is closed.
        """
        if failure.asked_s is None:
            longest = min(FIRST_BACKOFF_S * 2 ** min(failures - 1, 10), LONGEST_BACKOFF_S)
            seconds = longest * (1 - JITTER * random.random())
        else:
            seconds = min(failure.asked_s, self.options.longest_wait_s)
            self._note_wait(failure, seconds)
        wait([self._closed], seconds)
        self._require_open()

    def _note_wait(self, failure: Failure, seconds: float) -> None:
        """Log a wait that the server asked for, once for all questions that wait at about the same time."""
        asked_s, now = failure.asked_s or 0.0, time.monotonic()
        with self._lock:
            if asked_s < NOTED_DELAY_S or now < self._quiet_until:
                return
            self._quiet_until = now + self.options.longest_wait_s
        log.warning(
            "%s asks for a delay of %s (%s): its questions wait %s before they are retried",
            self.url, _in_seconds(asked_s), failure.status, _in_seconds(seconds),
        )  # fmt: skip

    def _error_of(self, failure: Failure, attempts: int) -> ServerError:
        """The error for a failure, with the setting to change."""
        options = self.options
        times = f", {attempts} times in a row" if attempts > 1 else ""
        if failure.passes and failure.asked_s is not None:
            times += f", and asks for a delay of {_in_seconds(failure.asked_s)}"
        advice = advice_on(failure, has_key=options.key is not None)
        around = AROUND_PROXY if self._route.proxy and failure.reason is not NoResponse.PROXY else ""
        facts = {
            "said": self.quoted(failure.said),
            "status": failure.status,
            "times": times,
            "kind": self.quoted(failure.kind),
            "variable": options.key_env,
            "proxy": self._route.variable,
            "host": self._route.host,
            "model_name": self.model,
            "timeout_s": options.timeout_s,
            "fewer_images": options.fewer_images,
            "largest_mib": options.largest_response / 2**20,
        }
        message = (advice + around).format_map(Worded(facts))
        kind = Unreachable if failure.reason is NoResponse.UNREACHABLE else ServerError
        return kind(f"{self.url} {message}", failure.status, self.redacted(failure.said), attempts)


def _refusal(error: openai.APIStatusError) -> Failure:
    """The failure that an HTTP status stands for."""
    response = error.response
    if location := response.headers.get("location", "") if response.is_redirect else "":
        return Failure(response.status_code, location.partition("?")[0].removesuffix("/chat/completions"))
    said = explanation(error.body, response.text)
    return Failure(response.status_code, said, asked_s=asked_delay(response.headers), code=code_of(error.body))


def _in_seconds(seconds: float) -> str:
    return f"{seconds:.6g} s"
