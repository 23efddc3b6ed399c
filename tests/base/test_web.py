"""The server of pages, over real connections to this computer."""

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from roomscout.base.web import LARGEST_BODY, Page, Site, server_on


class Echo(Site):
    takes_posts = True

    def page(self, path: list[str], query: dict[str, str]) -> Page | None:
        return Page(b"here") if path == [""] else None

    def post(self, path: list[str], query: dict[str, str], body: Any) -> Page | None:
        return Page.of_json({"got": body}, 422)


@contextmanager
def served(**options: Any) -> Iterator[int]:
    server = server_on(0, Echo(), **options)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def asked(port: int, path: str, method: str = "GET", body: str | None = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    reply = connection.getresponse()
    found = reply.status, reply.read().decode()
    connection.close()
    return found


JSON = {"Content_Type": "application/json"}


def test_what_a_page_posts_is_handed_over_as_json_only():
    with served() as port:
        assert asked(port, "/", "POST", '{"a": 1}', **JSON) == (422, '{"got":{"a":1}}')
        assert asked(port, "/", "POST", '{"a": 1}', Content_Type="text/plain")[0] == 400
        assert asked(port, "/", "POST", "{", **JSON)[0] == 400
        assert asked(port, "/", "POST", "[" * 9000, **JSON)[0] == 400
        assert asked(port, "/", "POST", json.dumps("x" * LARGEST_BODY), **JSON)[0] == 400
        assert asked(port, "/", "POST", "{}", Content_Length="9" * 5000, **JSON)[0] == 400
        assert asked(port, "/", "POST", "{}", Host="elsewhere.invalid", **JSON)[0] == 403


def test_a_token_is_needed_where_there_is_one_and_any_host_then_goes():
    with served(host="0.0.0.0", tokens=["secret", "other"]) as port:
        assert asked(port, "/")[0] == asked(port, "/?token=wrong")[0] == asked(port, "/?token=%C3%BC")[0] == 403
        assert asked(port, "/", "POST", "{}", **JSON)[0] == 403
        assert asked(port, "/?token=secret", Host="machine.invalid") == (200, "here")
