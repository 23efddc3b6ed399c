import numpy as np
from simple_rooms import box, closed_room, scene_of

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.views import SurfaceCoverage

CAMERA = Intrinsics(160, 96, 75.0)
# A wall at x = 3 without a door: each half sees nothing of the other.
HALVES = scene_of(box((0, 0, 0), (6, 5, 2.5)), box((2.95, 0, 0), (3.05, 5, 2.5)))


def test_a_view_shows_the_wall_ahead_and_nothing_behind_the_camera():
    coverage = SurfaceCoverage(closed_room())
    seen = coverage.points[coverage.seen_from(CameraPose(3, 2.5, 1.25, 0), CAMERA)]
    assert len(seen)
    assert seen[:, 0].min() > 3


def test_a_wall_hides_what_is_behind_it():
    coverage = SurfaceCoverage(HALVES)
    seen = coverage.points[coverage.seen_from(CameraPose(1.5, 2.5, 1.25, 0), CAMERA)]
    assert seen[:, 0].max() <= 3.0


def test_the_share_grows_with_each_new_view_and_not_with_a_repeated_one():
    coverage = SurfaceCoverage(closed_room())
    first = coverage.add(CameraPose(3, 2.5, 1.25, 0), CAMERA)
    again = coverage.add(CameraPose(3, 2.5, 1.25, 0), CAMERA)
    turned = coverage.add(CameraPose(3, 2.5, 1.25, 180), CAMERA)
    assert 0 < first == again < turned < 1


def test_the_mask_agrees_with_frame_and_line_of_sight():
    coverage, pose = SurfaceCoverage(HALVES), CameraPose(1.5, 2.5, 1.25, 30, -15)
    both = coverage.in_frame(pose, CAMERA) & coverage.unobstructed(pose.position)
    assert np.array_equal(coverage.seen_from(pose, CAMERA), both)
