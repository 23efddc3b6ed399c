"""A question is an episode: its messages, steps and score need no configuration, policy or run folder."""

import json

import numpy as np
import pytest

from roomscout.agent.policies.prompts import Prompts, checkpoint_prompts
from roomscout.agent.state import QuestionState, Rules
from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.data.question import with_kind
from roomscout.data.questions import Question
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.models import Reply
from roomscout.models.conversation import Conversation
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.modalities.modality import SCAN_ORIGIN
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import make_scene
from roomscout.rooms import make_room

ROOM = make_room(3, 0)
SCENE = make_scene(ROOM.name, Geometry(ROOM.mesh.vertices, ROOM.mesh.faces, ROOM.mesh.colours))
QUESTION = with_kind(
    Question("1", "scannet", ROOM.name, "object_counting", "How many chair(s) are in this room?", ground_truth="4"),
    BENCHMARK,
)


class RoomEnv:
    """An environment for reinforcement learning: observations are conversations, the reward is the official score."""

    def __init__(self, rules: Rules | None = None, steps: int = 3) -> None:
        centre = SCENE.vertices.mean(axis=0)
        start = CameraPose(float(centre[0]), float(centre[1]), SCENE.main_storey.floor_z_m + 1.5, 0.0, 0.0)
        camera = CameraSettings((64, 48), 40.0, 1.5, 0.0)
        self.library = OneSceneLibrary(SCENE, {QUESTION.id: start}, RaycastRenderer(), camera)
        self.rules, self.steps = rules or Rules(), steps

    def reset(self) -> Conversation:
        self.state = QuestionState(1, QUESTION, self.steps, rules=self.rules)
        self.state.reset(self.library)
        return self.state.messages()

    def step(self, reply: str) -> tuple[Conversation | None, float]:
        self.state.step(Reply(reply))
        if self.state.is_final:
            return None, self.state.score() or 0.0
        return self.state.messages(), 0.0


def action(**fields: object) -> str:
    """A reply with these fields."""
    return "I look. " + json.dumps({"answer": None, "done": False} | fields)


def test_an_episode_is_reset_stepped_and_scored_without_a_configuration():
    env = RoomEnv()
    first = env.reset()
    assert [each.role for each in first.messages] == ["system", "user"]
    assert QUESTION.question in first.messages[1].text
    second, reward = env.step(action(rotation_angle_degrees=90))
    assert second is first and reward == 0
    assert [each.role for each in second.messages] == ["system", "user", "assistant", "user"]
    assert "Turned 90 degrees left." in second.messages[3].text
    assert not np.array_equal(*second.images)
    assert env.step(action(answer="4", done=True)) == (None, 1.0)
    assert [turn.turn for turn in env.state.turns] == [0, 1]


def test_the_last_turn_ends_the_episode():
    env = RoomEnv(steps=1)
    env.reset()
    env.step("nothing that can be read")
    assert "Your reply could not be used" in env.state.messages().messages[3].text
    assert env.step(action(answer="9")) == (None, 0.0)


@pytest.mark.parametrize(
    ("prompts", "in_scan"),
    [
        (Prompts(), False),
        (Prompts(position="", extent=""), False),
        (Prompts(position="You are at {x:.1f}, {y:.1f}."), True),
        (checkpoint_prompts("embedded"), True),
    ],
)
def test_maps_have_the_coordinates_that_the_prompt_tells(prompts: Prompts, in_scan: bool):
    env = RoomEnv(Rules(prompts=prompts))
    env.reset()
    assert env.state.env is not None
    start = env.state.observation.pose
    assert env.state.env.sight.origin == (SCAN_ORIGIN if in_scan else start) != (start if in_scan else SCAN_ORIGIN)
