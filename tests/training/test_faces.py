"""Environments in the shapes of other libraries, with the real ones, and the one test that every face passes."""

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import SMALL_VIEW, RoomScans
from gymnasium.utils.env_checker import check_env

from roomscout.training.environment import EnvError, RoomEnv
from roomscout.training.faces.gymnasium import RoomGym, RoomGymVector
from roomscout.training.faces.trl import CALL, RoomTool
from roomscout.training.vector import VectorEnv

VIEW: dict[str, Any] = {"image_size": SMALL_VIEW, "focal": 75.0, "renderer": "raycast", "steps": 3}
TURN = 'I look. {"rotation_angle_degrees": 90, "answer": null, "done": false}'
DONE = 'Two. {"answer": "2", "done": true}'


def settings_of(rooms: RoomScans) -> dict[str, Any]:
    """Settings of an environment with the counting questions of two rooms."""
    return {
        "questions": str(rooms.questions),
        "scan_root": str(rooms.root),
        "question_types": ["object_counting"],
        **VIEW,
    }


class Face:
    """An episode of a face: `begin` it with a question, `reply` for (text, reward of the episode so far, ended)."""

    def __init__(self, env: Any, begin: Callable[[Any], str], reply: Callable[[str], tuple[str, float, bool]]) -> None:
        self.begin, self.reply, self.close = begin, reply, getattr(env, "close", lambda: None)


def text_of(messages: Any) -> str:
    return "\n\n".join(each.text for each in messages)


def face_of_env(env: RoomEnv) -> Face:
    def reply(text: str) -> tuple[str, float, bool]:
        step = env.step(text)
        return text_of(step.messages), step.reward, step.ended

    return Face(env, lambda question: text_of(env.reset(question)), reply)


def face_of_vector(_: RoomEnv, settings: dict[str, Any]) -> Face:
    env = VectorEnv(2, **settings)

    def reply(text: str) -> tuple[str, float, bool]:
        step, _ = env.step([text, None])
        return text_of(step.messages), step.reward, step.ended

    return Face(env, lambda question: text_of(env.reset([question, 0])[0]), reply)


def face_of_gym(env: RoomEnv) -> Face:
    gym = RoomGym(env)

    def reply(text: str) -> tuple[str, float, bool]:
        seen, reward, terminated, truncated, _ = gym.step(text)
        assert not truncated
        return "" if terminated else seen["text"], float(reward), terminated

    return Face(gym, lambda question: gym.reset(options={"question": question})[0]["text"], reply)


def face_of_gym_vector(_: RoomEnv, settings: dict[str, Any]) -> Face:
    gym = RoomGymVector(1, **settings)

    def reply(text: str) -> tuple[str, float, bool]:
        seen, rewards, terminated, _, _ = gym.step((text,))
        return "" if terminated[0] else seen["text"][0], rewards[0], bool(terminated[0])

    return Face(gym, lambda question: gym.reset(options={"questions": [question]})[0]["text"][0], reply)


def face_of_tool(env: RoomEnv) -> Face:
    tool = RoomTool(env)

    def begin(question: Any) -> str:
        *blocks, call = tool.reset(question)
        assert call == {"type": "text", "text": CALL}
        return "\n\n".join(each["text"] for each in blocks if each["type"] == "text")

    def reply(text: str) -> tuple[str, float, bool]:
        before = tool.get_reward()
        (said,) = [each["text"] for each in tool.reply(text) if each["type"] == "text"]
        ended = said == "The episode has ended."
        return "" if ended else said, tool.get_reward() - before, ended

    return Face(env, begin, reply)


FACES: dict[str, Callable[[RoomEnv, dict[str, Any]], Face]] = {
    "RoomEnv": lambda env, _: face_of_env(env),
    "VectorEnv": face_of_vector,
    "RoomGym": lambda env, _: face_of_gym(env),
    "RoomGymVector": face_of_gym_vector,
    "RoomTool": lambda env, _: face_of_tool(env),
}


@pytest.mark.parametrize("name", FACES)
def test_every_face_shows_and_rewards_an_episode_alike_refuses_alike_and_closes_only_itself(
    name: str, rooms: RoomScans
):
    settings = settings_of(rooms)
    right = next(row for row in rooms.rows if row["question_type"] == "object_counting")
    replies = (TURN, "nothing to read", f'{{"answer": "{right["ground_truth"]}", "done": true}}')
    with RoomEnv(**settings) as first, first.another() as other:
        face = FACES[name](first.another(), settings)
        for _ in range(2):  # it can begin again
            assert face.begin(0) == text_of(other.reset(0))
            for reply in replies:
                assert face.reply(reply) == (text_of((step := other.step(reply)).messages), step.reward, step.ended)
            assert step.ended and step.reward == 1.0
        for question in ("unknown", 10**6, -1, 1.5, True):
            with pytest.raises(EnvError):
                face.begin(question)
        other.reset(0)
        face.close()
        face.close()
        assert not other.step(TURN).ended and other.state.error is None


class TestGymnasium:
    def test_gymnasium_finds_nothing_wrong_with_it(self, rooms: RoomScans):
        env = RoomGym(**settings_of(rooms), render_mode="rgb_array")
        try:
            check_env(env)
            assert env.reset(options={"question": 0})[1] == {"question": env.env.questions[0].id}
        finally:
            env.close()

    def test_an_episode_is_that_of_the_environment(self, rooms: RoomScans):
        env, same = RoomGym(**settings_of(rooms)), RoomEnv(**settings_of(rooms))
        try:
            seen, _ = env.reset(options={"question": 0})
            messages = same.reset(0)
            assert seen["text"] == "\n\n".join(each.text for each in messages)
            for reply in (TURN, "nothing", DONE):
                seen, reward, terminated, truncated, info = env.step(reply)
                step = same.step(reply)
                assert (reward, terminated, truncated) == (step.reward, step.ended, False)
                assert info["status"] == step.info["status"] and info.get("error") == step.info["error"]
                if step.messages:
                    assert np.array_equal(seen["image"], np.asarray(step.messages[0].images[0]))
                    assert np.array_equal(env.render(), seen["image"])
            with pytest.raises(EnvError, match="is over"):
                env.step(TURN)
        finally:
            env.close()
            same.close()

    def test_episodes_at_once_equal_those_alone_and_begin_again(self, rooms: RoomScans):
        first = RoomEnv(**settings_of(rooms))
        alone = gymnasium.vector.SyncVectorEnv([lambda: RoomGym(first.another())] * 2)
        together = RoomGymVector(2, **settings_of(rooms))
        try:
            asked = [alone.envs[place].reset(options={"question": place})[1]["question"] for place in (0, 1)]
            seen, info = together.reset(seed=1, options={"questions": [0, 1]})
            assert list(info["question"]) == asked and together.observation_space.contains(seen)
            each = [env.step(reply) for env, reply in zip(alone.envs, (TURN, DONE), strict=True)]
            seen, rewards, terminated, truncated, info = together.step((TURN, DONE))
            assert together.observation_space.contains(seen) and not truncated.any()
            assert np.array_equal(seen["image"][0], each[0][0]["image"]) and not seen["image"][1].any()
            assert list(rewards) == [step[1] for step in each] and list(terminated) == [False, True]
            seen, rewards, terminated, truncated, info = together.step((DONE, TURN))
            assert list(terminated) == [True, False] and rewards[1] == 0
            assert info["question"][1] is not None and seen["image"][1].any()  # it began again
        finally:
            alone.close()
            together.close()
            first.close()
