"""OpenAI-compatible servers on loopback that fail on purpose: for tests of engines."""

import gzip
import hashlib
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from types import MappingProxyType
from typing import Any, Self
from urllib.parse import urlsplit

from scripted_model import Script

from roomscout.models.conversation import Conversation, Message
from roomscout.models.openai.dialect import CHECK_TEXT, EMPTY_REPLY

PASSING = ("429", "500", "503", "hang", "truncated", "drip")
"""Faults that a retry overcomes: refusals, no response, half a body, a body that arrives slowly."""
ENDLESS = {"headers": b"X-More: of this\r\n", "interim": b"HTTP/1.1 102 Processing\r\n\r\n"}
"""Faults that keep a response from beginning, and what they send again and again."""
ENDLESS_PAUSE_S = 0.05
REFUSALS = {
    400: "This model's maximum context length is 4096 tokens.",
    401: "Incorrect API key provided: {key}",
    403: "You are not allowed to use this model.",
    404: "The model does not exist.",
    413: "Request entity too large.",
    422: "Unprocessable.",
    429: "Too many requests.",
    500: "Internal server error.",
    503: "The server is overloaded.",
}


@dataclass(frozen=True)
class Request:
    """A chat as a server received it: the text of its first messages, its turn from 0 (-1 for the request that checks a
    server), how often that turn was asked before, the API key that came with it, and the path with its parameters."""

    conversation: str
    turn: int
    attempt: int
    key: str | None
    body: dict[str, Any]
    path: str = ""


NO_HEADERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Response:
    """A response to send as it is, with its length and, unless `headers` name another, as JSON."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


Fault = Callable[[Request], str | Response | None]
"""The fault of a request (None: none): a whole `Response`, one of PASSING or ENDLESS, "html", "stream", "no choices",
"null", "closing" (a whole response, then a connection that closes without notice), "gzip", an HTTP status,
"status:message" or "status:" and an error object as JSON."""
Answering = Callable[[bytes], bytes]
"""A response's body from that of a request."""


def no_fault(request: Request) -> None:
    """No fault."""


def sometimes(share: float, seed: int = 0, kinds: tuple[str, ...] = PASSING) -> Fault:
    """Faults in a share of all requests, drawn only from the conversation, the turn and the attempt."""

    def fault(request: Request) -> str | None:
        draw = Random(f"{seed} {request.conversation} {request.turn} {request.attempt}")
        return draw.choice(kinds) if draw.random() < share else None

    return fault


def scripted(script: Script) -> Answering:
    """Chat completions whose text comes from a script, without delay."""

    def answer(body: bytes) -> bytes:
        chat = json.loads(body)
        text = script(Conversation("", [Message(each["role"], text_of(each)) for each in chat["messages"]]))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 100, "completion_tokens": 10, "prompt_tokens_details": {"cached_tokens": 60}}
        return json.dumps({"object": "chat.completion", "choices": [choice], "usage": usage}).encode()

    return answer


def forwarded(url: str) -> Answering:
    """The chat completions of another server, which is asked once for equal requests, since decoding is greedy."""
    where = urlsplit(url)
    known: dict[str, Future[bytes]] = {}
    lock = threading.Lock()

    def answer(body: bytes) -> bytes:
        name = hashlib.sha256(body).hexdigest()
        with lock:
            first = name not in known
            response = known.setdefault(name, Future())
        if first:
            connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=300)
            connection.request("POST", f"{where.path}/chat/completions", body, {"Content-Type": "application/json"})
            response.set_result(connection.getresponse().read())
            connection.close()
        return response.result()

    return answer


