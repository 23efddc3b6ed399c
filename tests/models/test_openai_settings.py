"""Settings and plans of runs whose model is behind a server; no server is asked."""

import re
from pathlib import Path

import pytest
from conftest import RoomScans
from planned import settings_of

from roomscout.base.errors import ConfigError
from roomscout.edge.plan import memory_lines
from roomscout.edge.resuming import changed_since
from roomscout.edge.settings import flags_of


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("base_url", "http://host:99999/v1", "takes http:// or https:// URLs"),
        ("base_url", "localhost:8000/v1", "takes http:// or https:// URLs"),
        ("base_url", "http://me:sk-secret@host/v1", "--api-key-env"),
        ("base_url", "https://host/v1?x=1&key=sk-secret", "--api-key-env"),
        ("base_url", "http://host/v1/chat/completions", "takes the root of an API"),
        ("api_key_env", "sk-secret-1", ""),
        ("extra_body", "[1]", "takes a JSON object"),
        ("extra_body", '{"a":' * 5000, "takes a JSON object"),
        ("extra_body", '{"messages": []}', "cannot set messages"),
        ("extra_body", '{"max_tokens": 9}', "cannot set max_tokens"),
        ("extra_body", '{"a": [{"Authorization": "secret-1"}]}', "takes no keys"),
        ("extra_body", '{"user": "sk-secret-1"}', "takes no keys"),
    ],
)
def test_what_no_server_can_be_asked_with_is_refused_without_keys(name: str, given: str, words: str):
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}.*{re.escape(words)}") as caught:
        settings_of(**{name: given})
    assert "secret" not in str(caught.value)


def test_a_resumed_run_may_find_its_server_elsewhere():
    begun = settings_of(engine="openai", base_url=("http://old/v1",))
    moved = settings_of(engine="openai", base_url=("http://new/v1", "http://newer/v1"))
    changes = changed_since(begun.as_json, moved.as_json)
    assert flags_of(changes) == ["--base-url", "http://new/v1", "http://newer/v1"]


def test_a_plan_for_a_server_needs_neither_weights_nor_the_server(rooms: RoomScans, tmp_path: Path):
    config = rooms.config(tmp_path, engine="openai", base_url=("http://127.0.0.1:9/v1",), model="served")
    lines = memory_lines(config)
    assert f"{len(rooms.rows)} questions at a time at http://127.0.0.1:9/v1" in lines[-1]
