"""A small HTTP server: for browsers that name this computer as the host, or for those that have a token."""

import hmac
import json
import logging
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote_to_bytes

from roomscout.base.errors import Refusal
from roomscout.base.text import escaped, json_in

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
"""The names of this computer that requests may use. A page elsewhere whose name leads here by DNS uses its own."""
LARGEST_BODY = 1 << 16  # bytes of what a page may post
TEXT, HTML, JSON = "text/plain; charset=utf-8", "text/html; charset=utf-8", "application/json"
JAVASCRIPT, PNG = "text/javascript; charset=utf-8", "image/png"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",  # else a page elsewhere could load the data as scripts
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PortError(Refusal):
    """The server cannot use the port, or the address."""


@dataclass(frozen=True)
class Page:
    """What is at an address, and its media type; `moved` is the address where it is instead."""

    content: bytes = b""
    kind: str = HTML
    moved: str = ""
    status: int = 200

    @classmethod
    def of_json(cls, value: Any, status: int = 200) -> "Page":
        """A value as JSON."""
        return cls(json.dumps(value, separators=(",", ":")).encode(), JSON, status=status)


class Site:
    """Pages by address. `errors` are those that a page may raise: their sentence is shown."""

    errors: ClassVar[tuple[type[Exception], ...]] = ()
    takes_posts: ClassVar[bool] = False

    def refusal(self) -> Page:
        """What is at every address without one of the tokens."""
        return Page(b"Open this page at the address with the token that the command printed.", TEXT, status=403)

    def page(self, path: list[str], query: dict[str, str]) -> Page | None:
        """The page for decoded path segments, the last empty for a folder, and the parameters; None if unknown."""
        raise NotImplementedError

    def post(self, path: list[str], query: dict[str, str], body: Any) -> Page | None:
        """What follows from the parsed JSON that a page posts to an address; only if the site `takes_posts`."""
        raise NotImplementedError


def own_address() -> str:
    """The address of this computer in its network, as others reach it; its name if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as unsent:
        try:
            unsent.connect(("192.0.2.1", 9))  # RFC 5737: an address for documentation; UDP sends nothing to connect
            return str(unsent.getsockname()[0])
        except OSError:
            return socket.gethostname()


def server_on(port: int, site: Site, host: str = ADDRESS, tokens: Collection[str] = ()) -> ThreadingHTTPServer:
    """A server that listens on a port of a host, on any free one for 0; raises PortError. With `tokens`, each request
    needs one of them as the parameter `token`; without, it must name this computer as the host."""

    class Requests(_Requests):
        pages = site
        keys: ClassVar = [token.encode() for token in tokens]

    try:
        return _Server((host, port), Requests)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise PortError(
            f"cannot listen at {host}:{port} ({why}): name another port, 0 for any free one, or an IPv4 address of "
            "this computer"
        ) from None


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # of connections not accepted yet: many people may reply at once

    def server_bind(self) -> None:
        """Bind without a DNS query for the name of this computer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Without a free descriptor this waits a little: the server asks again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(0.2)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the traceback of an unexpected error; browsers that leave a page are none."""
        if not isinstance(sys.exception(), ConnectionError):
            log.error("An unexpected error of the server; it goes on.", exc_info=True)


class _Requests(BaseHTTPRequestHandler):
    protocol_version, server_version, sys_version = "HTTP/1.1", "RoomScout", ""
    timeout = 60
    pages: Site
    keys: ClassVar[list[bytes]]

    def do_GET(self) -> None:
        self._answer(self.pages.page)

    def do_POST(self) -> None:
        """Hand the JSON in the body to the site; other pages cannot post it, since browsers ask this server first."""
        length = self.headers.get("Content-Length", "")
        fits = re.fullmatch("[0-9]{1,5}", length) and int(length) <= LARGEST_BODY
        if not self.pages.takes_posts:
            self.send_error(501)
        elif not fits or self.headers.get_content_type() != JSON:
            self.close_connection = True  # its body is not read
            self._send(Page(b"Post JSON of at most 64 kB.", TEXT, status=400))
        else:
            try:
                body = json_in(self.rfile.read(int(length)))
            except ValueError:
                self._send(Page(b"This is not JSON.", TEXT, status=400))
                return
            self._answer(lambda names, query: self.pages.post(names, query, body))

    def _answer(self, page_at: Callable[[list[str], dict[str, str]], Page | None]) -> None:
        path, _, text = self.path.partition("?")
        query = {name: values[0] for name, values in parse_qs(text).items()}
        token = query.get("token", "").encode()
        if self.keys and not any(hmac.compare_digest(token, key) for key in self.keys):
            self._send(self.pages.refusal())
            return
        if not self.keys and self.headers.get("Host", "").rsplit(":", 1)[0].lower() not in HOSTS:
            self._send(Page(b"Open this page as http://localhost or http://127.0.0.1.", TEXT, status=403))
            return
        names = [os.fsdecode(unquote_to_bytes(name)) for name in path.removeprefix("/").split("/")]
        try:
            page = page_at(names, query) or Page(b"There is no such page.", TEXT, status=404)
        except self.pages.errors as error:
            page = Page(escaped(f"{error}.").encode(), TEXT, status=500)
        self._send(page)

    def _send(self, page: Page) -> None:
        status = 301 if page.moved else page.status
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if page.moved:
            self.send_header("Location", page.moved)
        self.send_header("Content-Type", page.kind)
        self.send_header("Content-Length", str(len(page.content)))
        self.end_headers()
        self.wfile.write(page.content)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request: its address may have the token."""
