"""An HTTP server for this computer alone: GET only, and only for browsers that name this computer as the host."""

import logging
import os
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any
from urllib.parse import parse_qs, unquote_to_bytes

from roomscout.analysis.serve.site import Page, Site
from roomscout.base.text import escaped
from roomscout.runs import RunError

log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
HOSTS = (ADDRESS, "localhost")
"""The names of this computer that requests may use. A page elsewhere whose name leads here by DNS uses its own."""
REST_S = 0.2
"""How long the server waits before it tries again to accept a connection."""
TEXT = "text/plain; charset=utf-8"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",  # else a page elsewhere could load the data as scripts
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class PortError(Exception):
    """The server cannot use the port."""


def server_on(port: int, site: Site) -> ThreadingHTTPServer:
    """A server that listens on a port of this computer, on any free one for 0; raises PortError."""

    class Requests(_Requests):
        pages = site

    try:
        return _Server((ADDRESS, port), Requests)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise PortError(f"--port {port} cannot be used ({why}): name another, or 0 for any free one") from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # browsers keep connections open

    def server_bind(self) -> None:
        """Bind without a DNS query for the name of this computer."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.socket.getsockname()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection. Without a free descriptor this waits, since the server would ask again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(REST_S)
            raise

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log the traceback of an unexpected error; browsers that leave a page are none."""
        if not isinstance(sys.exception(), ConnectionError):
            log.error("An unexpected error of the server; it goes on.", exc_info=True)


class _Requests(BaseHTTPRequestHandler):
    protocol_version, server_version, sys_version = "HTTP/1.1", "RoomScout", ""
    timeout = 60
    pages: Site

    def do_GET(self) -> None:
        """Answer with a page of the site."""
        if self.headers.get("Host", "").rsplit(":", 1)[0].lower() not in HOSTS:
            self._send(403, Page(b"Open this page as http://localhost or http://127.0.0.1.", TEXT))
            return
        path, _, query = self.path.partition("?")
        names = [os.fsdecode(unquote_to_bytes(name)) for name in path.removeprefix("/").split("/")]
        try:
            page = self.pages.page(names, parse_qs(query))
        except RunError as error:
            self._send(500, Page(escaped(f"{error}.").encode(), TEXT))
            return
        if page is None:
            self._send(404, Page(b"There is no such page.", TEXT))
        else:
            self._send(301 if page.moved else 200, page)

    def _send(self, status: int, page: Page) -> None:
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
        """Log a request for developers alone."""
        log.debug(format, *args)
