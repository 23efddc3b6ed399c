"""Odd OpenAI-compatible servers: what the check of a server finds, and that odd responses cost a question at most."""

import email.utils
import gzip
import json
import logging
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_servers import FaultyServer, Request, Response, scripted
from scripted_model import random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.models import EngineLost, ModelError, ModelOptions, Reply, ServerOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.openai import endpoint
from roomscout.models.openai.backend import OpenAIBackend
from roomscout.models.openai.endpoint import Endpoint
from roomscout.runs.reader import RunReader
from tests.conftest import RoomScans, run_in_process

KEY = "sk-5f0c-never-to-be-seen"
TLS = Path(__file__).parents[1] / "fixtures" / "loopback_tls.pem"
"""A certificate of 127.0.0.1 and localhost that signs itself, valid until 2126, and its key."""
FAR = "http://roomscout.invalid/v1"
BUSY = b'{"error": {"message": "slow down"}}'
COMPLETION = {"choices": [{"message": {"role": "assistant", "content": "I see."}, "finish_reason": "stop"}]}
DEEP = b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(scripted(random_policy())) as server:
        yield server


def backend_at(server: FaultyServer, **options: Any) -> OpenAIBackend:
    return OpenAIBackend("served", ModelOptions(), ServerOptions((server.url,), **options))


