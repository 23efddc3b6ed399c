"""Storeys of small buildings, as meshes and as noisy clouds."""

import numpy as np
import pytest
from simple_rooms import box, scene_of

from roomscout.rendering.camera import Intrinsics
from roomscout.rendering.geometry import NO_FACES, Geometry
from roomscout.rendering.paths import Paths
from roomscout.rendering.renderers.raycast import RaycastRenderer
from roomscout.rendering.scene import Scene, SceneError, load_scene, make_scene
from roomscout.rendering.top_down import cut_z_m, plan_view
from roomscout.rendering.views import first_view
from roomscout.rooms.writer import ply_of

WIDTH, DEPTH = 8.0, 6.0  # metres


def slab(z, thick=0.2, x=(0.0, WIDTH), y=(0.0, DEPTH)):
    """A floor whose upper side is at z."""
    return box((x[0], y[0], z - thick), (x[1], y[1], z))


def with_hole(z):
    """A floor with a hole of 2 x 2 m for stairs."""
    return [slab(z, y=(0, 2)), slab(z, x=(0, 3), y=(2, 6)), slab(z, x=(5, 8), y=(2, 6)), slab(z, x=(3, 5), y=(4, 6))]


def walls(lower, upper, thick=0.1):
    """Four walls."""
    return [
        box((0, 0, lower), (WIDTH, thick, upper)),
        box((0, DEPTH - thick, lower), (WIDTH, DEPTH, upper)),
        box((0, 0, lower), (thick, DEPTH, upper)),
        box((WIDTH - thick, 0, lower), (WIDTH, DEPTH, upper)),
    ]


LAWN = box((-60, -60, -0.05), (60, 60, 0))
TABLE = box((2, 2, 0), (4, 4, 0.75))
DESKS = [box((x, 0.5, 0), (x + 1.5, 5.5, 0.75)) for x in (0.5, 2.5, 4.5)]
GARDEN = [
    slab(0, 0.05, x=(-6, 0), y=(-7, 13)),
    slab(0, 0.05, x=(8, 14), y=(-7, 13)),
    slab(0, 0.05, y=(-7, 0)),
    slab(0, 0.05, y=(6, 13)),
]
SLOPE = [slab(0.05 * x, 0.05, x=(x, x + 2), y=(-60, 60)) for x in range(-60, 60, 2)]
STRAYS = [box((x, y, 3.6), (x + 0.02, y + 0.02, 3.62)) for x in (1, 3, 5) for y in (1, 3, 5)]
TALL_ROOM = [slab(0), *walls(0, 3.1), slab(3.3)]
BUILDINGS = {
    "a room on a slab": ([slab(0), *walls(0, 2.6), slab(2.8)], [0]),
    "a room on a thin slab": ([slab(0, 0.1), *walls(0, 2.6), slab(2.8)], [0]),
    "a room without a roof": ([slab(0), *walls(0, 2.5), TABLE], [0]),
    "a closed box": ([box((0, 0, 0), (WIDTH, DEPTH, 2.5))], [0]),
    "two equal storeys": ([slab(0), *walls(0, 5.8), slab(3), slab(6)], [0, 3]),
    "an upper storey with a hole": ([slab(0), *walls(0, 5.8), *with_hole(3), slab(6)], [0, 3]),
    "two storeys without a roof": ([slab(0), *walls(0, 5.8), slab(3)], [0, 3]),
    "three storeys": ([slab(0), *walls(0, 8.8), slab(3), slab(6), slab(9)], [0, 3, 6]),
    "an attic too low to stand in": ([slab(0), *walls(0, 4.2), slab(2.8), slab(4.4)], [0]),
    "a house on a lawn": ([slab(0.2), *walls(0.2, 5.8), *with_hole(3.2), slab(6), LAWN], [0.2, 3.2]),
    "a high room full of desks": ([*TALL_ROOM, *DESKS], [0]),
    "a bed under a part of a ceiling": (
        [slab(0), *walls(0, 2.6), box((1, 1, 0), (4, 5, 0.5)), slab(2.8, x=(0, 4))],
        [0],
    ),
    "a stage on most of a floor": ([*TALL_ROOM, box((0, 0, 0), (5, 6, 0.6))], [0]),
    "a bungalow with a steep roof": (
        [*TALL_ROOM, *(box((x, 0, 3.2 + x), (x + 0.5, 6, 3.3 + x)) for x in np.arange(0, 8, 0.5))],
        [0],
    ),
    "points above a roof": ([*TALL_ROOM, *STRAYS], [0]),
    "a house with a cellar in a garden": ([slab(-2.6), *walls(-2.6, 2.6), slab(0), slab(2.8), *GARDEN], [-2.6, 0]),
    "a house on a slope": ([slab(1), *walls(-0.5, 3.6), slab(3.8), *SLOPE], [1]),
    "a tower beside the roof of a hall": (
        [slab(0, x=(0, 20)), slab(3.2, x=(0, 20)), box((19.9, 0, 0), (20, 6, 3)), *walls(0, 6), slab(6.2)],
        [0, 3.2],
    ),
    "a house without a roof on a lawn": ([slab(0.2), *walls(0.2, 2.8), LAWN], [0.2]),
}


