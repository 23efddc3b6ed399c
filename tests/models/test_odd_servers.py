"""Odd OpenAI-compatible servers: what they ask for is done, and what they send wrong costs a question at most."""

import email.utils
import gzip
import json
import logging
import socket
import threading
import time
import tracemalloc
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_servers import FaultyServer, Response, scripted
from scripted_model import random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelError, ModelOptions, Reply, ServerOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.openai.backend import OpenAIBackend
from roomscout.models.openai.endpoint import Endpoint
from roomscout.models.openai.failures import asked_delay
from roomscout.runs.reader import RunReader
from tests.conftest import RoomScans, run_in_process, trajectories
from tests.conftest import scripted as scripted_here
from tests.waiting import wait_until

KEY = "sk-5f0c-never-to-be-seen"
BUSY = b'{"error": {"message": "slow down"}}'
COMPLETION = {"choices": [{"message": {"role": "assistant", "content": "I see."}, "finish_reason": "stop"}]}


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(scripted(random_policy())) as server:
        yield server


def backend_at(server: FaultyServer, **options: Any) -> OpenAIBackend:
    return OpenAIBackend("served", ModelOptions(), ServerOptions((server.url,), **options))


def conversation(number: int = 0) -> Conversation:
    view = np.zeros((64, 96, 3), dtype=np.uint8)
    return Conversation(str(number), [Message("system", "Look."), Message.of_views(f"Question {number}", view)])


def ask(backend: OpenAIBackend) -> Reply:
    (reply,) = backend.generate([conversation()], action_format())
    return reply


def first(fault: str | Response, attempts: int = 1):
    """A fault of each turn's first attempts."""
    return lambda request: fault if request.turn >= 0 and request.attempt < attempts else None


def in_seconds(seconds: float) -> str:
    """A date in a header."""
    return email.utils.formatdate(time.time() + seconds, usegmt=True)


@pytest.mark.parametrize("asked", ["121", "100000", "1e400", "date"])
def test_a_long_delay_that_a_server_asks_for_is_waited_and_the_request_sent_again(server: FaultyServer, asked: str):
    backend = backend_at(server, longest_wait_s=0.3)
    delay = in_seconds(200) if asked == "date" else asked
    server.fault = first(Response(429, BUSY, {"Retry-After": delay, "x-should-retry": "false"}), attempts=2)
    started = time.monotonic()
    assert ask(backend).retries == 2
    assert 0.6 <= time.monotonic() - started < 60


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "3"}, 0.25),
        ({"retry-after-ms": "soon", "retry-after": "3"}, 3),
        ({"retry-after": "9" * 400}, float("inf")),
        *(({"retry-after": none}, None) for none in ("", "0", "-5", "nan", "soon", "Fri, 31 Dec 1999 23:59:59 GMT")),
        ({"retry-after": "Mon, 99 Foo 99999999999999999999 99:99:99 +9999999999999"}, None),
        ({}, None),
    ],
)
def test_the_delay_that_a_response_asks_for(headers: dict, expected: float | None):
    assert asked_delay(headers) == expected


def test_a_delay_may_end_at_a_date():
    assert asked_delay({"retry-after": in_seconds(200)}) == pytest.approx(200, abs=30)


def test_a_delay_is_logged_once_for_all_questions_that_wait(server: FaultyServer, caplog: pytest.LogCaptureFixture):
    backend = backend_at(server, longest_wait_s=0.5)
    server.fault = first(Response(429, BUSY, {"Retry-After": "300"}))
    replies = backend.generate([conversation(number) for number in range(10)], action_format())
    assert sum(reply.retries for reply in replies) == 10
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith(f"{server.url} asks for a delay of 300 s (429)") and "wait 0.5 s" in line


def test_an_error_names_the_delay_that_the_server_asked_for(server: FaultyServer):
    backend = backend_at(server, longest_wait_s=0.1, retries=1)
    server.fault = first(Response(429, BUSY, {"Retry-After": "300"}), attempts=2)
    with pytest.raises(ModelError, match="429, 2 times in a row, and asks for a delay of 300 s: slow down"):
        ask(backend)


def test_closing_ends_a_wait_at_once(server: FaultyServer):
    backend = backend_at(server)
    server.fault = first(Response(429, BUSY, {"Retry-After": "300"}), attempts=9)
    threading.Timer(0.5, backend.close).start()
    started = time.monotonic()
    with pytest.raises(ModelError, match="the run ended"):
        ask(backend)
    wait_until(lambda: all(thread.name != "request" for thread in threading.enumerate()))
    assert time.monotonic() - started < 30, "the wait that was begun takes 60 s"


