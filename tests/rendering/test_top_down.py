"""The images from above, map and plan: where things lie in them, what they leave out, and the camera's mark."""

import numpy as np
import pytest
from simple_rooms import BLUE, GREEN, RED, box, scene_of

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import Geometry
from roomscout.rendering.modalities.map import MAP, UNSEEN
from roomscout.rendering.modalities.modality import SCAN_ORIGIN, Sight
from roomscout.rendering.modalities.plan import PLAN
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene
from roomscout.rendering.top_down import CAMERA as ARROW
from roomscout.rendering.top_down import PATH, TopDown

CAMERA = Intrinsics(320, 240, 150.0)
START = CameraPose(1.0, 2.0, 1.6, 90.0, -15.0)
"""Looks along +y: 1 m ahead of it is y 3, and 1 m to its left is x 0."""


def room(*more: Geometry) -> Scene:
    """A hollow room, 6 x 5 m, with a red box ahead of START to the left, a blue one to the right, a green one behind
    it."""
    return scene_of(
        box((-2, 0, 0), (4, 5, 2.5)),
        box((-1.25, 3.75, 0), (-0.75, 4.25, 0.5), RED),
        box((2.75, 3.75, 0), (3.25, 4.25, 0.5), BLUE),
        box((0.75, 0.25, 0), (1.25, 0.75, 0.5), GREEN),
        *more,
    )


def sight_of(scene: Scene, *path: CameraPose, origin: CameraPose | None = None) -> Sight:
    view = RaycastRenderer().render(scene, path[-1], CAMERA)
    return Sight(RaycastRenderer(), scene, CAMERA, path, view, origin or path[0])


def places(image: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """(K, 2) the rows and columns of the pixels of a colour."""
    return np.argwhere((np.abs(image.astype(int) - colour) <= 2).all(axis=2))


def middle(image: np.ndarray, colour: tuple[int, ...]) -> np.ndarray:
    """The row and the column of what has a colour."""
    found = places(image, colour)
    assert len(found), f"nothing is {colour}"
    return (found.min(axis=0) + found.max(axis=0)) / 2


def test_pixels_and_the_ground_below_them_agree():
    lies = TopDown.around(START, np.array([-1.0, -2.0]), np.array([3.0, 2.0]), CAMERA)
    column, row = lies.pixel(1.5, 0.5)
    beside = lies.ground[round(row), round(column)]
    assert np.linalg.norm(beside - (0.5, 3.5)) < 2 / lies.pixels_per_m
    assert lies.pixel(2.5, 0.5)[1] < row and lies.pixel(1.5, 1.5)[0] < column, "up is ahead, left is left"
    for x, y in ((-1, -2), (3, 2)):
        assert 0 < lies.pixel(x, y)[0] < lies.width and 0 < lies.pixel(x, y)[1] < lies.height


@pytest.mark.parametrize("modality", [MAP, PLAN])
@pytest.mark.parametrize("origin", [START, SCAN_ORIGIN])
def test_things_lie_at_the_coordinates_that_the_model_reads(modality, origin: CameraPose):
    image = modality.draw(sight_of(room(), START, origin=origin))
    here, red, blue = middle(image, ARROW), middle(image, RED), middle(image, BLUE)
    expected = [origin.relative(CameraPose(x, 4.0, 0.25, 0.0)) for x in (-1.0, 3.0)]
    apart = np.array([(each.x_m, each.y_m) for each in expected])
    metres_a_pixel = 4.0 / np.linalg.norm(red - blue)
    assert (red - blue) * metres_a_pixel == pytest.approx(apart[1] - apart[0], abs=0.15)
    start = origin.relative(START)
    assert (here - red) * metres_a_pixel == pytest.approx(apart[0] - (start.x_m, start.y_m), abs=0.4)


def test_a_map_has_only_what_was_seen():
    image = MAP.draw(sight_of(room(), START))
    assert not len(places(image, GREEN)) and len(places(image, UNSEEN)) > image[..., 0].size / 4
    behind = box((0.0, 0.25, 0), (0.5, 1.0, 1.5), (90, 10, 90))
    assert np.array_equal(image, MAP.draw(sight_of(room(behind), START)))
    assert len(places(MAP.draw(sight_of(room(), START, START.turned(180.0))), GREEN))
    assert len(places(PLAN.draw(sight_of(room(), START)), GREEN))


@pytest.mark.parametrize("modality", [MAP, PLAN])
def test_a_step_to_the_left_moves_the_mark_left_and_a_turn_turns_it(modality):
    here = middle(modality.draw(sight_of(room(), START)), ARROW)
    image = modality.draw(sight_of(room(), START, START.moved(0.0, 0.0, 0.8, 0.0)))
    start, left = middle(image, PATH), middle(image, ARROW)
    assert left[1] < start[1] and left[0] == pytest.approx(here[0], abs=12)
    towards = {
        turned: middle(modality.draw(sight_of(room(), START, START.turned(turned))), ARROW) for turned in (90, -90)
    }
    assert towards[90][1] < towards[-90][1] - 5, "lines to the left and right bound the view"