def refusal(server: FaultyServer, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        backend_at(server, **options)
    return str(caught.value)


def conversation(text: str = "Where?") -> Conversation:
    view = np.zeros((64, 96, 3), dtype=np.uint8)
    return Conversation("q", [Message("system", "Look."), Message.of_views(text, view)])


def ask(backend: OpenAIBackend, chat: Conversation | None = None) -> Reply:
    (reply,) = backend.generate([chat or conversation()], action_format())
    return reply


def first(fault: str | Response, attempts: int = 1) -> Callable[[Request], str | Response | None]:
    """A fault of each turn's first attempts."""
    return lambda request: fault if request.turn >= 0 and request.attempt < attempts else None


def only_if(refuses: Callable[[Request], bool], said: str = "Nope.") -> Callable[[Request], str | None]:
    """A fault that refuses some requests with these words."""
    return lambda request: f"400:{said}" if refuses(request) else None


def images_in(request: Request) -> int:
    return json.dumps(request.body).count("data:image/png")


class TestCheck:
    def test_it_has_the_form_of_a_last_turn(self, server: FaultyServer):
        backend_at(server, images=3)
        (request,) = server.requests
        roles = [message["role"] for message in request.body["messages"]]
        assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
        assert images_in(request) == 3

    @pytest.mark.parametrize("most", [1, 8])
    def test_it_finds_a_server_that_takes_fewer_images_than_a_question_has(self, server: FaultyServer, most: int):
        server.fault = only_if(lambda request: images_in(request) > most)
        said = refusal(server, images=9)
        assert said.endswith("refuses a conversation with 9 images, as many as a question may have (400: Nope.)")
        backend_at(server, images=most)

    def test_it_says_what_the_server_says_of_a_wrong_name(self, server: FaultyServer):
        server.fault = lambda request: "404:The model `served` does not exist."
        assert refusal(server).endswith("refuses the request (404: The model `served` does not exist.)")


class TestDelays:
    @pytest.mark.parametrize("asked", ["1", "date"])
    def test_a_delay_that_a_server_asks_for_is_waited(self, server: FaultyServer, asked: str):
        backend = backend_at(server)
        delay = email.utils.formatdate(time.time() + 2, usegmt=True) if asked == "date" else asked
        server.fault = first(Response(429, BUSY, {"Retry-After": delay}))
        started = time.monotonic()
        assert ask(backend).retries == 1
        assert 0.9 <= time.monotonic() - started < 60

    def test_closing_ends_a_wait_at_once(self, server: FaultyServer):
        backend = backend_at(server)
        server.fault = first(Response(429, BUSY, {"Retry-After": "99"}), attempts=9)
        threading.Timer(0.5, backend.close).start()
        started = time.monotonic()
        with pytest.raises(EngineLost, match="the run ended"):
            ask(backend)
        assert time.monotonic() - started < 30


class TestResponses:
    @pytest.mark.parametrize(
        ("response", "words"),
        [
            (Response(200, DEEP), "no JSON object"),
            (Response(200, b'{"choices": "caf\xe9"}'), "no JSON object"),
            (Response(200, b'{"choices": ' + b"9" * 5000 + b"}"), "no JSON object"),
            (Response(200, b"{", {"Content-Type": "application/json; charset=hex"}), "no JSON object"),
            (Response(200, b'{"choices": [{"finish_reason": [[]], "message": {}}]}'), "ended a reply"),
            (Response(400, DEEP, {"Content-Type": "application/json; charset=hex"}), "400"),
        ],
    )
    def test_one_that_cannot_be_read_fails_its_question_alone_while_others_can(
        self, server: FaultyServer, response: Response, words: str
    ):
        backend = backend_at(server)
        asked = 0

        def one_fails(request: Request) -> Response | None:
            nonlocal asked
            if request.conversation.endswith("Why?"):
                if asked:
                    ask(backend)  # another one, which is answered
                asked += 1
                return response
            return None

        server.fault = one_fails
        with pytest.raises(ModelError, match=words):
            ask(backend, conversation("Why?"))
        assert asked == (3 if "no JSON" in words else 1)

    @pytest.mark.parametrize(
        "response",
        [
            Response(200, b'{"error": {"message": "upstream overloaded", "code": 502}}'),
            Response(200, b"not gzip", {"Content-Encoding": "gzip"}),
            Response(200, b"<html>Down for maintenance</html>"),
        ],
    )
    def test_what_is_about_the_server_is_no_failure_of_a_question(self, server: FaultyServer, response: Response):
        server.fault = first(response)
        assert ask(backend_at(server)).retries == 1
        server.fault = first(response, attempts=9)
        with pytest.raises(EngineLost, match="a run waits no longer"):
            ask(backend_at(server, timeout_s=0.2), conversation("Where else?"))

    @pytest.mark.parametrize(
        ("status", "body"),
        [
            (200, {"choices": [{"message": {"content": "1"}, "finish_reason": "abort"}]}),
            (200, {"choices": [{"index": 0, "error": {"code": 429, "message": "Rate limit exceeded upstream"}}]}),
            (200, {"detail": "Model is overloaded"}),
            (200, {"code": 500, "message": "internal"}),
            (400, {"error": {"message": "The model is overloaded. Please try again later."}}),
            (425, {"error": {"message": "too early"}}),
            (498, {"error": {"message": "Flex tier capacity exceeded"}}),
            (529, {"error": {"message": "busy"}}),
        ],
    )
    def test_what_passes_is_asked_for_again(self, server: FaultyServer, status: int, body: dict[str, Any]):
        backend = backend_at(server)
        server.fault = first(Response(status, json.dumps(body).encode(), {"retry-after-ms": "20"}))
        reply = ask(backend)
        assert reply.text and reply.retries == 1

    def test_a_reply_at_its_limit_is_cut_off_however_the_server_spells_it(self, server: FaultyServer):
        backend, message = backend_at(server), {"role": "assistant", "content": "I see"}
        for end in ({"finish_reason": "MAX_TOKENS"}, {"finish_details": {"type": "max_tokens"}}):
            server.answering = lambda body, end=end: json.dumps({"choices": [{"message": message, **end}]}).encode()
            assert ask(backend).finish_reason == "length"

    def test_no_more_tokens_are_reused_than_read(self, server: FaultyServer):
        usage = {"prompt_tokens": 10, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 100_000}}
        backend = backend_at(server)
        server.answering = lambda body: json.dumps(COMPLETION | {"usage": usage}).encode()
        assert ask(backend).reused_tokens == 10

    @pytest.mark.parametrize("fault", ["headers", "interim"])
    def test_a_request_ends_in_time_though_its_response_never_begins(self, server: FaultyServer, fault: str):
        backend = backend_at(server, timeout_s=1.0)
        server.fault = first(fault)
        started = time.monotonic()
        assert ask(backend).retries == 1
        assert time.monotonic() - started < 60, "the response never ends"

    @pytest.mark.parametrize("encoding", ["gzip", "deflate", None])
    def test_a_response_is_read_up_to_a_limit(
        self, server: FaultyServer, monkeypatch: pytest.MonkeyPatch, encoding: str | None
    ):
        monkeypatch.setattr(endpoint, "LARGEST_RESPONSE", 1 << 20)
        large = b" " * (64 << 20)
        body = {"gzip": gzip.compress(large, 1), "deflate": zlib.compress(large, 1), None: large[: 4 << 20]}[encoding]
        backend = backend_at(server)
        server.fault = first(Response(200, body, {"Content-Encoding": encoding} if encoding else {}), attempts=9)
        with pytest.raises(ModelError, match="sent a response of more than 1 MiB"):
            ask(backend)
        assert sum(request.turn == 0 for request in server.requests) == 1

    @pytest.mark.parametrize(
        ("sent", "read"),
        [("7", 7), ("1000000000", 10**9), ("12.0", 12)]
        + [(odd, 0) for odd in ("1000000001", "1" + 4000 * "0", "-5", "true", '"12"', "1e400", "12.5", "null", "[1]")],
    )
    def test_only_plausible_token_counts_are_read(self, server: FaultyServer, sent: str, read: int):
        backend = backend_at(server)
        usage = '{"prompt_tokens": N, "completion_tokens": N, "prompt_tokens_details": {"cached_tokens": N}}'
        body = json.dumps(COMPLETION)[:-1] + ', "usage": ' + usage.replace("N", sent) + "}"
        server.answering = lambda request: body.encode()
        reply = ask(backend)
        assert (reply.prompt_tokens, reply.generated_tokens, reply.reused_tokens) == (read, read, read)


