"""Models behind OpenAI-compatible servers, including servers that fail or take fewer parameters."""

import base64
import json
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier

import numpy as np
import pytest
from faulty_servers import FaultyServer, Request, Response, forwarded, no_fault, scripted, sometimes
from planned import run_settings
from scripted_model import ScriptedBackend, random_policy

from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.policies.replies import action_format
from roomscout.base.errors import ConfigError
from roomscout.edge.resolve import resolve
from roomscout.edge.resuming import saved_settings
from roomscout.edge.settings import Settings
from roomscout.models import EXPLORER, EngineLost, ModelError, ModelOptions, ServerOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.engines import make_backend
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId
from tests.conftest import RoomScans, only_run, results, run_in_process, run_main, trajectories
from tests.waiting import PATIENCE_S, wait_until

KEY = "sk-5f0c-never-to-be-seen"


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of `transformers serve` with the explorer."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        sys.executable, "-m", "transformers.cli.transformers", "serve", str(EXPLORER), "--host", "127.0.0.1",
        "--port", str(port), "--device", "cpu", "--dtype", "float32",
    ]  # fmt: skip
    log = (tmp_path_factory.mktemp("serve") / "log").open("w+")
    server = subprocess.Popen(
        command, stdout=log, stderr=log, env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    )
    try:
        wait_until(lambda: server.poll() is not None or not socket.socket().connect_ex(("127.0.0.1", port)))
        assert server.poll() is None, Path(log.name).read_text()
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.kill()
        server.wait()
        log.close()


@pytest.fixture
def script() -> Iterator[FaultyServer]:
    """A server whose replies come from the script that the tests of the loop use."""
    with FaultyServer(scripted(random_policy())) as server:
        yield server


