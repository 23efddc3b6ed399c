"""Environments in Gymnasium's shape, with the real library."""

from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import SMALL_VIEW, RoomScans
from gymnasium.utils.env_checker import check_env

from roomscout.training.environment import EnvError, RoomEnv
from roomscout.training.faces.gymnasium import RoomGym, RoomGymVector

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
