"""Few calls lie between the command and the model: tracebacks are short, and a reader finds the way."""

import traceback
from pathlib import Path
from typing import ClassVar

from conftest import RoomScans
from scripted_model import ScriptedBackend

from roomscout.agent.policies.model import ModelPolicy
from roomscout.command.main import main
from roomscout.models.conversation import Conversation


class Recorded(ModelPolicy):
    """Asks a model that records the calls that lead to it, and looks around once."""

    stacks: ClassVar[list[list[str]]] = []

    def __init__(self) -> None:
        super().__init__(ScriptedBackend(self._reply))

    def _reply(self, conversation: Conversation) -> str:
        calls = [f"{Path(frame.filename).name}:{frame.name}" for frame in traceback.extract_stack()]
        self.stacks.append(calls[calls.index("main.py:main") : calls.index("scripted_model.py:generate") + 1])
        return '{"answer": "1", "done": true}' if len(conversation.images) > 1 else "{}"


def test_at_most_six_calls_lie_between_the_command_and_a_backend(rooms: RoomScans, tmp_path: Path):
    Recorded.stacks.clear()
    flags = ["--policy", f"{__name__}:Recorded", "--max-batched-turns", "1", "--concurrency", "1"]
    assert main(rooms.flags(tmp_path, *flags, "--num-questions", "2")) == 0
    assert max(map(len, Recorded.stacks)) <= 6, Recorded.stacks
    assert {calls[-3] for calls in Recorded.stacks} == {"turns.py:run_batched_turn"}
    assert {calls[-4] for calls in Recorded.stacks} == {
        "loop.py:main_vsi_bench_loop",
    }