class TestQuotes:
    def test_a_key_that_a_server_echoes_is_shown_nowhere(
        self, rooms: RoomScans, tmp_path: Path, server: FaultyServer, caplog: pytest.LogCaptureFixture
    ):
        action = f'Your key is {KEY}. {{"answer": "Bearer {KEY}", "done": true}}'
        choice = {"message": {"content": action, "refusal": KEY}, "finish_reason": "stop"}
        server.answering = lambda body: json.dumps({"model": f"Bearer {KEY}", "choices": [choice]}).encode()
        with caplog.at_level(logging.DEBUG):
            policy = ModelPolicy(backend_at(server, key=KEY))
            folder = run_in_process(rooms.config(tmp_path, num_questions=2, steps=1), policy)
        replies = [turn.reply.text for turn in RunReader(folder).all_turns()]
        assert replies and all("Your key is <API key>." in text for text in replies)
        assert "answers as Bearer <API key>" in caplog.text
        assert KEY not in caplog.text
        assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]

    def test_what_a_server_says_is_one_printable_line(self, server: FaultyServer, caplog: pytest.LogCaptureFixture):
        name = "evil\x1b[2J\x1b]0;pwned\x07\nERROR forged" + 5000 * "y"
        server.answering = lambda body: json.dumps(COMPLETION | {"model": name}).encode()
        with caplog.at_level(logging.DEBUG):
            backend_at(server)
        lines = [record.message for record in caplog.records if "answers as" in record.message]
        assert len(lines) == 2 and all(line.isprintable() and len(line) < 500 for line in lines)


class TestNetwork:
    @pytest.fixture(autouse=True)
    def plain_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for scheme in ("http", "https", "all", "no"):
            monkeypatch.delenv(f"{scheme}_proxy", raising=False)
            monkeypatch.delenv(f"{scheme.upper()}_PROXY", raising=False)
        for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
            monkeypatch.delenv(name, raising=False)

    @pytest.mark.parametrize(
        ("variable", "value", "words"),
        [
            ("ALL_PROXY", "ftp://proxy:21", "is not a proxy's URL"),
            ("https_proxy", "http://user:pa#ss-word@host:3128", "is not a proxy's URL"),
            ("SSL_CERT_FILE", "/nowhere.pem", "the certificates of SSL_CERT_FILE or SSL_CERT_DIR cannot be used"),
        ],
    )
    def test_an_environment_that_cannot_be_used_is_one_sentence(
        self, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
    ):
        monkeypatch.setenv(variable, value)
        with pytest.raises(ModelError, match=words) as caught:
            Endpoint(FAR, "served", ServerOptions(()))
        assert "pa#" not in str(caught.value) and "ss-word" not in str(caught.value)

    def test_the_proxy_of_the_environment_is_used_but_for_loopback_and_no_proxy(
        self, monkeypatch: pytest.MonkeyPatch, server: FaultyServer
    ):
        monkeypatch.setenv("HTTP_PROXY", server.url.removesuffix("/v1"))
        OpenAIBackend("served", ModelOptions(), ServerOptions((FAR,)))
        assert [request.path for request in server.requests] == ["http://roomscout.invalid/v1/chat/completions"]
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
        backend_at(server)
        monkeypatch.setenv("NO_PROXY", "roomscout.invalid")
        with pytest.raises(ModelError, match="did not answer"):
            Endpoint(FAR, "served", ServerOptions(())).post("/x", {})

    def test_certificates_are_checked_and_may_be_named(self, monkeypatch: pytest.MonkeyPatch, server: FaultyServer):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(TLS)
        http: ThreadingHTTPServer = server._server
        http.socket = context.wrap_socket(http.socket, server_side=True)
        http.handle_error = lambda *_: None
        options = ServerOptions((server.url.replace("http:", "https:"),))
        with pytest.raises(ModelError, match="self-signed certificate"):
            OpenAIBackend("served", ModelOptions(), options)
        monkeypatch.setenv("SSL_CERT_FILE", str(TLS))
        OpenAIBackend("served", ModelOptions(), options)
