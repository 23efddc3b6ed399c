"""load_policy of functions, backends and servers, and the messages of trajectories."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans
from scripted_model import ScriptedBackend

from roomscout import ask, explore, load_policy, load_trajectories
from roomscout.base.errors import ConfigError

ANSWER = '{"answer": "2", "done": true}'
TURN = '{"rotation_angle_degrees": 90, "answer": null, "done": false}'
LOOKING: dict[str, Any] = {"renderer": "raycast", "image_size": (32, 24), "focal": 20.0, "steps": 1}
QUESTION = "How many lamp(s) are in this room?"


def scan_of(rooms: RoomScans) -> Path:
    return min(rooms.root.rglob("*.ply"))


def turn_then_answer(messages: list[dict[str, Any]]) -> str:
    """A model of the user's own: turns once, then answers 2."""
    return ANSWER if len(messages) > 2 else TURN


class Counting:
    """A model with a call operator, which keeps what it was called with."""

    def __init__(self) -> None:
        self.calls: list[list[dict[str, Any]]] = []

    def __call__(self, messages: list[dict[str, Any]]) -> str:
        self.calls.append(messages)
        return turn_then_answer(messages)


@pytest.mark.parametrize("on_disk", [False, True])
def test_any_function_gets_the_messages_with_their_views_and_can_reply(rooms: RoomScans, tmp_path: Path, on_disk: bool):
    model = Counting()
    place = {"log_root": tmp_path, "name": "own"} if on_disk else {}
    trajectory = ask(scan_of(rooms), QUESTION, policy=load_policy(model), **place, **LOOKING)
    assert (trajectory.answer, len(trajectory.turns)) == ("2", 2)
    first, second = model.calls
    assert len(first) == 2 and [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert QUESTION in second[0]["text"] + second[1]["text"]
    assert [len(message["images"]) for message in second] == [0, 1, 0, 1]
    assert second[1]["images"][0].shape == (24, 32, 3)
    assert np.array_equal(second[3]["images"][0], trajectory.turns[1].view)
    *read, last = trajectory.messages
    assert [(each["role"], each["text"]) for each in read] == [(each["role"], each["text"]) for each in second]
    assert all(np.array_equal(a["images"], b["images"]) for a, b in zip(read, second, strict=True))
    assert (last["role"], last["text"]) == ("assistant", ANSWER)
    if on_disk:
        assert json.loads((tmp_path / "own" / "run.json").read_text())["config"]["model"] == "Counting"
        assert load_trajectories(tmp_path / "own")[0].messages[-1]["text"] == ANSWER


def test_a_backend_is_taken_as_it_is(rooms: RoomScans):
    policy = load_policy(ScriptedBackend(lambda conversation: ANSWER, name="mine"))
    assert policy.name == "mine"
    assert explore(rooms.questions, scan_root=rooms.root, policy=policy, num_questions=1, **LOOKING)[0].turns


def test_a_model_of_pytorch_needs_its_processor():
    import torch

    with pytest.raises(ConfigError, match="load_policy takes the processor of a loaded model"):
        load_policy(torch.nn.Linear(1, 1))


def test_a_function_must_return_a_text(rooms: RoomScans):
    trajectory = ask(scan_of(rooms), QUESTION, policy=load_policy(lambda messages: None), **LOOKING)  # type: ignore[arg-type]
    assert trajectory.status == "failed"
    assert "returned None: it must return the text of the reply" in str(trajectory.error)