def text_of(message: dict[str, Any]) -> str:
    """The text of a chat message, as it was before it was sent."""
    content = message["content"]
    if content == EMPTY_REPLY:
        return ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class FaultyServer:
    """Answers chats on a free loopback port inside the context, except those that `fault` selects.

    A hanging request takes `hang_s` seconds, a dripping body `drip_s`.
    """

    def __init__(
        self,
        answering: Answering,
        fault: Fault = no_fault,
        hang_s: float = 5.0,
        drip_s: float = 0.2,
    ) -> None:
        self.answering = answering
        self.fault = fault
        self.hang_s, self.drip_s = hang_s, drip_s
        self.requests: list[Request] = []
        self._attempts: Counter[tuple[str, int]] = Counter()
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.request_queue_size = 128
        self._server.owner = self  # type: ignore[attr-defined]
        self.closing = threading.Event()

    @property
    def url(self) -> str:
        """The root of its API."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()

    def received(self, body: bytes, key: str | None, path: str) -> Request:
        """Record a request."""
        chat = json.loads(body)
        opening = "\n".join(text_of(each) for each in chat["messages"][:2])
        is_turn = chat["messages"][0]["role"] == "system" and not opening.endswith(CHECK_TEXT)
        turn = body.count(b"data:image/png;base64,") - 1 if is_turn else -1
        with self._lock:
            attempt = self._attempts[opening, turn]
            self._attempts[opening, turn] += 1
            request = Request(opening, turn, attempt, key, chat, path)
            self.requests.append(request)
        return request


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1  # buffered: without both, a response takes 40 ms

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""

    def do_POST(self) -> None:
        """Answer a chat, or fail as selected."""
        owner: FaultyServer = self.server.owner  # type: ignore[attr-defined]
        body = self.rfile.read(int(self.headers["Content-Length"]))
        key = self.headers.get("Authorization")
        request = owner.received(body, key, self.path)
        match owner.fault(request):
            case None:
                self._send(200, owner.answering(body))
            case Response(status, content, headers):
                self._send(status, content, headers=headers)
            case "headers" | "interim" as name:
                self._send_endlessly(ENDLESS[name], begun=name == "headers")
            case "hang":
                owner.closing.wait(owner.hang_s)
                self.close_connection = True
            case "truncated":
                self._send(200, owner.answering(body), sent=0.5)
            case "drip":
                self._send(200, owner.answering(body), seconds=owner.drip_s)
            case "html":
                self._send(200, b"<html><body>Welcome to nginx!</body></html>", kind="text/html")
            case "stream":
                self._send(200, b'data: {"choices": []}\n\ndata: [DONE]\n\n', kind="text/event-stream")
            case "no choices":
                self._send(200, b'{"object": "chat.completion", "choices": []}')
            case "null":
                choice = {"index": 0, "message": {"role": "assistant", "content": None}, "finish_reason": "stop"}
                self._send(200, json.dumps({"choices": [choice]}).encode())
            case "closing":
                self._send(200, owner.answering(body))
                self.close_connection = True
            case "gzip":
                self._send(200, gzip.compress(owner.answering(body)), headers={"Content-Encoding": "gzip"})
            case status:
                number, _, said = str(status).partition(":")
                message = (said or REFUSALS[int(number)]).format(key=key)
                error = json.loads(message) if message.startswith("{") else {"message": message}
                self._send(int(number), json.dumps({"error": error}).encode())

    def _send(
        self,
        status: int,
        body: bytes,
        kind: str = "application/json",
        sent: float = 1.0,
        seconds: float = 0.0,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        """Send a response over so many seconds; if `sent` is below 1, break the connection after that share of it."""
        self.send_response(status)
        if "Content-Type" not in headers:
            self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        if status >= 400 and "Retry-After" not in headers:
            self.send_header("retry-after-ms", "20")
        self.end_headers()
        whole = int(len(body) * sent)
        step = whole if not seconds else 1 + whole // 20
        for start in range(0, whole, step):
            self.wfile.write(body[start : min(start + step, whole)])
            self.wfile.flush()
            time.sleep(seconds / 20)
        self.close_connection = sent < 1

    def _send_endlessly(self, piece: bytes, begun: bool) -> None:
        """Send a piece again and again until the client leaves."""
        owner: FaultyServer = self.server.owner  # type: ignore[attr-defined]
        self.close_connection = True
        with suppress(OSError):
            self.wfile.write(b"HTTP/1.1 200 OK\r\n" if begun else b"")
            while not owner.closing.wait(ENDLESS_PAUSE_S):
                self.wfile.write(piece)
                self.wfile.flush()
