"""Few calls lie between the command and the model: tracebacks are short, and a reader finds the way."""

import traceback
from pathlib import Path

import pytest
from conftest import RoomScans
from scripted_model import ScriptedBackend
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.model import ModelPolicy
from roomscout.models import ModelOptions
from roomscout.models.engines import make_backend

CHECKOUT = Path(__file__).parents[2]
OURS = (CHECKOUT / "roomscout" / "agent", CHECKOUT / "roomscout" / "models", CHECKOUT / "tests" / "scripted_model.py")
COMMAND = 1
"""The command's main(), which is not called here because it sets signal handlers."""
pytestmark = pytest.mark.usefixtures("one_thread")


def our_calls() -> list[str]:
    """The functions of this package in the current stack, from main_vsi_bench_loop() to transformers' generate()."""
    calls = []
    for frame in traceback.extract_stack():
        path = Path(frame.filename)
        if path.parts[-2:] == ("generation", "utils.py"):
            break
        if any(path.is_relative_to(each) for each in OURS):
            calls.append(f"{path.name}:{frame.name}")
    return calls[calls.index("evaluation.py:main_vsi_bench_loop") :]


def test_seven_calls_lie_between_the_command_and_a_backend(rooms: RoomScans, tmp_path: Path):
    stacks = []

    def reply(conversation):
        calls = our_calls()
        stacks.append(calls[: calls.index("scripted_model.py:generate") + 1])
        return '{"answer": "1", "done": true}' if len(conversation.images) > 1 else "{}"

    config = rooms.config(tmp_path, num_questions=2, max_batched_turns=1, concurrency=1)
    main_vsi_bench_loop(config, policy=ModelPolicy(ScriptedBackend(reply)))
    assert {len(calls) + COMMAND for calls in stacks} == {7}, stacks
    assert {calls[-3] for calls in stacks} == {"turns.py:run_batched_turn"}
    assert {calls[-4] for calls in stacks} == {"loop.py:take_turn", "turns.py:complete_question_sequentially"}


def test_at_most_ten_calls_lie_between_the_command_and_generate(rooms: RoomScans, tmp_path: Path):
    checkpoint = write_untrained_checkpoint(tmp_path / "tiny")
    backend = make_backend(str(checkpoint), ModelOptions(device="cpu", max_new_tokens=2))
    stacks = []
    backend._runner._model.register_forward_pre_hook(lambda *_: stacks.append(our_calls()))
    main_vsi_bench_loop(rooms.config(tmp_path / "logs", num_questions=2, steps=0), policy=ModelPolicy(backend))
    assert stacks and max(len(calls) + COMMAND for calls in stacks) <= 10, stacks
