"""TRL: `RoomTool`, an environment for `GRPOTrainer(environment_factory=...)` whose views are results of a tool.

The model calls the tool `reply` with the text that it would reply in a run. TRL's loop ends when a message calls no
tool, so that the conversation is not to the byte that of evaluation: `roomscout train grpo` trains on that one. Needs a
model whose chat template has tools, such as Qwen3-VL's, and room for all views in `max_completion_length`.
"""

from collections.abc import Callable
from typing import Any

from roomscout.training.environment import Message, RoomEnv

CALL = (
    "Call the tool reply with each of your replies: its reason and its JSON object as text. When the tool says that "
    "the episode has ended, stop."
)


class RoomTool:
    """One episode at a time of an environment, in the shape that TRL calls: `reset`, the tool `reply`, `get_reward`.
    `reset` begins with the question that a row of the dataset names in its column "question" (a position or an id), or
    with a drawn one, with the row's "seed" if it has one. The prompt of the dataset may be empty."""

    def __init__(self, env: RoomEnv) -> None:
        self._env = env
        self._reward = 0.0

    def reset(self, question: str | int | None = None, seed: int | None = None, **_: Any) -> list[dict[str, Any]]:
        """Begin an episode; returns blocks of images and text, which TRL appends to the prompt's last message."""
        self._reward = 0.0
        return [*_blocks(self._env.reset(question, seed)), {"type": "text", "text": CALL}]

    def reply(self, text: str) -> list[dict[str, Any]]:
        """Reply in the room, which moves the camera or answers the question, and see the next view.

        Args:
            text: The reply, with one JSON object.

        Returns:
            The new views and what they are.
        """
        if self._env.state.is_final:
            return _blocks([Message("user", "The episode has ended.")])
        step = self._env.step(text)
        self._reward += step.reward
        return _blocks(step.messages or [Message("user", "The episode has ended.")])

    def get_reward(self) -> float:
        """The sum of the episode's rewards, 0 to 1 without further parts; 0 if it did not end with an answer."""
        return self._reward


def environment_factory(*questions: Any, **settings: Any) -> Callable[[], RoomTool]:
    """What GRPOTrainer takes as `environment_factory`; its environments share scans. The arguments are RoomEnv's."""
    first = RoomEnv(*questions, **settings)
    return lambda: RoomTool(first.another())


def _blocks(messages: list[Message]) -> list[dict[str, Any]]:
    return [block for message in messages for block in message.content]
