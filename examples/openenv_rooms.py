"""OpenEnv: `create_room_app` makes a server of episodes, and `RoomClient` speaks to one, wherever it runs.

An action is the text of a reply. An observation has the new messages; their images are PNG files in base64.

sh scripts/install_faces.sh openenv
PYTHONPATH=. .venv-faces/openenv/bin/python examples/openenv_rooms.py
"""

import socket
import threading
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

import uvicorn
from openenv.core import EnvClient
from openenv.core.client_types import StepResult
from openenv.core.env_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from shared_rooms import DONE, LOOK, ROOMS, png_base64

from roomscout import RoomEnv
from roomscout.rooms import write_rooms
from roomscout.training.environment import Message


class RoomAction(Action):
    """The text of a reply."""

    reply: str


class RoomObservation(Observation):
    """The new messages, each with "role", "text" and "images"; `metadata` has the facts of `Step.info`."""

    messages: list[dict[str, Any]]


class RoomEnvironment(Environment[RoomAction, RoomObservation, State]):
    """A `RoomEnv` as a session of an OpenEnv server."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, env: RoomEnv) -> None:
        super().__init__()
        self.env = env
        self._episode = State()

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, question: str | int | None = None, **kwargs: Any
    ) -> RoomObservation:
        """Begin an episode; `question` and `seed` are those of `RoomEnv.reset`."""
        messages = self.env.reset(question, seed=seed)
        self._episode = State(episode_id=episode_id or str(uuid4()), step_count=0)
        return RoomObservation(messages=_plain(messages), metadata={"question": self.env.state.question.id})

    def step(self, action: RoomAction, timeout_s: float | None = None, **kwargs: Any) -> RoomObservation:
        """Take a turn with a reply."""
        step = self.env.step(action.reply)
        self._episode.step_count += 1
        info = {name: value for name, value in step.info.items() if name != "turn"}  # plain values alone
        return RoomObservation(messages=_plain(step.messages), reward=step.reward, done=step.ended, metadata=info)

    @property
    def state(self) -> State:
        """The episode's id, and the turns taken."""
        return self._episode

    def close(self) -> None:
        """End the session's episode."""
        self.env.close()


class RoomClient(EnvClient[RoomAction, RoomObservation, State]):
    """A session with a server: `reset(seed=..., question=...)` and `step(RoomAction(reply=...))`."""

    def _step_payload(self, action: RoomAction) -> dict[str, Any]:
        return action.model_dump()

    def _parse_result(self, payload: dict[str, Any]) -> StepResult[RoomObservation]:
        ended = payload.get("done", False)
        reward = payload.get("reward")
        observation = RoomObservation(**{**payload["observation"], "done": ended, "reward": reward})
        return StepResult(observation, reward, ended)

    def _parse_state(self, payload: dict[str, Any]) -> State:
        return State(**payload)


def create_room_app(sessions: int = 8, **settings: Any) -> Any:
    """A FastAPI application for that many sessions at once, which share scans and renderer; settings as for `RoomEnv`.

    Serve it with one worker, such as `uvicorn.run(create_room_app(endless=True))`.
    """
    first = RoomEnv(**settings)
    return create_app(
        lambda: RoomEnvironment(first.another()),
        RoomAction,
        RoomObservation,
        env_name="roomscout",
        max_concurrent_envs=sessions,
    )


def _plain(messages: list[Message]) -> list[dict[str, Any]]:
    return [
        {"role": message.role, "text": message.text, "images": list(map(png_base64, message.images))}
        for message in messages
    ]


def main() -> None:
    """Serve a room, and answer a question about it; the two usually run on two machines."""
    write_rooms(Path("rooms"), rooms=1, seed=1)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_room_app(**ROOMS), log_level="warning"))
    serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    serving.start()
    while not server.started:
        time.sleep(0.1)
    with RoomClient(base_url=f"http://127.0.0.1:{listening.getsockname()[1]}").sync() as client:
        result = client.reset(question="0")
        print(result.observation.messages[-1]["text"].splitlines()[0])
        result = client.step(RoomAction(reply=LOOK))
        print(len(result.observation.messages[0]["images"]), "new view")
        result = client.step(RoomAction(reply=DONE))
        print("done", result.done, "score", result.reward)
    server.should_exit = True
    serving.join()


if __name__ == "__main__":
    main()
