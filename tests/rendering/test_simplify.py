"""Simplified scans: fewer faces, with the shapes and the colours of the scan."""

import numpy as np
from simple_rooms import RED, box, scene_of

from roomscout.rendering.geometry import NO_FACES, Geometry
from roomscout.rendering.scene import Scene, make_scene
from roomscout.rendering.simplify import simplified


def room_with_red_boxes() -> Scene:
    """A room of 6 x 5 x 2.5 m with 20 small red boxes in a row on its floor."""
    small = [box((x, 1, 0), (x + 0.1, 1.1, 0.1), RED) for x in np.arange(1, 5, 0.2)]
    return scene_of(box((0, 0, 0), (6, 5, 2.5)), *small)


def test_a_small_mesh_stays_as_it_is():
    scene = room_with_red_boxes()
    found = simplified(scene, len(scene.faces))
    assert found.cell_m == 0
    assert np.array_equal(found.vertices[found.faces], scene.vertices[scene.faces])


def test_a_large_mesh_keeps_places_and_colours_with_fewer_faces():
    scene = room_with_red_boxes()
    found = simplified(scene, 100)
    assert 0 < len(found.faces) <= 100 < len(scene.faces)
    assert np.abs(found.vertices.max(axis=0) - [6, 5, 2.5]).max() < 2 * found.cell_m
    assert (found.colours[:, 0].astype(int) - found.colours[:, 1] > 100).any()


def test_a_cloud_stays_points_that_close_its_surface():
    points = np.random.default_rng(0).random((2000, 3), dtype=np.float32) * (4, 4, 0.01)
    found = simplified(make_scene("cloud", Geometry(points.astype(np.float32), NO_FACES)), 500)
    assert len(found.faces) == 0 < len(found.vertices) <= 500
    assert 0.03 < (16 / len(found.vertices)) ** 0.5 / 2 < found.point_m < 1
