"""VAGEN: `RoomImageEnv`, a GymImageEnv, for its agent loops and its evaluation.

In VAGEN's registry of environments, with this folder on the path: `RoomScout: vagen_rooms.RoomImageEnv`.

sh scripts/install_faces.sh verl
PYTHONPATH=. .venv-faces/verl/bin/python examples/vagen_rooms.py
"""

import asyncio
from pathlib import Path
from typing import Any

from shared_rooms import DONE, LOOK, ROOMS, shared_env
from vagen.envs.gym_image_env import GymImageEnv

from roomscout.rooms import write_rooms
from roomscout.training.environment import Message

PLACEHOLDER = "<image>"


class RoomImageEnv(GymImageEnv):
    """A `RoomEnv` of the settings in `env_config`; environments of the same settings share scans and renderer.

    The seed of `reset` is a question's position, counted around, so that all questions are asked equally often; of
    endless rooms, it is the seed. `info["success"]` is whether the answer has the full official score.
    """

    def __init__(self, env_config: dict[str, Any]) -> None:
        super().__init__(env_config)
        self.env = shared_env(env_config)
        self._system: list[Message] = []

    async def system_prompt(self) -> dict[str, Any]:
        """The system's message of the episode; call `reset` first, as VAGEN does."""
        return _observation(self._system)

    async def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        place = seed % len(self.env.questions) if self.env.questions else seed
        messages = await asyncio.to_thread(self.env.reset, place)
        self._system = [message for message in messages if message.role == "system"]
        opening = [message for message in messages if message.role != "system"]
        return _observation(opening), {"question": self.env.state.question.id}

    async def step(self, action_str: str) -> tuple[dict[str, Any], float, bool, dict[str, Any]]:
        """Take a turn with a reply."""
        step = await asyncio.to_thread(self.env.step, action_str)
        return _observation(step.messages), step.reward, step.ended, {**step.info, "success": step.info["score"] == 1}

    async def close(self) -> None:
        """End the episode."""
        self.env.close()


def _observation(messages: list[Message]) -> dict[str, Any]:
    """Messages as VAGEN takes them: a placeholder for each image, before the text, and the images beside it.

    The words of a placeholder in the text get a space, since VAGEN would look for their image.
    """
    texts = (message.text.replace(PLACEHOLDER, "<image >") for message in messages)
    text = "\n\n".join(PLACEHOLDER * len(message.images) + text for message, text in zip(messages, texts, strict=True))
    images = [image for message in messages for image in message.images]
    return {"obs_str": text, **({"multi_modal_input": {PLACEHOLDER: images}} if images else {})}


async def play() -> None:
    """One episode with scripted replies, in the order in which VAGEN's agent loops call it."""
    write_rooms(Path("rooms"), rooms=1, seed=1)
    env = RoomImageEnv(ROOMS)
    observation, info = await env.reset(seed=0)
    system = await env.system_prompt()
    print(f"question {info['question']}, {len(system['obs_str'])} characters of instructions")
    for reply in (LOOK, DONE):
        images = observation.get("multi_modal_input", {}).get(PLACEHOLDER, [])
        assert observation["obs_str"].count(PLACEHOLDER) == len(images)
        observation, reward, done, info = await env.step(reply)
        print(f"reward {reward}, done {done}, success {info['success']}")
    await env.close()


if __name__ == "__main__":
    asyncio.run(play())
