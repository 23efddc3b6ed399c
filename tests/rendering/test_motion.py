import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simple_rooms import box, closed_room, scene_of

from roomscout.rendering.camera import CameraPose
from roomscout.rendering.motion import CLEARANCE_M, MoveOutcome, move
from roomscout.rendering.scene import Scene

ROOM = closed_room()
# A wall at x = 3 with a door at y = 1..2, and a floating table top 4 cm thick.
DIVIDED_ROOM = scene_of(
    box((0, 0, 0), (6, 5, 2.5)),
    box((2.95, 0, 0), (3.05, 1, 2.5)),
    box((2.95, 2, 0), (3.05, 5, 2.5)),
    box((4, 3, 0.7), (5, 4, 0.74)),
)
# No walls or ceiling; a block in the corner gives the bounds their height.
OPEN_FLOOR = scene_of(box((0, 0, -0.02), (6, 5, 0)), box((5, 4, 0), (5.9, 4.9, 1.8)))


def moved(scene: Scene, pose: CameraPose, *step: float) -> MoveOutcome:
    return move(scene, pose, pose.moved(*step))


STEPS = st.tuples(st.floats(-180, 180), st.floats(-3, 3), st.floats(-3, 3), st.floats(-1, 1))


def test_an_unobstructed_move_is_complete():
    outcome = moved(ROOM, CameraPose(2, 2, 1.5, 0), 90, 1.0, 0.5, 0.1)
    assert outcome.pose.position == pytest.approx([1.5, 3.0, 1.6])
    assert outcome.pose.heading_deg == 90
    assert outcome.moved_m == pytest.approx(outcome.requested_m)
    assert not outcome.blocked
    assert not outcome.clipped


def test_a_wall_blocks_a_move_at_the_clearance():
    outcome = moved(DIVIDED_ROOM, CameraPose(2, 4, 1.5, 0), 0, 2.0, 0, 0)
    assert outcome.pose.x_m == pytest.approx(2.95 - CLEARANCE_M, abs=1e-4)
    assert outcome.moved_m == pytest.approx(0.75, abs=1e-3)
    assert outcome.blocked
    assert not outcome.clipped


def test_a_move_passes_through_a_door():
    outcome = moved(DIVIDED_ROOM, CameraPose(2, 1.5, 1.5, 0), 0, 2.0, 0, 0)
    assert outcome.pose.x_m == pytest.approx(4.0)


def test_a_thin_edge_just_below_the_eye_blocks():
    outcome = moved(DIVIDED_ROOM, CameraPose(3.4, 3.5, 0.85, 0), 0, 1.5, 0, 0)
    assert outcome.blocked
    assert outcome.pose.x_m == pytest.approx(4 - CLEARANCE_M, abs=1e-3)


def test_bounds_clip_a_move():
    outcome = moved(OPEN_FLOOR, CameraPose(4, 2, 1.0, 0), 0, 5.0, 0, 0)
    assert outcome.clipped
    assert not outcome.blocked
    assert outcome.pose.x_m == pytest.approx(OPEN_FLOOR.bounds.upper[0])


@pytest.mark.parametrize("turn", [90, 180, 270, 120])
def test_a_camera_closer_than_the_clearance_can_move_away(turn):
    outcome = moved(DIVIDED_ROOM, CameraPose(2.9, 4, 1.5, 0), turn, 0.5, 0, 0)
    assert outcome.moved_m == pytest.approx(0.5)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=12))
def test_no_sequence_of_moves_leaves_the_room_or_crosses_a_wall(steps):
    pose = CameraPose(1.5, 3.5, 1.5, 0)
    for step in steps:
        before = pose.position
        outcome = moved(DIVIDED_ROOM, pose, *step)
        pose = outcome.pose
        assert (pose.position >= DIVIDED_ROOM.bounds.lower).all()
        assert (pose.position <= DIVIDED_ROOM.bounds.upper).all()
        assert outcome.moved_m <= outcome.requested_m + 1e-6
        if (before[0] - 3) * (pose.x_m - 3) < 0:
            share = (3 - before[0]) / (pose.x_m - before[0])
            assert 1 < before[1] + share * (pose.y_m - before[1]) < 2


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=6))
def test_opposite_turns_cancel_out(steps):
    pose = CameraPose(1.5, 3.5, 1.5, 40)
    for rotation, *_ in steps:
        pose = moved(ROOM, pose, rotation, 0, 0, 0).pose
    for rotation, *_ in reversed(steps):
        pose = moved(ROOM, pose, -rotation, 0, 0, 0).pose
    assert pose.camera_to_world == pytest.approx(CameraPose(1.5, 3.5, 1.5, 40).camera_to_world, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=8))
def test_a_camera_never_gets_stuck(steps):
    pose = CameraPose(1.5, 3.5, 1.5, 0)
    for step in steps:
        pose = moved(DIVIDED_ROOM, pose, *step).pose
    turns = np.arange(0, 360, 30)
    assert max(moved(DIVIDED_ROOM, pose, turn, 0.3, 0, 0).moved_m for turn in turns) > 0.1
