import pytest
from hypothesis import given
from hypothesis import strategies as st

from roomscout.rendering.camera import CameraPose, Intrinsics

ANGLES = st.floats(-720, 720, allow_nan=False)
LENGTHS = st.floats(-10, 10, allow_nan=False)
POSES = st.builds(CameraPose, LENGTHS, LENGTHS, LENGTHS, st.floats(0, 359), st.floats(-80, 80))
VIEW = Intrinsics(640, 480, 300.0)


def pixel(pose: CameraPose, point) -> tuple[float, float]:
    """Column and row at which `point` is projected."""
    camera = pose.world_to_camera @ [*point, 1.0]
    u, v, w = VIEW.matrix @ camera[:3]
    assert w > 0
    return u / w, v / w


@pytest.mark.parametrize(("heading", "look"), [(0, (1, 0, 0)), (90, (0, 1, 0)), (180, (-1, 0, 0)), (270, (0, -1, 0))])
def test_heading_is_counter_clockwise_from_plus_x(heading, look):
    assert CameraPose(0, 0, 0, heading).camera_to_world[:3, 2] == pytest.approx(look, abs=1e-12)


@given(POSES, ANGLES)
def test_turning_there_and_back_is_the_identity(pose, angle):
    back = pose.turned(angle).turned(-angle)
    assert back.camera_to_world == pytest.approx(pose.camera_to_world, abs=1e-9)


@given(POSES, LENGTHS, LENGTHS, LENGTHS)
def test_moving_there_and_back_is_the_identity(pose, forward, left, up):
    back = pose.moved(0, forward, left, up).moved(0, -forward, -left, -up)
    assert back.position == pytest.approx(pose.position, abs=1e-9)


def test_camera_turns_before_it_moves():
    assert CameraPose(0, 0, 0, 0).moved(90, 2, 0, 0).position == pytest.approx([0, 2, 0], abs=1e-12)


def test_a_point_straight_ahead_is_in_the_middle_of_the_image():
    assert pixel(CameraPose(1, 2, 1.5, 90), (1, 5, 1.5)) == pytest.approx((320, 240))


def test_a_point_to_the_upper_left_is_in_the_upper_left_of_the_image():
    column, row = pixel(CameraPose(0, 0, 0, 0), (3, 1, 0.5))
    assert column == pytest.approx(320 - 100)
    assert row == pytest.approx(240 - 50)


def test_a_left_strafe_moves_a_landmark_right():
    pose = CameraPose(0, 0, 0, 0)
    assert pixel(pose.moved(0, 0, 0.5, 0), (3, 0, 0))[0] == pytest.approx(370)


def test_a_left_turn_moves_a_landmark_right():
    assert pixel(CameraPose(0, 0, 0, 0).turned(10), (3, 0, 0))[0] > 320
