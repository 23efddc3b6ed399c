"""verifiers v1: `RoomTaskset`, whose tasks are questions, and `RoomInteraction`, the environment that asks them.

verifiers finds a taskset by the name of a module that exports it and its environment, such as this one.

sh scripts/install_faces.sh verifiers
PYTHONPATH=. .venv-faces/verifiers/bin/python examples/verifiers_rooms.py
"""

import asyncio
import json
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from pydantic import Field
from shared_rooms import DONE, LOOK, ROOMS, png_base64, shared_env

from roomscout.rooms import write_rooms
from roomscout.training.environment import Message

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
            names = [question.id for question in env.questions]
            tasks = [RoomData(id=name, name=name, question=name) for name in names]
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
                while True:
                    said = [_user_message(message) for message in messages if message.role == "user"]
                    segment = await interaction.turn(said)
                    if segment.terminated:
                        break
                    step = await asyncio.to_thread(env.step, segment.last_reply)
                    rewards |= {name: rewards.get(name, 0.0) + value for name, value in step.info["rewards"].items()}
                    if step.ended:
                        break
                    messages = step.messages
        finally:
            env.close()
        for name, value in rewards.items():
            interaction.trace.record_reward(name, value)


def _user_message(message: Message) -> vf.UserMessage:
    urls = [vf.ImageUrlSource(url=f"data:image/png;base64,{png_base64(image)}") for image in message.images]
    images = [vf.ImageUrlContentPart(image_url=url) for url in urls]
    return vf.UserMessage(content=[*images, vf.TextContentPart(text=message.text)])


class Model(BaseHTTPRequestHandler):
    """Looks once, then answers 2; the answer is streamed in one piece."""

    def do_POST(self) -> None:
        """One reply."""
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        text = LOOK if len(request["messages"]) < 4 else DONE
        events = [({"role": "assistant", "content": text}, None), ({}, "stop")]
        about = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
        choices = [[{"index": 0, "delta": delta, "finish_reason": reason}] for delta, reason in events]
        lines = [*(json.dumps({**about, "choices": choice}) for choice in choices), "[DONE]"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write("".join(f"data: {line}\n\n" for line in lines).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Prints nothing."""


async def evaluate(port: int) -> None:
    """Two tasks with the scripted model behind this port of this machine."""
    from verifiers_rooms import RoomEnvConfig, RoomInteraction  # as verifiers imports them, by the taskset's name

    env = RoomInteraction(RoomEnvConfig(taskset={"id": "verifiers_rooms", "settings": ROOMS}))
    model = vf.ModelContext("scripted", vf.EvalClientConfig(base_url=f"http://127.0.0.1:{port}/v1", api_key_var="HOME"))
    async with env.serving():
        for task in env.taskset.take(2):
            episode = await env.run_episode(task, model)
            print(f"question {task.data.question}: ok {episode.ok}, score {episode.traces[0].reward}", episode.errors)


if __name__ == "__main__":
    write_rooms(Path("rooms"), rooms=1, seed=1)
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        asyncio.run(evaluate(server.server_port))
        server.shutdown()