@pytest.mark.parametrize("name", BUILDINGS)
def test_a_building_has_its_storeys(name: str):
    parts, floors = BUILDINGS[name]
    scene = scene_of(*parts)
    assert [storey.floor_z_m for storey in scene.storeys] == pytest.approx(floors, abs=0.01)
    start = first_view(scene, RaycastRenderer(), Intrinsics(64, 48, 32.0), 1.6, 0.0).pose
    assert start.z_m == pytest.approx(scene.main_storey.floor_z_m + 1.6, abs=0.01)
    assert scene.storeys[-1].bounds.lower[:2] == pytest.approx([0, 0], abs=0.5)
    assert scene.storeys[-1].bounds.upper[:2] == pytest.approx([WIDTH, DEPTH], abs=0.5)


def test_low_walls_and_a_tall_corner_are_no_building_on_a_lawn():
    side_m = 9.0
    rim = [
        (0, 0, side_m, 0.1),
        (0, side_m - 0.1, side_m, side_m),
        (0, 0, 0.1, side_m),
        (side_m - 0.1, 0, side_m, side_m),
    ]
    scene = scene_of(
        slab(0, x=(0, side_m), y=(0, side_m)),
        *(box((x0, y0, 0), (x1, y1, 0.8)) for x0, y0, x1, y1 in rim),
        box((0.1, 0.1, 0), (0.7, 3, 2.2)),
        box((0.7, 0.1, 0), (3, 0.7, 2.2)),
    )
    assert scene.bounds.extent[:2] == pytest.approx([side_m] * 2, rel=0.05)


@pytest.mark.parametrize("name", ["a room on a slab", "an upper storey with a hole", "three storeys"])
def test_a_noisy_cloud_has_the_storeys_of_its_building(name: str):
    parts, floors = BUILDINGS[name]
    rng = np.random.default_rng(1)
    clean = np.concatenate([scene_of(*parts).surface_points] * 3)
    points = (clean + rng.normal(0, 0.01, clean.shape)).astype(np.float32)
    cloud = make_scene("cloud", Geometry(points, NO_FACES, np.full((len(points), 3), 90, np.uint8)))
    assert [storey.floor_z_m for storey in cloud.storeys] == pytest.approx(floors, abs=0.05)


@pytest.fixture(scope="module")
def house() -> Scene:
    """Two storeys with a hole between them, and a box of another colour upstairs."""
    parts, _ = BUILDINGS["an upper storey with a hole"]
    return scene_of(*parts, box((6, 1, 3), (7, 2, 4), (220, 20, 20)))


@pytest.mark.parametrize(("z_m", "floor_z_m"), [(1.6, 0), (2.9, 0), (3.0, 3), (4.6, 3), (-1.0, 0)])
def test_the_storey_of_a_camera_is_that_under_it(house: Scene, z_m: float, floor_z_m: float):
    assert house.storey_at(z_m).floor_z_m == pytest.approx(floor_z_m, abs=0.01)


def test_each_storey_has_its_plan(house: Scene):
    red = [(plan_view(house, 120, storey)[0] == (220, 20, 20)).all(axis=-1).mean() for storey in house.storeys]
    assert red[0] == 0
    assert red[1] == pytest.approx(1 / 48, rel=0.3)
    assert [cut_z_m(storey) for storey in house.storeys] == pytest.approx([2, 5], abs=0.01)


def test_paths_lead_over_the_storey_of_their_start(house: Scene):
    paths = Paths(house, np.array([1.0, 1.0, 4.6]), 2.0)
    assert paths.places[:, 2] == pytest.approx(4.6)
    assert np.isfinite(paths.lengths).mean() > 0.5


def test_a_long_building_is_told_the_limit_and_far_points_are_told_as_such(tmp_path):
    hall = [slab(0, x=(at, at + 2.0)) for at in range(0, 260, 2)]
    (tmp_path / "hall.ply").write_bytes(ply_of(scene_of(*hall)))
    with pytest.raises(SceneError, match="if it is so large, cut it into parts of at most 200 m"):
        load_scene(tmp_path / "hall.ply")
    (tmp_path / "strays.ply").write_bytes(ply_of(scene_of(*hall[:40], *[slab(0, x=(400, 402))] * 4)))
    with pytest.raises(SceneError, match="32 of its 352 points are far from the others"):
        load_scene(tmp_path / "strays.ply")
