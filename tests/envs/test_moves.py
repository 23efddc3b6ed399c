"""Several moves in one turn, and moves that change the pitch."""

from collections.abc import Iterator

import pytest
from simple_rooms import closed_room

from roomscout.envs.actions import CameraAction, CameraMove
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.library import CameraSettings, OneSceneLibrary
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.renderers import make_renderer
from roomscout.runs.records import Turn, TurnSeconds

START = CameraPose(2, 2, 1.5, 0)
STEP, LEFT, DOWN = CameraMove(forward_meters=0.25), CameraMove(30.0), CameraMove(pitch_angle_degrees=-30.0)


@pytest.fixture
def env() -> Iterator[ExplorationEnv]:
    renderer = make_renderer("raycast")
    library = OneSceneLibrary(closed_room(), {}, renderer, CameraSettings((32, 24), 16.0, 1.5, 0.0))
    env = ExplorationEnv(library, 5)
    env.reset_at(closed_room(), START)
    yield env
    renderer.close()


def test_moves_follow_one_another_as_their_goal_says(env: ExplorationEnv):
    moves = CameraMove.in_order((LEFT, STEP, DOWN, STEP))
    outcome = env.outcome(moves)
    assert outcome.pose == moves.goal(START)
    assert (outcome.requested_m, outcome.moved_m) == pytest.approx((0.5, 0.5))
    assert (outcome.pose.heading_deg, outcome.pose.pitch_deg, outcome.blocked) == (30.0, -30.0, False)


def test_what_follows_a_blocked_move_is_not_carried_out(env: ExplorationEnv):
    far = CameraMove(forward_meters=2.0)
    outcome = env.outcome(CameraMove.in_order((far, far, LEFT, STEP)))
    assert outcome.blocked or outcome.clipped
    assert outcome.pose.heading_deg == 0.0
    assert outcome.requested_m == pytest.approx(4.25)
    assert outcome.moved_m == pytest.approx(outcome.pose.x_m - START.x_m)


@pytest.mark.parametrize(
    ("action", "recorded"),
    [
        (CameraAction(30.0), {}),
        (CameraAction(pitch_angle_degrees=-30.0), {"pitch_angle_degrees": -30.0}),
        (CameraAction.of(CameraMove.in_order((LEFT, DOWN))), {"then": [{"pitch_angle_degrees": -30.0}]}),
    ],
)
def test_a_record_has_pitch_and_further_moves_only_if_there_are_any(action: CameraAction, recorded: dict):
    turn = Turn(0, START, action, (), None, None, Reply(""), ("1",), TurnSeconds(0, 0, 0, 0), requested=action)
    line = turn.to_json()
    usual = ("rotation_angle_degrees", "forward_meters", "left_meters", "z_delta_meters", "answer", "done")
    assert line["action"] == {name: getattr(action, name) for name in usual} | recorded == line["requested"]
    assert list(line["action"])[:6] == list(usual)
    assert Turn.from_json(line) == turn