def test_a_run_waits_for_a_server_that_asks_for_it_and_counts_the_retries(
    rooms: RoomScans, tmp_path: Path, server: FaultyServer
):
    undisturbed = run_in_process(rooms.config(tmp_path / "here"), scripted_here())
    policy = ModelPolicy(backend_at(server, longest_wait_s=0.05))
    server.fault = lambda request: (
        Response(503, BUSY, {"Retry-After": "300", "x-should-retry": "false"})
        if request.turn == 1 and request.attempt == 0
        else None
    )
    folder = run_in_process(rooms.config(tmp_path / "there"), policy)
    assert trajectories(folder) == trajectories(undisturbed)
    summary = RunReader(folder).summary
    failed = sum(request.turn == 1 and request.attempt == 0 for request in server.requests)
    assert failed and summary is not None and summary["cost"]["retries"] == failed


def reported(error: object, **choice: object) -> Response:
    """A failure with status 200: at the top, or in a choice."""
    body = {"choices": [{"message": {"content": ""}, "error": error, **choice}]} if choice else {"error": error}
    return Response(200, json.dumps(body).encode())


@pytest.mark.parametrize(
    "failure",
    [
        reported({"message": "upstream overloaded", "code": 502}),
        reported({"message": "upstream overloaded", "code": "503"}),
        reported({"message": "upstream overloaded", "status": 429, "code": "rate_limit"}),
        reported({"message": "upstream overloaded"}),
        reported("upstream overloaded"),
        reported({"message": "upstream overloaded", "code": 502}, finish_reason="error"),
        reported(None, finish_reason="error"),
    ],
)
def test_a_failure_that_is_reported_with_status_200_is_retried(server: FaultyServer, failure: Response):
    backend = backend_at(server)
    server.fault = first(failure)
    assert ask(backend).retries == 1


@pytest.mark.parametrize(
    ("failure", "words", "requests"),
    [
        (
            reported({"message": "overloaded", "code": 502}),
            "failed .502, 2 times in a row: overloaded.: once it works",
            2,
        ),
        (reported({"message": "wait", "code": "429"}), "429, 2 times in a row: wait.: ask fewer questions", 2),
        (
            reported({"message": "too long", "code": 400}),
            "finds this conversation too long .400: too long.: .*--image-size",
            1,
        ),
        (reported({"message": "hm", "code": 200}), "failed .502, 2 times in a row: hm", 2),
        (reported({"message": "cut", "code": 503}, finish_reason="error"), "failed .503, 2 times in a row: cut", 2),
    ],
)
def test_a_failure_that_is_reported_with_status_200_has_the_advice_of_the_status_it_names(
    server: FaultyServer, failure: Response, words: str, requests: int
):
    backend = backend_at(server, retries=1)
    server.fault = first(failure, attempts=9)
    with pytest.raises(ModelError, match=words):
        ask(backend)
    assert sum(request.turn == 0 for request in server.requests) == requests


DEEP = b'{"choices": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (Response(200, DEEP), "not a JSON object"),
        (Response(200, b'{"choices": "caf\xe9"}'), "not a JSON object"),
        (Response(200, b'{"choices": ' + b"9" * 5000 + b"}"), "not a JSON object"),
        (Response(200, b"{", {"Content-Type": "application/json; charset=hex"}), "not a JSON object"),
        (Response(200, b"not gzip", {"Content-Encoding": "gzip"}), "cannot be decompressed"),
        (Response(200, b"not deflate", {"Content-Encoding": "deflate"}), "cannot be decompressed"),
        (Response(200, json.dumps({"choices": [{"finish_reason": [[]], "message": {}}]}).encode()), "without text"),
        (Response(400, DEEP, {"Content-Type": "application/json; charset=hex"}), "refuses requests"),
        (Response(400, b"not gzip", {"Content-Encoding": "gzip"}), "refuses requests"),
    ],
)
def test_a_response_that_cannot_be_read_fails_its_question_alone(server: FaultyServer, response: Response, words: str):
    backend = backend_at(server)
    server.fault = first(response, attempts=9)
    with pytest.raises(ModelError, match=words):
        ask(backend)
    server.fault = lambda request: None
    assert ask(backend).text


def test_the_request_that_checks_schemas_survives_deep_json(server: FaultyServer):
    server.answering = lambda body: json.dumps(
        {"choices": [{"message": {"content": DEEP.decode()}, "finish_reason": "stop"}]}
    ).encode()
    with pytest.raises(ModelError, match="leave out --constrained"):
        backend_at(server, constrained=True)


@pytest.mark.parametrize("fault", ["headers", "interim"])
def test_a_request_ends_in_time_though_its_response_never_begins(server: FaultyServer, fault: str):
    backend = backend_at(server, timeout_s=1.0, retries=0)
    server.fault = first(fault)
    started = time.monotonic()
    with pytest.raises(ModelError, match=r"did not answer within 1 s"):
        ask(backend)
    assert time.monotonic() - started < 60, "the response never ends"


