"""Gymnasium: `RoomGym`, one episode at a time, and `RoomGymVector`, many at once over `VectorEnv`.

An observation has the new view as "image", (height, width, 3) uint8, and the new messages as "text"; an action is the
text of a reply. A turn with several views has the others as "image_2" and so on; a view that a turn lacks is black.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from roomscout.base.extras import importing
from roomscout.training.environment import Message, RoomEnv, Step
from roomscout.training.vector import VectorEnv

with importing("gymnasium", "roomscout.training.faces.gymnasium", ImportError):
    import gymnasium as gym
    from gymnasium.vector.utils import batch_space

LONGEST_TEXT = 1_000_000  # characters: more than any reply or message has


class AnyText(gym.spaces.Text):
    """Text of any characters; samples have 1 to 64 of ASCII."""

    def __init__(self) -> None:
        super().__init__(64, charset="".join(map(chr, range(32, 127))))

    def contains(self, x: Any) -> bool:
        """Whether it is text."""
        return isinstance(x, str) and len(x) <= LONGEST_TEXT


def observation_space_of(messages: Sequence[Message]) -> gym.spaces.Dict:
    """The space of observations of an environment whose episodes begin with these messages."""
    images = _images_of(messages[-1:])
    boxes = {name: gym.spaces.Box(0, 255, image.shape, np.uint8) for name, image in images.items()}
    return gym.spaces.Dict({**boxes, "text": AnyText()})


Named = dict[str, Any]  # an observation, the infos of a step, or options, by name, as Gymnasium has them


def observation_of(messages: Sequence[Message], space: gym.spaces.Dict) -> Named:
    """The observation that messages make."""
    views = {name: np.zeros(box.shape, np.uint8) for name, box in space.items() if isinstance(box, gym.spaces.Box)}
    views |= {name: image for name, image in _images_of(messages).items() if name in views}
    return {**views, "text": "\n\n".join(message.text for message in messages) or "the episode has ended"}


class RoomGym(gym.Env[Named, str]):
    """A `RoomEnv`, or one of these settings, for Gymnasium. `reset(options={"question": ...})` is that of
    `RoomEnv.reset`; an episode whose view cannot be drawn is truncated. `info` has the known facts of `Step.info`."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012 - Gymnasium's name and type

    def __init__(self, env: RoomEnv | None = None, *, render_mode: str | None = None, **settings: Any) -> None:
        self.env = env or RoomEnv(**settings)
        self.render_mode = render_mode
        self.observation_space = observation_space_of(self.env.reset(seed=0))
        self.action_space = AnyText()
        self._seen: Named = {}

    def reset(self, *, seed: int | None = None, options: Named | None = None) -> tuple[Named, Named]:
        """Begin an episode."""
        super().reset(seed=seed)
        messages = self.env.reset((options or {}).get("question"), seed=_seed(self.np_random))
        return self._observed(messages), {"question": self.env.state.question.id}

    def step(self, action: str) -> tuple[Named, float, bool, bool, Named]:
        """Take a turn with a reply."""
        step = self.env.step(action)
        return self._observed(step.messages), step.reward, *_ends(step), _info(step)

    def render(self) -> Any:
        """The view that the last observation had."""
        return self._seen.get("image")

    def close(self) -> None:
        """End the episode and the renderer."""
        self.env.close()

    def _observed(self, messages: Sequence[Message]) -> Named:
        self._seen = observation_of(messages, self.observation_space)
        return self._seen


class RoomGymVector(gym.vector.VectorEnv):
    """`n` episodes at once that share scans and renderer; an episode that ended begins anew on the next step."""

    metadata = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}  # noqa: RUF012

    def __init__(self, n: int, **settings: Any) -> None:
        self.envs = VectorEnv(n, **settings)
        self.num_envs = n
        self.single_observation_space = observation_space_of(self.envs.envs[0].reset(seed=0))
        self.single_action_space = AnyText()
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self._ended: Any = np.zeros(n, bool)
        self._new: list[list[Message]] = [[]] * n

    def reset(self, *, seed: int | None = None, options: Named | None = None) -> tuple[Named, Named]:
        """Begin all episodes; `options` may have "questions", one for each."""
        super().reset(seed=seed)
        begun = self._begin(range(self.num_envs), (options or {}).get("questions"))
        return self._batched(), self._infos(begun)

    def step(self, actions: Sequence[str]) -> tuple[Named, Any, Any, Any, Named]:
        """Take a turn in each episode; one that had ended begins again instead, whatever its action."""
        again = [place for place in range(self.num_envs) if self._ended[place]]
        steps = self.envs.step([None if self._ended[place] else action for place, action in enumerate(actions)])
        self._new = [step.messages for step in steps]
        ends = np.array([(False, False) if self._ended[place] else _ends(step) for place, step in enumerate(steps)])
        rewards = np.array([step.reward for step in steps], np.float64)
        self._ended = ends.any(axis=1)
        infos = [_info(step) for step in steps]
        if again:
            for place, info in zip(again, self._begin(again), strict=True):
                infos[place] = info
        return self._batched(), rewards, ends[:, 0], ends[:, 1], self._infos(infos)

    def close_extras(self, **kwargs: Any) -> None:
        """End the episodes and the renderer."""
        self.envs.close()

    def _begin(self, places: Sequence[int], questions: Any = None) -> list[Named]:
        """Begin an episode in each of these places; the info of each, with "failed" if it could not begin."""
        begun = self.envs.reset(questions, [_seed(self.np_random) for _ in places], only=places)
        infos: list[Named] = []
        for place, messages in zip(places, begun, strict=True):
            self._new[place] = messages
            failure = self.envs.failures[place]
            self._ended[place] = failure is not None
            if failure is not None:
                infos.append({"failed": failure})
            else:
                infos.append({"question": self.envs.envs[place].state.question.id})
        return infos

    def _batched(self) -> Named:
        """The observations of all episodes: arrays of n views, and a tuple of n texts."""
        rows = [observation_of(messages, self.single_observation_space) for messages in self._new]
        views = {name: np.stack([row[name] for row in rows]) for name in rows[0] if name != "text"}
        return {**views, "text": tuple(row["text"] for row in rows)}

    def _infos(self, infos: Sequence[Named]) -> Named:
        merged: Named = {}
        for place, info in enumerate(infos):
            merged = self._add_info(merged, info, place)
        return merged


def _images_of(messages: Sequence[Message]) -> dict[str, np.ndarray]:
    """The images of messages by the names that an observation has: those of the question are picture_1 and so on."""
    named = dict[str, np.ndarray]()
    for message in messages:
        for number, image in enumerate(message.images, start=1 - message.pictures):
            of_question = f"picture_{number + message.pictures}"
            name = of_question if number < 1 else "image" if number == 1 else f"image_{number}"
            named[name] = np.asarray(image)
    return named


def _seed(generator: np.random.Generator) -> int:
    return int(generator.integers(2**31))


def _ends(step: Step) -> tuple[bool, bool]:
    failed = step.info.get("failed") is not None
    return step.ended and not failed, step.ended and failed


def _info(step: Step) -> Named:
    """The known facts of a step that are plain values: all but its turn, which `RoomEnv.state` has."""
    return {name: value for name, value in step.info.items() if name != "turn" and value is not None}
