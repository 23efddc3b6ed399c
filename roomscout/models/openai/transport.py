"""The HTTP client behind an endpoint: each exchange has one deadline and a limit on the bytes that it reads."""

import math
import ssl
import threading
import time
from collections.abc import Iterable
from typing import Any

import httpcore2
import httpx2
import openai

from roomscout.models.openai.network import Route

CONNECT_S = 5.0
SENT_AT_ONCE = 1 << 17
"""Bytes that are written between two looks at the deadline."""
HEADER_ROOM = 1 << 20
"""Bytes that an exchange may read beside the body: headers, interim responses, TLS and chunk headers."""
REBUILT_HEADERS = ("content-type", "content-encoding", "content-length", "transfer-encoding")


class ResponseTooLarge(Exception):
    """A response has more bytes than the limit, decompressed or as sent."""


class LimitedClient(openai.DefaultHttpxClient):
    """An HTTP client whose responses are complete: headers and decompressed body, read within the limits.

    An exchange (connecting, sending, headers, interim responses, body) takes at most `timeout_s` seconds, apart from
    resolving the host's name; the HTTP library's own timeouts start again with every byte. `send` raises
    httpx2.TimeoutException after that, and ResponseTooLarge for a body above `largest_body` bytes. Thread-safe.
    """

    def __init__(self, timeout_s: float, largest_body: int, route: Route) -> None:
        super().__init__(
            timeout=httpx2.Timeout(timeout_s, connect=CONNECT_S),
            limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
            verify=route.certificates,
            proxy=route.proxy,
            trust_env=False,
        )
        self._timeout_s, self._largest_body = timeout_s, largest_body
        self._exchange = _Exchange()
        for transport in (self._transport, *self._mounts.values()):  # the mounts have the proxy
            if isinstance(transport, httpx2.HTTPTransport):
                pool = transport._pool  # the library passes no network to its pools
                pool._network_backend = _LimitedNetwork(pool._network_backend, self._exchange)

    def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read the whole response. The response keeps no charset: bodies are UTF-8."""
        self._exchange.begin(self._timeout_s, self._largest_body + HEADER_ROOM)
        response = super().send(request, **{**options, "stream": True})
        try:
            body = self._body_of(response)
        finally:
            response.close()
        headers = [(name, value) for name, value in response.headers.items() if name.lower() not in REBUILT_HEADERS]
        if kind := response.headers.get("content-type", "").partition(";")[0]:
            headers.append(("content-type", kind))
        return httpx2.Response(response.status_code, headers=headers, content=body, request=request)

    def _body_of(self, response: httpx2.Response) -> bytes:
        chunks, size = [], 0
        try:
            for chunk in response.iter_bytes():
                size += len(chunk)
                if size > self._largest_body:
                    raise ResponseTooLarge
                chunks.append(chunk)
        except httpx2.DecodingError:
            if response.status_code < 400:
                raise
            return b""  # the status says enough
        return b"".join(chunks)


class _Exchange(threading.local):
    """What is left of the time and the bytes of the current thread's exchange."""

    deadline = math.inf
    bytes_left: float = math.inf

    def begin(self, seconds: float, most_bytes: int) -> None:
        self.deadline = time.monotonic() + seconds
        self.bytes_left = most_bytes

    def seconds_left(self, at_most: float | None, late: type[Exception]) -> float | None:
        """The timeout of the next operation; raises `late` if the time is over."""
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise late("the exchange took too long")
        left = min(left, math.inf if at_most is None else at_most)
        return None if left == math.inf else left

    def count(self, received: int) -> None:
        self.bytes_left -= received
        if self.bytes_left < 0:
            raise ResponseTooLarge


class _LimitedNetwork(httpcore2.NetworkBackend):
    """Connections whose operations keep to the current exchange."""

    def __init__(self, network: httpcore2.NetworkBackend, exchange: _Exchange) -> None:
        self._network = network
        self._exchange = exchange

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        timeout = self._exchange.seconds_left(timeout, httpcore2.ConnectTimeout)
        stream = self._network.connect_tcp(host, port, timeout, local_address, socket_options)
        return _LimitedStream(stream, self._exchange)


class _LimitedStream(httpcore2.NetworkStream):
    def __init__(self, stream: httpcore2.NetworkStream, exchange: _Exchange) -> None:
        self._stream = stream
        self._exchange = exchange

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        data = self._stream.read(max_bytes, self._exchange.seconds_left(timeout, httpcore2.ReadTimeout))
        self._exchange.count(len(data))
        return data

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), SENT_AT_ONCE):
            left = self._exchange.seconds_left(timeout, httpcore2.WriteTimeout)
            self._stream.write(buffer[start : start + SENT_AT_ONCE], left)

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        timeout = self._exchange.seconds_left(timeout, httpcore2.ConnectTimeout)
        return _LimitedStream(self._stream.start_tls(ssl_context, server_hostname, timeout), self._exchange)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