def test_a_request_ends_in_time_though_the_server_reads_it_slowly():
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        listening.bind(("127.0.0.1", 0))
        listening.listen()

        def read_slowly() -> None:
            connection, _ = listening.accept()
            with connection:
                while connection.recv(1 << 16):
                    time.sleep(0.1)

        reader = threading.Thread(target=read_slowly, daemon=True)
        reader.start()
        endpoint = Endpoint(
            f"http://127.0.0.1:{listening.getsockname()[1]}/v1", "served", ServerOptions((), timeout_s=1, retries=0)
        )
        started = time.monotonic()
        with pytest.raises(ModelError, match="did not answer within 1 s"):
            endpoint.post("/chat/completions", bytes(30 << 20))
        assert time.monotonic() - started < 30, "reading all of it takes 48 s"


LARGE = b" " * (64 << 20)


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (gzip.compress(LARGE, 1), {"Content-Encoding": "gzip"}),
        (zlib.compress(LARGE, 1), {"Content-Encoding": "deflate"}),
        (gzip.compress(b"{}") + LARGE[: 4 << 20], {"Content-Encoding": "gzip"}),
        (LARGE[: 4 << 20], {}),
    ],
    ids=["gzip", "deflate", "behind gzip", "plain"],
)
def test_a_response_is_read_up_to_a_limit(server: FaultyServer, body: bytes, headers: dict[str, str]):
    backend = backend_at(server, largest_response=1 << 20)
    server.fault = first(Response(200, body, headers), attempts=9)
    tracemalloc.start()
    try:
        with pytest.raises(ModelError, match="sent a response of more than 1 MiB"):
            ask(backend)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20
    assert sum(request.turn == 0 for request in server.requests) == 1


@pytest.mark.parametrize(
    ("sent", "read"), [("7", 7), ("1000000000", 10**9)]
    + [(odd, 0) for odd in ("1000000001", "1" + 4000 * "0", "-5", "true", '"12"', "1e400", "12.0", "null", "[1]")],
)  # fmt: skip
def test_only_plausible_token_counts_are_read(server: FaultyServer, sent: str, read: int):
    backend = backend_at(server)
    usage = '{"prompt_tokens": N, "completion_tokens": N, "prompt_tokens_details": {"cached_tokens": N}}'
    body = json.dumps(COMPLETION)[:-1] + ', "usage": ' + usage.replace("N", sent) + "}"
    server.answering = lambda request: body.encode()
    reply = ask(backend)
    assert (reply.prompt_tokens, reply.generated_tokens, reply.reused_tokens) == (read, read, read)


def test_a_key_that_a_server_echoes_in_replies_and_its_model_name_is_shown_nowhere(
    rooms: RoomScans, tmp_path: Path, server: FaultyServer, caplog: pytest.LogCaptureFixture
):
    action = f'Your key is {KEY}. {{"answer": "Bearer {KEY}", "done": true}}'
    server.answering = lambda body: json.dumps(
        {
            "model": f"Bearer {KEY}",
            "choices": [{"message": {"content": action, "refusal": KEY}, "finish_reason": "stop"}],
        }
    ).encode()
    with caplog.at_level(logging.DEBUG):
        policy = ModelPolicy(backend_at(server, key=KEY))
        folder = run_in_process(rooms.config(tmp_path, num_questions=2, steps=1), policy)
    replies = [turn.reply.text for turn in RunReader(folder).all_turns()]
    assert replies and all("Your key is <API key>." in text for text in replies)
    assert "answers as Bearer <API key>" in caplog.text
    assert KEY not in caplog.text
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize("key", ["a", "x", "none", "EMPTY"])
def test_a_dummy_key_leaves_messages_as_they_are(server: FaultyServer, key: str):
    server.fault = lambda request: f"404:a model named {key} is not there"
    with pytest.raises(ModelError) as caught:
        backend_at(server, key=key)
    assert f"does not have served (404: a model named {key} is not there): give the name" in str(caught.value)


def test_a_key_is_searched_only_in_what_a_server_says(server: FaultyServer):
    server.fault = lambda request: "404:nothing here for {key}"
    with pytest.raises(ModelError, match=r"404: nothing here for Bearer <API key>.: .*--base-url, which") as caught:
        backend_at(server, key="--base-url")
    assert str(caught.value).startswith(server.url)


def test_what_a_server_says_is_quoted_as_one_printable_line(server: FaultyServer, caplog: pytest.LogCaptureFixture):
    name = "evil\x1b[2J\x1b]0;pwned\x07\nERROR forged" + 5000 * "y"
    server.answering = lambda body: json.dumps(COMPLETION | {"model": name}).encode()
    with caplog.at_level(logging.DEBUG):
        backend_at(server)
    lines = [record.message for record in caplog.records if "answers as" in record.message]
    assert len(lines) == 2 and all(line.isprintable() and len(line) < 500 for line in lines)
