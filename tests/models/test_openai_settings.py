"""Settings and plans of runs whose model is behind a server; no server is asked."""

import json
import logging
import re
from pathlib import Path

import pytest
from conftest import RoomScans
from planned import checked, settings_of

from roomscout.agent.running import resume_command
from roomscout.base.errors import ConfigError
from roomscout.command.look_ahead import look_ahead
from roomscout.edge.resuming import changed_since
from roomscout.edge.settings import flags_of

KEY = "sk-5f0c-never-to-be-seen"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base_url": ()}, "needs --base-url"),
        ({"engine": "transformers"}, "--base-url needs --engine openai"),
        ({"policy": "random"}, "leave it out with --model random"),
        ({"batch_size": 4, "dtype": "bfloat16"}, "leave out --dtype, --batch-size with --engine openai"),
        ({"api_key_env": KEY}, "takes the name of an environment variable"),
    ],
)
def test_settings_that_conflict_with_a_server_are_refused(changes: dict, words: str):
    given = {"batch": True, "engine": "openai", "base_url": ("http://localhost:8000/v1",)} | changes
    with pytest.raises(ConfigError, match=words) as caught:
        checked(settings_of(**given))
    assert KEY not in str(caught.value)


def test_a_resumed_run_may_find_its_server_elsewhere(tmp_path: Path):
    begun = settings_of(batch=True, engine="openai", base_url=("http://old/v1",))
    moved = settings_of(batch=True, engine="openai", base_url=("http://new/v1", "http://newer/v1"))
    assert resume_command(tmp_path, flags_of(changed_since(begun.as_json, moved.as_json))).endswith(
        "--base-url http://new/v1 http://newer/v1"
    )


def test_a_plan_for_a_server_needs_neither_weights_nor_the_server(
    rooms: RoomScans, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    config = rooms.config(tmp_path, engine="openai", base_url=("http://127.0.0.1:9/v1",), model="served", plan=True)
    with caplog.at_level(logging.INFO):
        assert look_ahead(config, None) == 0
    assert f"{len(rooms.rows)} questions at a time at http://127.0.0.1:9/v1" in caplog.text


@pytest.mark.parametrize(
    ("workers", "words"), [(4, "4 workers .* by about 4"), ("auto", "divide the times by their num")]
)
def test_a_plan_with_ray_says_that_it_is_of_one_worker(
    rooms: RoomScans, tmp_path: Path, caplog: pytest.LogCaptureFixture, workers: int | str, words: str
):
    changes = {"engine": "openai", "base_url": ("http://127.0.0.1:9/v1",), "model": "served"}
    with caplog.at_level(logging.INFO):
        look_ahead(rooms.config(tmp_path, plan=True, ray=True, replicas=workers, **changes))
    assert re.search(f"for one worker; .*{words}", caplog.text)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://[::1/v1", "an IPv6 address in brackets"),
        ("http://host:99999/v1", "a port from 1 to 65535"),
        ("localhost:8000/v1", "takes http:// or https:// URLs"),
        ("http://..x/v1", "valid host"),
        ("http://me:sk-secret@host/v1", "environment variable of --api-key-env"),
        ("https://host/v1?x=1&key=sk-secret", "environment variable of --api-key-env"),
        ("http://host/v1#sk-secret", "leave out #"),
        ("http://host/v1/chat/completions", "leave out /chat/completions"),
    ],
)
def test_a_url_that_cannot_be_asked_is_refused_without_being_shown(url: str, words: str):
    with pytest.raises(ConfigError, match=f"^--base-url .*{re.escape(words)}") as caught:
        settings_of(base_url=(url,))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("[1]", "takes a JSON object in quotes"),
        ('{"a":' * 5000, "takes a JSON object in quotes"),
        ('{"messages": []}', "cannot set messages"),
        ('{"max_tokens": 9}', "cannot set max_tokens: that is --max-new-tokens"),
        ('{"a": [{"Authorization": "secret-1"}]}', "takes no keys"),
        ('{"user": "sk-secret-1"}', "takes no keys"),
    ],
)
def test_further_parameters_that_a_run_sets_or_must_not_record_are_refused(given: str, words: str):
    with pytest.raises(ConfigError, match=f"^--extra-body .*{words}") as caught:
        settings_of(extra_body=given)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("given", ['{"prompt_cache_key": "a", "stop_token_ids": [1], "top_k": 5}', {"min_tokens": 3}])
def test_further_parameters_may_be_anything_else(given: str | dict):
    taken = settings_of(extra_body=given).extra_body
    assert json.loads(taken) == (json.loads(given) if isinstance(given, str) else given)
    with pytest.raises(ConfigError, match="--extra-body needs --engine openai"):
        checked(settings_of(batch=True, extra_body=given))
