"""Which objects a view shows: rooms where it is known by construction."""

import numpy as np
import pytest
from simple_rooms import GREEN, RED, box, scene_of

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.renderers.raycast import faces_in_view
from roomscout.rendering.scene import Scene, make_scene
from roomscout.rendering.visibility import Boxes, fitting, object_at_each_pixel, object_pixels
from roomscout.rooms.room import Room, make_room

CAMERA = Intrinsics(200, 200, 100.0)
AHEAD = CameraPose(1, 2.5, 1.25, 0)
UPRIGHT = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
SHELL = box((0, 0, 0), (6, 5, 2.5))
CUBE = box((3, 2, 0.75), (4, 3, 1.75), RED)
CUBES_BOX = ((3.5, 2.5, 1.25), (1, 1, 1), UPRIGHT)


def pixels(scene: Scene, *boxes, pose: CameraPose = AHEAD, camera: Intrinsics = CAMERA) -> list[int]:
    return object_pixels(scene, pose, camera, Boxes.of(boxes)).tolist()


def test_a_face_of_a_metre_two_metres_ahead_covers_half_the_focal_length_squared():
    assert pixels(scene_of(SHELL, CUBE), CUBES_BOX) == [50 * 50]


def test_an_object_behind_a_wall_is_at_no_pixel():
    wall = box((2, 0, 0), (2.1, 5, 2.5), GREEN)
    assert pixels(scene_of(SHELL, CUBE, wall), CUBES_BOX) == [0]


def test_an_object_half_behind_a_wall_is_at_half_its_pixels():
    wall = box((2, 2.5, 0), (2.1, 5, 2.5), GREEN)
    assert pixels(scene_of(SHELL, CUBE, wall), CUBES_BOX) == [50 * 25]


def test_of_overlapping_boxes_the_smallest_has_the_surface():
    around = ((3.5, 2.5, 1.25), (2, 2, 2), UPRIGHT)
    assert pixels(scene_of(SHELL, CUBE), around, CUBES_BOX) == [0, 2500]


def test_the_floor_below_a_table_is_not_the_table():
    table = ((3.5, 2.5, 0.4), (2, 2, 0.8), UPRIGHT)
    assert pixels(scene_of(SHELL), table, pose=CameraPose(1, 2.5, 1.25, 0, -25)) == [0]


def test_a_tilted_box_has_its_own_axes():
    turned = ((3.5, 2.5, 1.25), (1, 1, 1), ((0, 0, 1), (0.6, 0.8, 0), (-0.8, 0.6, 0)))
    half = pixels(scene_of(SHELL, CUBE), turned)[0]
    assert 0 < half < 2500  # the cube's corners stick out of it


def test_a_large_view_is_sampled_and_its_pixels_are_those_of_the_view(monkeypatch):
    cameras = []

    def noting_the_camera(scene, pose, camera, boxes):
        cameras.append(camera)
        return object_at_each_pixel(scene, pose, camera, boxes)

    monkeypatch.setattr("roomscout.rendering.visibility.object_at_each_pixel", noting_the_camera)
    large = pixels(scene_of(SHELL, CUBE), CUBES_BOX, camera=Intrinsics(2000, 1500, 1000.0))
    pixels(scene_of(SHELL, CUBE), CUBES_BOX, camera=Intrinsics(640, 480, 300.0))
    assert cameras == [Intrinsics(1000, 750, 500.0), Intrinsics(640, 480, 300.0)]
    assert large[0] == pytest.approx(500 * 500, rel=0.03)


@pytest.mark.parametrize(("thickness", "gap"), [(0.005, 0.0), (0.005, 0.004), (0.002, 0.005), (0.0, 0.002)])
def test_an_object_behind_a_wall_of_millimetres_is_at_no_pixel(thickness: float, gap: float):
    end = 3 - gap
    wall = box((end - thickness, 0, 0), (end, 5, 2.5), GREEN)
    assert pixels(scene_of(SHELL, CUBE, wall), CUBES_BOX) == [0]


@pytest.fixture(scope="module")
def furnished() -> Room:
    return make_room(3)


def test_in_a_furnished_room_pixels_are_those_whose_face_is_the_objects(furnished: Room):
    mesh, camera = furnished.mesh, Intrinsics(288, 160, 105.0)
    scene = make_scene("room", Geometry(mesh.vertices, mesh.faces, mesh.colours))
    assert len(scene.surface.faces) == len(mesh.faces)
    boxes = Boxes.of((o.box.center, o.box.size, directions(o.box.yaw_deg)) for o in furnished.objects)
    owner = np.append(mesh.object_index[mesh.faces[:, 0]], -1)
    middle = scene.bounds.middle
    same, total, wrong = 0, 0, []
    for heading in range(0, 360, 45):
        pose = CameraPose(middle[0], middle[1], 1.6, heading, -15)
        true = owner[faces_in_view(scene, pose, camera)]
        found = object_at_each_pixel(scene, pose, camera, boxes)
        same, total = same + np.count_nonzero(true == found), total + true.size
        counts = [np.bincount(each[each >= 0], minlength=len(boxes)) for each in (true, found)]
        wrong += [abs(int(a) - int(b)) for a, b in zip(*counts, strict=True) if (a == 0) != (b == 0)]
    assert same / total > 0.97  # the others are a strip of wall around a window, and the wall beside a round clock
    assert max(wrong, default=0) < 10  # never seen or seen: they differ by a few pixels at most


def directions(yaw_deg: float) -> np.ndarray:
    yaw = np.radians(yaw_deg)
    return np.array([[np.cos(yaw), np.sin(yaw), 0], [-np.sin(yaw), np.cos(yaw), 0], [0, 0, 1]])


@pytest.mark.parametrize("offset", [(1.5, 0, 0), (0, 0, 0.7), (-9, 4, 0)])
def test_boxes_elsewhere_do_not_fit_the_surface(offset: tuple[float, float, float]):
    scene = scene_of(SHELL, CUBE)
    moved = tuple(np.add(CUBES_BOX[0], offset))
    boxes = Boxes.of([CUBES_BOX, (moved, *CUBES_BOX[1:])])
    assert fitting(scene.surface_points, boxes).tolist() == [True, False]
