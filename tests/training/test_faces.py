"""Environments in the shapes of other trainers, with their real libraries.

Other libraries than Gymnasium are in environments of their own below the folder that FACES_VENVS names:
`make test-faces`. There, each face's example runs as a user would run it.
"""

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SMALL_VIEW, RoomScans

from roomscout.training.environment import EnvError, Message, RoomEnv
from roomscout.training.faces import LibraryMissing, library

ROOT = Path(__file__).parents[2]
FACES_VENVS = os.environ.get("FACES_VENVS")
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


def test_a_missing_library_is_one_sentence_that_says_how_to_install_it():
    with (
        pytest.raises(LibraryMissing, match=r"faces\.nowhere needs the package nowhere: pip install nowhere$"),
        library("nowhere"),
    ):
        import nowhere_to_be_found  # noqa: F401


class TestGymnasium:
    def test_gymnasium_finds_nothing_wrong_with_it(self, rooms: RoomScans):
        from gymnasium.utils.env_checker import check_env

        from roomscout.training.faces.gymnasium import RoomGym

        env = RoomGym(**settings_of(rooms), render_mode="rgb_array")
        try:
            check_env(env)
            assert env.reset(options={"question": 0})[1] == {"question": env.env.questions[0].id}
        finally:
            env.close()

    def test_an_episode_is_that_of_the_environment(self, rooms: RoomScans):
        from roomscout.training.faces.gymnasium import RoomGym

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
        import gymnasium

        from roomscout.training.faces.gymnasium import RoomGym, RoomGymVector

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


@pytest.mark.skipif(not FACES_VENVS, reason="FACES_VENVS names no folder of environments with the libraries")
@pytest.mark.parametrize(
    ("environment", "example", "says"),
    [
        ("openenv", "openenv_rooms.py", "score 1.0"),
        ("verifiers", "verifiers_rooms.py", "score 1.0"),
        ("verl", "vagen_rooms.py", "success True"),
        ("verl", "verl_rooms.py", "score 1.0"),
    ],
)
def test_an_example_runs_with_the_real_library(environment: str, example: str, says: str, tmp_path: Path):
    python = Path(str(FACES_VENVS)) / environment / "bin" / "python"
    ran = subprocess.run(
        [python, ROOT / "docs" / "examples" / example],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert ran.returncode == 0 and says in ran.stdout, ran.stdout + ran.stderr


def test_the_words_of_a_placeholder_are_no_image_for_vagen(monkeypatch: pytest.MonkeyPatch):
    for name in ("vagen", "vagen.envs"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    monkeypatch.setitem(sys.modules, "vagen.envs.gym_image_env", SimpleNamespace(GymImageEnv=object))  # type: ignore
    from roomscout.training.faces import vagen

    monkeypatch.delitem(sys.modules, vagen.__name__)
    shown = vagen._observation([Message("user", "What is <image> here?", ("a view",))])  # type: ignore[arg-type]
    assert shown["obs_str"] == "<image>What is <image > here?"
    assert shown["multi_modal_input"] == {"<image>": ["a view"]}


@pytest.mark.slow
def test_the_example_of_gymnasium_runs(tmp_path: Path):
    command = [sys.executable, ROOT / "docs" / "examples" / "gymnasium_rooms.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert ran.returncode == 0 and "4 episodes" in ran.stdout, ran.stdout + ran.stderr
