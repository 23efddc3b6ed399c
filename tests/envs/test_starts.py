"""Starts of questions, checked against the scan: which coordinate is wrong, and what the camera would be in."""

import pytest
from simple_rooms import box, scene_of

from roomscout.data.scan_frames import Start
from roomscout.envs.starts import start_pose
from roomscout.rendering.scene import Scene, SceneError

PLACE = {"x_m": 2.0, "y_m": 2.0, "heading_deg": 0.0}


@pytest.fixture(scope="module")
def house() -> Scene:
    """Two storeys, the upper one smaller, with a wall of 0.1 m, a wide pillar and slabs of 0.3 m."""
    return scene_of(
        box((0, 0, -0.3), (10, 6, 0)),
        box((0, 0, 2.7), (5, 6, 3.0)),
        box((0, 0, 5.5), (5, 6, 5.7)),
        *(box((x, 0, 0), (x + 0.1, 6, 5.5)) for x in (0.0, 4.9)),
        box((9.9, 0, 0), (10, 6, 2.7)),
        box((5, 0, 2.7), (10, 6, 2.9)),
        box((3.0, 0, 0), (3.1, 4, 2.7)),
        box((1, 4, 0), (1.6, 4.6, 2.7)),
    )


WRONG_PLACES = {
    "x": ({"x_m": 11}, "x 0.00 to 10.00 m"),
    "y": ({"y_m": -0.6}, "y 0.00 to 6.00 m"),
    "above": ({"z_m": 9}, "z -0.30 to 5.70 m"),
    "below": ({"z_m": -0.4}, "z -0.30 to 5.70 m"),
    "a far grid": ({"x_m": 500_002, "y_m": 4_000_003}, "x 0.00 to 10.00, y 0.00 to 6.00 m"),
}


@pytest.mark.parametrize("name", WRONG_PLACES)
def test_a_start_outside_says_which_coordinate(house: Scene, name: str):
    changed, said = WRONG_PLACES[name]
    with pytest.raises(SceneError, match=f"outside the scan, which is from .*{said}"):
        start_pose(house, Start.read(PLACE | changed), 1.6, 0.0)


INSIDE = {
    "a wall": ({"x_m": 3.05, "z_m": 1.6}, "is in a wall, a ceiling or furniture, or 0.0"),
    "the floor between": ({"z_m": 3.05}, "is in the floor, or what stands on it, or 0.0"),
    "a pillar": ({"x_m": 1.3, "y_m": 4.3, "z_m": 1.6}, "all around it are the backs"),
}


@pytest.mark.parametrize("name", INSIDE)
def test_a_start_inside_a_surface_is_warned_of(house: Scene, caplog: pytest.LogCaptureFixture, name: str):
    changed, said = INSIDE[name]
    start_pose(house, Start.read(PLACE | changed), 1.6, 0.0)
    assert said in caplog.text


@pytest.mark.parametrize("place", [{}, {"z_m": 4.6}, {"x_m": -0.4}, {"x_m": 3.5, "z_m": 0.5}])
def test_a_free_start_is_not(house: Scene, caplog: pytest.LogCaptureFixture, place: dict):
    start_pose(house, Start.read(PLACE | place), 1.6, 0.0)
    assert not caplog.text


WITHOUT_A_HEIGHT = {
    "on both floors": ({}, 1.6),
    "over a table": ({"x_m": 2.5, "y_m": 5.0}, 1.6),
    "beside the ground floor": ({"x_m": 6.5}, 4.6),
}


@pytest.mark.parametrize("name", WITHOUT_A_HEIGHT)
def test_a_start_without_a_height_is_on_the_main_floor_unless_only_another_one_is_there(name: str):
    changed, z_m = WITHOUT_A_HEIGHT[name]
    house = scene_of(
        box((0, 0, -0.3), (6, 6, 0)),
        box((0, 0, 2.7), (7, 6, 3.0)),
        box((0, 0, 5.5), (7, 6, 5.7)),
        box((2, 4.5, 0), (3, 5.5, 0.75)),
        *(box((x, 0, 0), (x + 0.1, 6, 5.5)) for x in (0.0, 5.9)),
    )
    assert [storey.floor_z_m for storey in house.storeys] == pytest.approx([0, 3], abs=0.01)
    assert house.main_storey.floor_z_m == pytest.approx(0, abs=0.01), "the larger one is not much larger"
    assert start_pose(house, Start.read(PLACE | changed), 1.6, 0.0).z_m == pytest.approx(z_m, abs=0.01)


@pytest.mark.parametrize(
    ("start", "wrong"),
    [
        (PLACE | {"pitch_deg": 120}, "pitch_deg: Input should be less than or equal to 90"),
        (PLACE | {"pitch_deg": float("nan")}, "pitch_deg"),
        (PLACE | {"heading_deg": 1e300}, "heading_deg: Input should be less than or equal to 360"),
        (PLACE | {"z_m": float("inf")}, "z_m"),
        ("0,0,90", r'must be an object such as \{"x_m": 1.5, "y_m": -2, "heading_deg": 90\}$'),
        ("{", r'must be an object such as \{"x_m": 1.5, "y_m": -2, "heading_deg": 90\}$'),
        (5, "must be an object"),
        ([1, 2, 3], "must be an object"),
    ],
)
def test_a_start_that_is_none_is_refused_in_one_sentence(start: object, wrong: str):
    with pytest.raises(ValueError, match=wrong):
        Start.read(start)