@pytest.fixture(scope="module")
def undisturbed(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the same script in this process."""
    config = rooms.config(tmp_path_factory.mktemp("here"))
    return run_in_process(
        config,
        ModelPolicy(ScriptedBackend(random_policy()), prompts=Prompts()),
    )


def behind(rooms: RoomScans, log_root: Path, *servers: FaultyServer, **changes) -> Settings:
    """The configuration of a run over the same questions whose model is behind servers."""
    changes = {"model": "served", "engine": "openai", "base_url": tuple(each.url for each in servers)} | changes
    return rooms.config(log_root, **changes)


def backend_at(url: str, **options):
    return make_backend("served", ModelOptions(), ServerOptions((url,), **options))


def conversation(text: str = "What do you see?") -> Conversation:
    view = np.random.default_rng(0).integers(0, 256, (64, 96, 3), dtype=np.uint8)
    return Conversation("q", [Message("system", "Look."), Message.of_views(text, view)])


@pytest.mark.slow
@pytest.mark.usefixtures("one_thread")
def test_a_server_of_the_same_weights_gives_the_same_turns_through_faults(rooms: RoomScans, tmp_path: Path, serve: str):
    changes = {"model": "embedded", "num_questions": 2, "steps": 2, "max_new_tokens": 24}
    here = run_in_process(rooms.config(tmp_path / "here", batch_size=2, **changes))
    kinds = ("429", "500", "503", "truncated", "drip")
    with FaultyServer(forwarded(serve), sometimes(0.4, kinds=kinds)) as proxy:
        there = run_in_process(behind(rooms, tmp_path / "there", proxy, **changes))
    assert trajectories(there) == trajectories(here)
    assert len(proxy.requests) > 7, "there were faults"


@pytest.mark.slow
def test_no_question_is_lost_or_asked_twice_where_a_third_of_all_requests_fail(
    rooms: RoomScans, undisturbed: Path, tmp_path: Path
):
    with FaultyServer(scripted(random_policy()), sometimes(1 / 3), hang_s=0.3) as server:
        folder = run_in_process(behind(rooms, tmp_path, server))
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)
    replies = [turn.reply for turn in RunReader(folder).all_turns()]
    assert sum(reply.retries for reply in replies) > 3
    asked = sum(request.turn >= 0 for request in server.requests)
    assert asked == len(replies) + sum(reply.retries for reply in replies)
    assert all((reply.prompt_tokens, reply.reused_tokens, reply.generated_tokens) == (100, 60, 10) for reply in replies)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("400", r"400: This model's maximum context length is 4096 tokens.\)$"),
        ("403:Your input was flagged by moderation.", "403: Your input was flagged"),
        ("413", "413: .*fewer steps"),
        ("422", "422: Unprocessable."),
        ("no choices", "no choices"),
        ("null", "without text"),
    ],
)
def test_what_a_server_says_about_one_request_fails_its_question_alone(
    rooms: RoomScans, undisturbed: Path, script: FaultyServer, tmp_path: Path, fault: str, words: str
):
    unlucky = next(row.question for row in RunReader(undisturbed).rows if row.turns > 1)
    script.fault = lambda request: fault if unlucky in request.conversation and request.turn == 1 else None
    folder = run_in_process(behind(rooms, tmp_path, script, ids=tuple(str(row["id"]) for row in rooms.rows)[:4]))
    failed = [row for row in RunReader(folder).rows if row.failed]
    expected = [row for row in results(undisturbed)[:4] if unlucky not in row["question"]]
    assert [row for row in results(folder) if row["status"] != "failed"] == expected
    assert failed and all(unlucky in row.question and row.failed_part == "model" for row in failed)
    assert all(re.search(words, row.error) for row in failed)
    assert sum(unlucky in each.conversation and each.turn == 1 for each in script.requests) == len(failed)


@pytest.mark.parametrize("fault", ["401", "403", "404", "html", "stream", "no choices"])
def test_what_no_question_can_survive_is_found_before_the_first(script: FaultyServer, fault: str):
    script.fault = lambda request: fault
    with pytest.raises(ModelError, match=script.url):
        backend_at(script.url)
    assert all(request.turn == -1 for request in script.requests)


def test_a_refused_key_ends_the_command_and_is_shown_nowhere(
    rooms: RoomScans, tmp_path: Path, script: FaultyServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ROOM_KEY", KEY)
    script.fault = lambda request: "401"
    flags = ["--engine", "openai", "--base-url", script.url, "--model", "served", "--api-key-env", "ROOM_KEY"]
    ended = run_main(rooms.flags(tmp_path, *flags))
    assert (ended.returncode, list(tmp_path.iterdir())) == (2, [])
    assert "set the environment variable ROOM_KEY" in ended.stderr and "<API key>" in ended.stderr
    assert KEY not in ended.stdout + ended.stderr
    assert {request.key for request in script.requests} == {f"Bearer {KEY}"}


def test_a_key_is_in_no_log_and_no_file_even_at_debug_level(
    rooms: RoomScans, tmp_path: Path, script: FaultyServer, caplog: pytest.LogCaptureFixture, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    draw = sometimes(0.2, kinds=("400:Not with {key}", "500", "truncated", "html", "null"))
    script.fault = lambda request: draw(request) if request.turn >= 0 else None
    with caplog.at_level(logging.DEBUG):
        folder = run_in_process(behind(rooms, tmp_path, script))
    assert {request.key for request in script.requests} == {f"Bearer {KEY}"}
    assert any(row.failed for row in RunReader(folder).rows)
    assert KEY not in caplog.text
    assert not [path for path in folder.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


@pytest.mark.parametrize("key", [r"sk-(.*)+[a-z]$^|\d{3}", 'sk-"quoted"\\end', "sk-" + 200 * "0123456789"])
def test_a_key_of_any_characters_is_removed_from_what_a_server_says(script: FaultyServer, key: str):
    for padding in (0, 290, 296):
        said = padding * "x" + " {key}"  # from 290 on, the key goes beyond what an error quotes
        for fault in ("400:" + said, "401:" + said, "500:" + said):
            script.fault = lambda request, fault=fault: fault
            with pytest.raises(ModelError) as caught:
                backend_at(script.url, key=key)
            said_of_it = "".join(traceback.format_exception(caught.value)) + repr(vars(caught.value))
            assert key[:6] not in said_of_it and key[-6:] not in said_of_it


def test_a_server_that_is_not_there_is_named_at_once():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(ModelError, match=rf"127.0.0.1:{port}/v1 did not answer.*refused"):
        backend_at(f"http://127.0.0.1:{port}/v1")
    assert time.monotonic() - started < 20, "a run would wait for 600 s"


@pytest.mark.parametrize(
    ("fault", "asked"),
    [("hang", 3), (Response(429, b"{}", {"Retry-After": "99"}), 1)],  # after the one that is asked to wait, all wait
    ids=["hang", "wait"],
)
def test_an_interrupt_ends_requests_in_flight_and_the_run_can_be_resumed(
    rooms: RoomScans, undisturbed: Path, tmp_path: Path, fault: str | Response, asked: int
):
    with FaultyServer(scripted(random_policy()), lambda each: fault if each.turn == 2 else None, hang_s=99) as server:
        flags = ["--engine", "openai", "--base-url", server.url, "--model", "served"]
        run = subprocess.Popen(rooms.command(tmp_path, *flags), stdout=subprocess.PIPE, text=True)
        wait_until(lambda: sum(request.turn == 2 for request in server.requests) >= asked)
        run.send_signal(signal.SIGINT)
        shown, _ = run.communicate(timeout=60)
        assert run.returncode == 130 and "To resume:" in shown
        server.fault = no_fault
        folder = only_run(tmp_path)
        assert not any(row.failed for row in RunReader(folder).rows)
        assert run_settings(saved_settings(RunReader(folder)), folder).status == 0
    assert results(folder) == results(undisturbed)
    assert trajectories(folder) == trajectories(undisturbed)


def test_every_question_stays_at_one_of_several_urls(rooms: RoomScans, tmp_path: Path, undisturbed: Path):
    with FaultyServer(scripted(random_policy())) as one, FaultyServer(scripted(random_policy())) as other:
        folder = run_in_process(behind(rooms, tmp_path, one, other))
    assert trajectories(folder) == trajectories(undisturbed)
    first, second = ({each.conversation for each in server.requests if each.turn >= 0} for server in (one, other))
    assert first and second and not first & second


def test_questions_move_to_another_url_when_theirs_stops_in_the_middle(
    rooms: RoomScans, tmp_path: Path, undisturbed: Path
):
    with FaultyServer(scripted(random_policy())) as one, FaultyServer(scripted(random_policy())) as stopping:
        stopping.fault = lambda request: "503" if request.turn > 0 else None
        folder = run_in_process(behind(rooms, tmp_path, one, stopping))
    assert trajectories(folder) == trajectories(undisturbed)
    moved = {each.conversation for each in stopping.requests if each.turn > 0}
    assert moved and moved <= {each.conversation for each in one.requests}
    asked = sum(request.turn >= 0 for server in (one, stopping) for request in server.requests)
    replies = [turn.reply for turn in RunReader(folder).all_turns()]
    assert asked == len(replies) + sum(reply.retries for reply in replies)


def test_the_engine_is_lost_only_where_no_url_answers(script: FaultyServer):
    chats = [Conversation(str(number), conversation().messages) for number in range(4)]
    with FaultyServer(scripted(random_policy())) as other:
        backend = make_backend("served", ModelOptions(), ServerOptions((script.url, other.url), timeout_s=0.6))
        script.fault = lambda request: "401"
        assert {reply.retries for reply in backend.generate(chats, action_format())} == {0, 1}
        other.fault = lambda request: "truncated"
        with pytest.raises(EngineLost, match=f"{other.url} did not answer .*; a run waits no longer than this"):
            backend.generate(chats, action_format())


def test_as_many_questions_are_in_flight_as_concurrency_says(rooms: RoomScans, tmp_path: Path):
    together, answer = Barrier(5), scripted(random_policy())

    def when_five_wait(body: bytes) -> bytes:
        if b'"system"' in body and body.count(b"data:image/png") == 1:
            together.wait(PATIENCE_S)
        return answer(body)

    with FaultyServer(when_five_wait) as server:
        config = behind(rooms, tmp_path, server, concurrency=5, num_questions=5, steps=1)
        assert run_settings(config).status == 0


@pytest.mark.parametrize("concurrency", [1, 3, 200])
def test_any_number_of_questions_in_flight_gives_the_same_turns(
    rooms: RoomScans, undisturbed: Path, tmp_path: Path, script: FaultyServer, concurrency: int
):
    folder = run_in_process(behind(rooms, tmp_path, script, concurrency=concurrency))
    assert trajectories(folder) == trajectories(undisturbed)


def test_a_server_gets_the_pictures_of_the_run_folder_and_the_settings(
    rooms: RoomScans, tmp_path: Path, script: FaultyServer
):
    given = {"temperature": 0.5, "generation": {"top_p": 0.8, "top_k": 20}}
    config = behind(rooms, tmp_path, script, num_questions=1, max_new_tokens=77, **given)
    folder = run_in_process(config)
    last = max(script.requests, key=lambda request: request.turn)
    parts = [part for each in last.body["messages"] if each["role"] == "user" for part in each["content"]]
    sent = [part["image_url"]["url"].partition(",")[2] for part in parts if part["type"] == "image_url"]
    assert [part["type"] for part in parts[:2]] == ["image_url", "text"]
    written = [path.read_bytes() for path in sorted(folder.glob("q001/render_*.png"))]
    assert [base64.b64decode(image) for image in sent] == written
    assert last.body.items() >= {"temperature": 0.5, "max_tokens": 77, "top_p": 0.8, "top_k": 20}.items()
    seeds = [request.body["seed"] for request in script.requests if request.turn >= 0]
    assert len(set(seeds)) == len(seeds), "each turn draws its own"


NO_TEMPERATURE = "400:Unsupported value: 'temperature' does not support 0 with this model. Only 1 is supported."


def test_a_server_may_want_another_name_for_the_limit_and_no_seed(script: FaultyServer):
    def picky(request: Request) -> str | None:
        if "max_tokens" in request.body:
            return "400:Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        return "422:Extra inputs are not permitted: seed" if "seed" in request.body else None

    script.fault = picky
    (reply,) = backend_at(script.url).generate([conversation()], action_format())
    assert script.requests[-1].body.keys() == {"model", "messages", "stream", "temperature", "max_completion_tokens"}
    assert reply.dropped == ("seed",)


def test_a_temperature_of_0_that_a_server_refuses_is_left_out_and_recorded(
    rooms: RoomScans, tmp_path: Path, script: FaultyServer, caplog: pytest.LogCaptureFixture
):
    script.fault = lambda request: NO_TEMPERATURE if "temperature" in request.body else None
    folder = run_in_process(behind(rooms, tmp_path, script, num_questions=2))
    assert sum("refuses temperature 0" in record.message for record in caplog.records) == 1
    replies = [turn.reply for turn in RunReader(folder).all_turns()]
    assert replies and all(reply.dropped == ("temperature",) for reply in replies)
    assert ", temperature=0, " in RunReader(folder).facts.protocol
    assert all("seed" in request.body for request in script.requests)


def test_a_parameter_that_a_server_refuses_is_named_and_not_left_out(script: FaultyServer):
    script.fault = lambda request: "400:Unrecognized request argument: top_k" if "top_k" in request.body else None
    with pytest.raises(ModelError, match="400: Unrecognized request argument: top_k"):
        make_backend("served", ModelOptions(generation={"top_k": 20}), ServerOptions((script.url,)))


def test_a_model_without_images_is_found_before_the_first_question(script: FaultyServer):
    for refusal in ("400:served is not a multimodal model", "404:No endpoints found that support image input"):
        script.fault = lambda request, said=refusal: said if "image_url" in json.dumps(request.body) else None
        with pytest.raises(ModelError, match=f"refuses .*{refusal.replace(':', ': ')}"):
            backend_at(script.url)


ACTION = '{"rotation_angle_degrees": 0, "answer": null, "done": false}'


@pytest.mark.parametrize(
    ("message", "reason", "expected"),
    [
        ({"content": [{"type": "thinking", "thinking": []}, {"type": "text", "text": ACTION}]}, "stop", ACTION),
        ({"content": ""}, "stop", ""),
        ({"content": "", "reasoning": "Hm"}, "length", "max_new_tokens: .* spent all 512 tokens .*higher limit"),
        (
            {"content": None, "reasoning_content": "Hm"},
            "length",
            "max_new_tokens: .* spent all 512 tokens .*higher limit",
        ),
        ({"content": "", "reasoning": ACTION}, "stop", "all of a reply as reasoning,.*--reasoning-parser"),
        ({"content": None, "reasoning_content": ACTION}, "stop", "all of a reply as reasoning_content,"),
        ({"content": ACTION, "reasoning_content": "Hm"}, "stop", ACTION),
        ({"content": "I cannot"}, "content_filter", "content_filter"),
        ({"content": None, "refusal": "I cannot help."}, "stop", "without text .*I cannot help"),
        ({"content": "I s"}, "error", "broke off with finish_reason 'error'"),
        ({"content": "I s"}, "network_error", "broke off with finish_reason 'network_error'"),
        ({"content": ""}, "model_context_window_exceeded", "ended a reply with .*model_context_window_exceeded"),
        ({"content": {"type": "text", "text": ACTION}}, "STOP", ACTION),
        ({"content": [{"type": "output_text", "text": ACTION}]}, "end_turn", ACTION),
        ({"content": {"answer": 3}}, "stop", "without text"),
        ({"content": None}, "content_filter", "content_filter"),
        ({"content": None}, "odd", "ended a reply with finish_reason 'odd'"),
        ({"content": []}, "stop", "without text"),
        ({}, "stop", "without text"),
    ],
)
def test_the_text_of_a_reply_or_why_there_is_none(script: FaultyServer, message: dict, reason: str, expected: str):
    backend = backend_at(script.url, timeout_s=0.2)
    script.answering = lambda body: json.dumps({"choices": [{"message": message, "finish_reason": reason}]}).encode()
    if expected in ("", ACTION):
        assert backend.generate([conversation()], action_format())[0].text == expected
        return
    with pytest.raises(EngineLost if "broke off" in expected else ModelError) as caught:
        backend.generate([conversation()], action_format())
    assert re.search(expected, f"{caught.value.setting}: {caught.value}")


def test_constrained_takes_a_server_that_keeps_to_a_schema(script: FaultyServer):
    with pytest.raises(ModelError, match=r"does not keep replies to a JSON schema .*leave it out") as caught:
        backend_at(script.url, constrained=True)
    assert caught.value.setting == "constrained"

    def obedient(body: bytes) -> bytes:
        wanted = json.loads(body).get("response_format", {}).get("json_schema", {}).get("schema", {})
        return scripted(lambda chat: '{"ready": true}' if "ready" in wanted.get("properties", {}) else "Hello")(body)

    script.answering = obedient
    reply_format = action_format(constrained=True)
    backend_at(script.url, constrained=True).generate([conversation()], reply_format)
    asked = [request.body.get("response_format") for request in script.requests[-2:]]
    assert [each["type"] for each in asked] == ["json_schema"] * 2
    assert asked[1]["json_schema"]["schema"] == reply_format.schema


def test_a_reply_that_is_cut_off_says_how_many_tokens_it_had(rooms: RoomScans, tmp_path: Path, script: FaultyServer):
    def long(body: bytes) -> bytes:
        sent = json.loads(scripted(lambda chat: "I see a long")(body))
        sent["choices"][0]["finish_reason"] = "length"
        return json.dumps(sent).encode()

    script.answering = long
    folder = run_in_process(behind(rooms, tmp_path, script, num_questions=1, steps=1))
    (turn, *_) = RunReader(folder).turns(EpisodeId(1))
    assert turn.reply.finish_reason == "length" and "truncated after 10 tokens" in turn.parse_error


def test_further_parameters_are_in_every_request_and_in_the_protocol(
    rooms: RoomScans, tmp_path: Path, script: FaultyServer
):
    config = rooms.config(
        tmp_path, engine="openai", base_url=(script.url,), model="served", num_questions=1, steps=1,
        extra_body='{"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": false}}',
    )  # fmt: skip
    folder = run_in_process(config)
    sent = {"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    assert len(script.requests) > 1 and all(sent.items() <= request.body.items() for request in script.requests)
    facts = RunReader(folder).facts
    assert facts.config["extra_body"] == json.dumps(sent, sort_keys=True)
    assert f"extra_body={facts.config['extra_body']}, " in facts.protocol
    assert run_settings(saved_settings(RunReader(folder)), folder).status == 0
    with pytest.raises(ConfigError, match="--extra-body would change answers"):
        resolve({"extra_body": {"top_p": 0.8}}, saved_settings(RunReader(folder)))
