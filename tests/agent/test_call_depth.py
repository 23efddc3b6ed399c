"""Few calls lie between the command and the model: tracebacks are short, and a reader finds the way."""

import traceback
from pathlib import Path
from typing import ClassVar

import pytest
from conftest import RoomScans
from scripted_model import ScriptedBackend
from untrained_checkpoints import write_untrained_checkpoint

from roomscout.agent.policies.model import ModelPolicy
from roomscout.command.main import main
from roomscout.models.conversation import Conversation

pytestmark = pytest.mark.usefixtures("one_thread")


def calls_from_main() -> list[str]:
    """The functions in the current stack from the command's main() on, without the test's own, up to transformers'
    generate()."""
    calls = []
    for frame in traceback.extract_stack()[:-1]:
        path = Path(frame.filename)
        if path.parts[-2:] == ("generation", "utils.py"):
            break
        calls.append(f"{path.name}:{frame.name}")
    return calls[calls.index("main.py:main") :]


class Recorded(ModelPolicy):
    """Asks a model that records the calls that lead to it, and looks around once."""

    stacks: ClassVar[list[list[str]]] = []

    def __init__(self) -> None:
        super().__init__(ScriptedBackend(self._reply))

    def _reply(self, conversation: Conversation) -> str:
        calls = calls_from_main()
        self.stacks.append(calls[: calls.index("scripted_model.py:generate") + 1])
        return '{"answer": "1", "done": true}' if len(conversation.images) > 1 else "{}"


def command(rooms: RoomScans, log_root: Path, *flags: str) -> list[str]:
    """The arguments of a run about two questions of the rooms."""
    scans = ["--questions", str(rooms.questions), "--scan-root", str(rooms.root), "--log-root", str(log_root)]
    small = ["--renderer", "raycast", "--image-size", "160", "96", "--no-report"]
    return ["--batch", *scans, "--num-questions", "2", *small, *flags]


def test_at_most_six_calls_lie_between_the_command_and_a_backend(rooms: RoomScans, tmp_path: Path):
    Recorded.stacks.clear()
    policy = ["--policy", f"{__name__}:Recorded"]
    assert main(command(rooms, tmp_path, *policy, "--max-batched-turns", "1", "--concurrency", "1")) == 0
    assert max(map(len, Recorded.stacks)) <= 6, Recorded.stacks
    assert {calls[-3] for calls in Recorded.stacks} == {"turns.py:run_batched_turn"}
    assert {calls[-4] for calls in Recorded.stacks} == {
        "loop.py:answer_questions",
        "turns.py:complete_question_sequentially",
    }


def test_at_most_nine_calls_lie_between_the_command_and_generate(rooms: RoomScans, tmp_path: Path):
    from torch.nn.modules.module import register_module_forward_pre_hook

    checkpoint, stacks = write_untrained_checkpoint(tmp_path / "tiny"), list[list[str]]()
    hook = register_module_forward_pre_hook(lambda *_: stacks.append(calls_from_main()))
    model = ["--model", str(checkpoint), "--device", "cpu", "--max-new-tokens", "2", "--steps", "0"]
    try:
        assert main(command(rooms, tmp_path / "logs", *model)) == 0
    finally:
        hook.remove()
    assert stacks and max(map(len, stacks)) <= 9, max(stacks, key=len)
