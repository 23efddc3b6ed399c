import numpy as np
import pytest
from simple_rooms import box, closed_room, scene_of

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.renderers import make_renderer
from roomscout.rendering.scene import make_scene
from roomscout.rendering.views import first_view, project, start_position

VIEW = Intrinsics(160, 128, 80.0)
RAYCAST = make_renderer("raycast")


def test_the_start_is_in_the_middle_of_an_empty_room():
    assert start_position(closed_room(), 1.6) == pytest.approx([3, 2.5, 1.6], abs=0.1)


def test_the_camera_stays_below_a_low_ceiling():
    low = scene_of(box((0, 0, 0), (4, 4, 1.4)))
    assert start_position(low, 1.6)[2] == pytest.approx(1.2, abs=0.05)


def test_the_start_is_inside_an_l_shaped_room():
    # Two wings, along x and y; the middle of the bounds (3, 3) is outside the room.
    wings = scene_of(
        box((0, 0, -0.02), (6, 2, 0)),
        box((0, 2, -0.02), (2, 6, 0)),
        box((0, -0.02, 0), (6, 0, 2.5)),
        box((-0.02, 0, 0), (0, 6, 2.5)),
        box((2, 2, 0), (6, 2.02, 2.5)),
        box((2, 2, 0), (2.02, 6, 2.5)),
    )
    x, y, _ = start_position(wings, 1.6)
    assert min(x, y) < 2


def wardrobe(half_m):
    return box((3 - half_m, 2.5 - half_m, 0.0), (3 + half_m, 2.5 + half_m, 2.2))


def is_outside_wardrobe(position, half_m):
    return max(abs(position[0] - 3), abs(position[1] - 2.5)) > half_m + 0.2


@pytest.mark.parametrize("half_m", [0.5, 0.9])
def test_the_start_is_not_inside_a_wardrobe(half_m):
    assert is_outside_wardrobe(start_position(scene_of(box((0, 0, 0), (6, 5, 2.5)), wardrobe(half_m)), 1.6), half_m)


@pytest.mark.parametrize(
    "corners",
    [
        [(0, 0, 0), (0, 4, 0), (0, 4, 3)],
        [(0, 0, 0), (4, 0, 1), (4, 0, 3)],
        [(0, 0, 0), (4, 0, 0), (4, 4, 0)],
        [(1, 2, 3)] * 3,
    ],
)
def test_a_scan_of_a_single_wall_or_point_has_a_start(corners):
    lone = Geometry(np.float32(corners), np.array([[0, 1, 2]], dtype=np.int32), np.zeros((3, 3), dtype=np.uint8))
    assert np.isfinite(start_position(make_scene("lone", lone), 1.6)).all()


def test_the_start_is_not_above_a_table():
    room = scene_of(box((0, 0, 0), (6, 5, 2.5)), box((2.4, 2.0, 0.7), (3.6, 3.0, 0.75)))
    x, y, _ = start_position(room, 1.6)
    assert abs(x - 3) > 0.6 or abs(y - 2.5) > 0.5


def test_visibility_prefers_the_heading_with_the_most_surface():
    # A strip of floor leads to a wall at +y; the other directions are empty.
    scene = scene_of(box((-0.5, -0.5, -0.02), (0.5, 4, 0)), box((-2, 4, 0), (2, 4.02, 2.5)))
    assert first_view(scene, RAYCAST, VIEW, 1.6, 0.0).pose.heading_deg == 90


def test_projection_puts_a_point_straight_ahead_in_the_middle():
    pixels, depths = project(np.array([[3.0, 0.0, 1.0], [-3.0, 0.0, 1.0]]), CameraPose(0, 0, 1, 0), VIEW)
    assert pixels[0] == pytest.approx([80, 64])
    assert depths == pytest.approx([3, -3])
