"""The HTTP client behind an endpoint: it reads responses whole, up to a limit, and calls can be left in time."""

import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from typing import Any, TypeVar

import httpx2
import openai

from roomscout.models.openai.network import Route

CONNECT_S = 5.0
REBUILT_HEADERS = ("content-type", "content-encoding", "content-length", "transfer-encoding")
WINDOWS = {"gzip": (zlib.MAX_WBITS | 16,), "deflate": (zlib.MAX_WBITS, -zlib.MAX_WBITS)}
"""The window sizes of zlib to try for a content encoding; some servers send deflate without zlib's header."""

Result = TypeVar("Result")


class ResponseTooLarge(Exception):
    """A response has more bytes than the limit, decompressed or as sent."""


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


class LimitedClient(openai.DefaultHttpxClient):
    """An HTTP client whose responses are complete: headers and decompressed body. Thread-safe.

    `send` raises httpx2.TimeoutException if connecting, or any read or write, takes `timeout_s` seconds, or all of the
    body more than that since the request began, and ResponseTooLarge for a body above `largest_body` bytes. A server
    that sends its headers byte by byte is waited for.
    """

    def __init__(self, timeout_s: float, largest_body: int, route: Route) -> None:
        super().__init__(
            timeout=httpx2.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s)),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            headers={"Accept-Encoding": ", ".join(WINDOWS)},
            verify=route.certificates,
            proxy=route.proxy,
            trust_env=False,
        )
        self._timeout_s, self._largest_body = timeout_s, largest_body

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read the whole response. The response keeps no charset: bodies are UTF-8."""
        deadline = time.monotonic() + self._timeout_s
        response = super().send(request, **{**options, "stream": True})
        try:
            body = self._body_of(response, deadline)
        finally:
            response.close()
        headers = [(name, value) for name, value in response.headers.items() if name.lower() not in REBUILT_HEADERS]
        if kind := response.headers.get("content-type", "").partition(";")[0]:
            headers.append(("content-type", kind))
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    def _body_of(self, response: httpx2.Response, deadline: float) -> bytes:
        body = bytearray()
        for chunk in response.iter_raw():
            body += chunk
            if len(body) > self._largest_body:
                raise ResponseTooLarge
            if time.monotonic() > deadline:
                raise httpx2.ReadTimeout("the exchange took too long")
        try:
            content = _decompressed(bytes(body), response.headers.get("content-encoding", ""), self._largest_body + 1)
        except zlib.error as error:
            if response.status_code < 400:
                raise httpx2.DecodingError(str(error)) from error
            return b""  # the status says enough
        if len(content) > self._largest_body:
            raise ResponseTooLarge
        return content


def _decompressed(body: bytes, encoding: str, most: int) -> bytes:
    """The first `most` bytes of a body; raises zlib.error."""
    windows = WINDOWS.get(encoding.strip().lower(), ())
    for window in windows:
        try:
            return zlib.decompressobj(window).decompress(body, most)
        except zlib.error:
            if window == windows[-1]:
                raise
    return body
