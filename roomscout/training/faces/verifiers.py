"""verifiers v1: `RoomTaskset`, whose tasks are questions, and `RoomInteraction`, the environment that asks them.

verifiers finds a taskset by the name of a module that exports it and its environment, such as one of yours with
`from roomscout.training.faces.verifiers import *`.
"""

import asyncio
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

from roomscout.training.environment import Message
from roomscout.training.faces import library, png_base64, shared_env

with library("verifiers"):
    import verifiers.v1 as vf
    from pydantic import Field

__all__ = ["RoomInteraction", "RoomTaskset"]


class RoomData(vf.TaskData):
    """What one task is: a question's id, or the seed of an endless room."""

    question: str | None = None
    seed: int | None = None


class RoomTask(vf.Task[RoomData]):
    """A question about a room; `RoomInteraction` rewards it."""


class RoomConfig(vf.TasksetConfig):
    """The settings of `RoomEnv`, which are plain values."""

    settings: dict[str, Any] = Field(default_factory=dict)


class RoomTaskset(vf.Taskset[RoomTask, RoomConfig]):
    """A task for each question; infinitely many if the settings say `endless`."""

    def __init__(self, config: RoomConfig) -> None:
        super().__init__(config)
        self.INFINITE = bool(config.settings.get("endless"))

    def load(self) -> Iterator[RoomTask]:
        """The tasks in the order of the questions, or of the seeds from 0."""
        if self.INFINITE:
            tasks: Iterable[RoomData] = (RoomData(name=f"seed {seed}", seed=seed) for seed in count())
        else:
            env = shared_env(self.config.settings)
            tasks = [RoomData(id=each.id, name=each.id, question=each.id) for each in env.questions]
            env.close()
        for data in tasks:
            yield RoomTask(data, self.config.task)


class RoomEnvConfig(vf.EnvConfig):
    """One agent, which only chats; its program runs on this machine."""

    agent: vf.AgentConfig = vf.AgentConfig(harness={"id": "null"}, runtime={"type": "subprocess"})


class RoomInteraction(vf.Env[RoomEnvConfig]):
    """Plays the user: sends the messages of an episode, takes the replies, and records each part of the reward."""

    async def run(self, task: RoomTask, agents: vf.Agents) -> None:
        """One episode."""
        env = shared_env(self.config.taskset.settings)
        rewards = {"score": 0.0}
        try:
            messages = await asyncio.to_thread(env.reset, task.data.question, task.data.seed)
            system = "\n\n".join(message.text for message in messages if message.role == "system")
            async with agents.agent.interaction(task.with_system_prompt(system)) as interaction:
                ended = False
                while not ended:
                    said = [_user_message(message) for message in messages if message.role == "user"]
                    segment = await interaction.turn(said)
                    if segment.terminated:
                        break
                    _, _, ended, info = step = await asyncio.to_thread(env.step, segment.last_reply)
                    messages = step.messages
                    rewards |= {name: rewards.get(name, 0.0) + value for name, value in info["rewards"].items()}
        finally:
            env.close()
        for name, value in rewards.items():
            interaction.trace.record_reward(name, value)


def _user_message(message: Message) -> vf.UserMessage:
    urls = [vf.ImageUrlSource(url=f"data:image/png;base64,{png_base64(image)}") for image in message.images]
    images = [vf.ImageUrlContentPart(image_url=url) for url in urls]
    return vf.UserMessage(content=[*images, vf.TextContentPart(text=message.text)])
