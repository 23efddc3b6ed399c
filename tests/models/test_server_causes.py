"""What servers say when they refuse requests, what the user reads of it, and what the check of a server finds."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faulty_servers import FaultyServer, Request, Response, scripted
from scripted_model import random_policy

from roomscout.agent.config import ConfigError, RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.replies import action_format
from roomscout.agent.run_folder import config_to_resume, saved_config
from roomscout.models import ModelError, ModelOptions, ServerOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.openai.backend import OpenAIBackend
from roomscout.runs.reader import RunReader
from tests.conftest import RoomScans, run_in_process

ADVICE = {
    "too long": "--image-size, fewer --steps or a lower --max-new-tokens",
    "fewer images": "fewer images in a conversation",
    "no system": "add --no-system-role",
    "no images": "name a vision-language model with --model",
    "no credit": "has no quota or credit left for this API key",
    "busy": "takes no more requests for now",
    "filtered": "because of its content filter",
    "size": "choose another --image-size",
    "no model": "give the name under which the server has it with --model",
    "stream": "answers only as a stream",
    "thinking": "such as '{\"enable_thinking\": false}'",
    "temperature": "choose another --temperature",
    "unknown": "fix what it names",
    "later": "once it works again, resume",
}
REFUSALS = [json.loads(line) for line in (Path(__file__).parents[1] / "fixtures" / "server_refusals.jsonl").open()]
"""Bodies of OpenAI, Azure, vLLM, SGLang, TGI, LM Studio, llama.cpp, Ollama, LiteLLM, OpenRouter, Gemini, Anthropic,
DeepSeek, DashScope, Moonshot, SiliconFlow and Zhipu, as their users report them."""


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(scripted(random_policy())) as server:
        yield server


def backend_at(server: FaultyServer, **options: Any) -> OpenAIBackend:
    return OpenAIBackend("served", ModelOptions(temperature=0.5), ServerOptions((server.url,), **options))


def refusal(server: FaultyServer, **options: Any) -> str:
    with pytest.raises(ModelError) as caught:
        backend_at(server, **options)
    return str(caught.value)


def images_in(request: Request) -> int:
    return json.dumps(request.body).count("data:image/png")


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: f"{case['advice']}-{json.dumps(case['body'])[:70]}")
def test_a_refusal_of_a_real_server_becomes_its_words_and_then_the_advice(server: FaultyServer, case: dict[str, Any]):
    server.fault = lambda request: Response(case["status"], json.dumps(case["body"]).encode())
    said = refusal(server, retries=0)
    _, colon, advice = said.partition("): ")
    assert ADVICE[case["advice"]] in said and colon and "\n" not in said
    assert "--image-size" not in advice or case["advice"] in ("too long", "size")
    error = case["body"] if isinstance(case["body"], dict) else case["body"][0]
    error = error.get("error", error)
    assert (error if isinstance(error, str) else error["message"])[:60] in said, "its words come first"


@pytest.mark.parametrize("status", [429, 403])
def test_used_up_credit_fails_at_once(server: FaultyServer, status: int):
    body = b'{"error": {"message": "Check your plan.", "type": "insufficient_quota", "code": "insufficient_quota"}}'
    server.fault = lambda request: Response(status, body, {"Retry-After": "9"})
    assert ADVICE["no credit"] in refusal(server)
    assert len(server.requests) == 1


def only_if(refuses: Any, said: str) -> Any:
    """A fault that refuses some requests with these words."""
    return lambda request: f"400:{said}" if refuses(request) else None


def test_the_check_has_the_form_of_a_last_turn(server: FaultyServer):
    backend_at(server, images=3)
    (request,) = server.requests
    roles = [message["role"] for message in request.body["messages"]]
    assert roles == ["system", "user", "assistant", "user", "assistant", "user"]
    assert images_in(request) == 3


@pytest.mark.parametrize("words", ["No.", "Conversation roles must alternate user/assistant/user/assistant/..."])
def test_a_server_without_a_system_role_is_found_by_the_check(server: FaultyServer, words: str):
    server.fault = only_if(lambda request: request.body["messages"][0]["role"] == "system", words)
    assert f"does not take a system message (400: {words}): add --no-system-role" in refusal(server)
    backend = backend_at(server, system_role=False)
    view = np.zeros((28, 28, 3), np.uint8)
    chat = Conversation("q", [Message("system", "You look."), Message.of_views("Where?", view)])
    for text in ("You look.\n\nWhere?", "And now?"):
        backend.generate([chat], action_format())
        sent = server.requests[-1].body["messages"]
        assert [each["role"] for each in sent] == ["user", "assistant", "user"][: len(sent)]
        assert [part.get("text") for part in sent[-1]["content"]] == [None, text]
        chat.append(Message("assistant", "Left."))
        chat.append(Message.of_views("And now?", view))


@pytest.mark.parametrize("content", [None, [], [{"type": "thinking", "thinking": "Hello!"}]])
def test_a_server_whose_replies_have_no_text_is_found_by_the_check(server: FaultyServer, content: Any):
    choice = {"finish_reason": "stop", "message": {"content": content, "reasoning_content": "Hello!"}}
    server.answering = lambda body: json.dumps({"choices": [choice]}).encode()
    with pytest.raises(ModelError):
        backend_at(server)
    choice["finish_reason"] = "length"  # it may be about to reply
    backend_at(server)


@pytest.mark.parametrize("most", [1, 2, 8])
def test_a_server_that_takes_fewer_images_than_a_question_has_is_found_by_the_check(server: FaultyServer, most: int):
    server.fault = only_if(lambda request: images_in(request) > most, "Nope.")
    assert "does not take 9 images in one conversation (400: Nope.): raise its limit" in refusal(server, images=9)
    backend_at(server, images=most)


def test_a_wrong_name_is_answered_with_the_names_of_the_server(server: FaultyServer):
    server.fault = lambda request: "404:The model `served` does not exist."
    assert ADVICE["no model"] in refusal(server)
    server.models = ("served-8b", "other", "a", "b", "c", "d", "e", "f")
    said = refusal(server)
    assert "(404: The model `served` does not exist.): give one of its models with --model: served-8b, " in said
    assert said.endswith(" and 3 more")
    server.fault = lambda request: "400:Invalid model name passed in model=served."
    assert "served-8b" in refusal(server)


def test_further_parameters_are_in_every_request_and_in_the_protocol(
    rooms: RoomScans, tmp_path: Path, server: FaultyServer
):
    config = rooms.config(
        tmp_path, engine="openai", base_url=(server.url,), model="served", num_questions=1, steps=1,
        extra_body='{"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": false}}', system_role=False,
    )  # fmt: skip
    folder = run_in_process(config)
    sent = {"top_p": 0.9, "chat_template_kwargs": {"enable_thinking": False}}
    assert len(server.requests) > 1 and all(sent.items() <= request.body.items() for request in server.requests)
    assert all(request.body["messages"][0]["role"] == "user" for request in server.requests)
    facts = RunReader(folder).facts
    assert facts.config["extra_body"] == json.dumps(sent, sort_keys=True)
    assert "system prompt in the first user message" in facts.protocol and '"top_p": 0.9' in facts.protocol
    assert main_vsi_bench_loop(saved_config(folder), folder).status == 0
    with pytest.raises(ConfigError, match="--extra-body would change answers"):
        config_to_resume(folder, saved_config(folder).having(extra_body={"top_p": 0.8}))
    with pytest.raises(ConfigError, match="--system-role would change answers"):
        config_to_resume(folder, saved_config(folder).having(system_role=True))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("top_p=1", "takes a JSON object in quotes"),
        ("[1]", "takes a JSON object in quotes"),
        ('{"a": NaN}', "takes a JSON object in quotes"),
        ('{"a": 1', "takes a JSON object in quotes"),
        ('{"a":' * 5000, "takes a JSON object in quotes"),
        ('{"messages": []}', "cannot set messages"),
        ('{"model": "sk-secret-1"}', "cannot set model: that is --model"),
        ('{"max_tokens": 9}', "cannot set max_tokens: that is --max-new-tokens"),
        ('{"stream": true}', "cannot set stream"),
        ('{"api_key": "secret-1"}', "takes no keys"),
        ('{"a": [{"Authorization": "secret-1"}]}', "takes no keys"),
        ('{"user": "sk-secret-1"}', "takes no keys"),
    ],
)
def test_further_parameters_that_a_run_sets_or_must_not_record_are_refused(given: str, words: str):
    with pytest.raises(ConfigError) as caught:
        RunConfig.of(extra_body=given)
    assert str(caught.value).startswith("--extra-body ") and words in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("given", ['{"prompt_cache_key": "a", "stop_token_ids": [1], "top_k": 5}', {"min_tokens": 3}])
def test_further_parameters_may_be_anything_else(given: str | dict):
    taken = RunConfig.of(extra_body=given).server.extra_body
    assert json.loads(taken) == (json.loads(given) if isinstance(given, str) else given)
    with pytest.raises(ConfigError, match="--extra-body needs --engine openai"):
        RunConfig.of(batch=True, extra_body=given).checked()
