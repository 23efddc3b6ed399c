"""Which side of a scan is up: the advice on the up axis."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import trimesh

from roomscout import UpAxis
from roomscout.rendering.orientation import turned_upright
from roomscout.rendering.scene import load_scene

AXES = [axis for axis in get_args(UpAxis) if axis != "auto"]


def room(size: tuple[float, float, float], ceiling: bool = False, empty: bool = False) -> trimesh.Trimesh:
    """A room with z up, a table, a bed and a shelf."""
    x, y, z = size
    slabs = [((0, 0, -0.02), (x, y, 0)), ((0, 0, 0), (0.02, y, z)), ((x, 0, 0), (x + 0.02, y, z)),
             ((0, 0, 0), (x, 0.02, z)), ((0, y, 0), (x, y + 0.02, z)), ((0.5, 0.4, 0), (1.5, 1.2, 0.75)),
             ((x - 1.8, y - 1.1, 0), (x - 0.3, y - 0.2, 0.5)), ((x - 0.7, 0.4, 0), (x - 0.3, 1.2, 1.4))]  # fmt: skip
    slabs = slabs[:5] if empty else slabs
    slabs += [((0, 0, z), (x, y, z + 0.02))] if ceiling else []
    parts = [trimesh.creation.box(bounds=bounds) for bounds in slabs]
    return trimesh.util.concatenate(parts)


def advice(tmp_path: Path, caplog: pytest.LogCaptureFixture, mesh: trimesh.Trimesh, up: UpAxis, given: UpAxis) -> str:
    """What loading the room, saved with `up` as its upper axis, with `given` logs."""
    # Each column is where an axis goes when `up` becomes z; the transpose undoes that.
    turned = mesh.vertices @ turned_upright(np.eye(3), up).T
    scan = mesh.copy()
    scan.vertices = turned
    scan.export(tmp_path / "room.ply")
    caplog.clear()
    load_scene(tmp_path / "room.ply", given)
    return caplog.text


@pytest.mark.parametrize("up", AXES)
@pytest.mark.parametrize("size", [(5, 4, 2.5), (3, 3, 2.5), (2.4, 1.9, 2.3), (8, 1.6, 2.5)])
def test_the_advice_sets_a_room_upright(tmp_path: Path, caplog, up: UpAxis, size: tuple):
    text = advice(tmp_path, caplog, room(size), up, "z")
    assert f"set the up axis to {up}\n" in text if up != "z" else "up axis" not in text
    assert "up axis" not in advice(tmp_path, caplog, room(size), up, up)


@pytest.mark.parametrize("given", AXES)
def test_the_advice_names_an_axis_of_the_file_whatever_is_given(tmp_path: Path, caplog, given: UpAxis):
    text = advice(tmp_path, caplog, room((5, 4, 2.5)), "-y", given)
    assert "set the up axis to -y\n" in text if given != "-y" else "up axis" not in text


@pytest.mark.parametrize("size", [(5, 4, 2.5), (3, 3, 2.5), (8, 6, 5), (2, 6, 4)])
@pytest.mark.parametrize("ceiling", [False, True])
def test_an_upright_room_gets_no_advice(tmp_path: Path, caplog, size: tuple, ceiling: bool):
    text = advice(tmp_path, caplog, room(size, ceiling), "z", "z")
    assert "lie on its side," not in text and "upside down," not in text


@pytest.mark.parametrize("degrees", [25, 40])
@pytest.mark.parametrize("as_cloud", [False, True])
def test_a_tilted_scan_is_said_to_be_one_and_a_room_turned_about_the_vertical_is_not(
    degrees: int, as_cloud: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    for axis, tilted in (((1, 0, 0), True), ((0, 0, 1), False)):
        mesh = room((5, 4, 2.5)).apply_transform(trimesh.transformations.rotation_matrix(np.radians(degrees), axis))
        scan = trimesh.PointCloud(mesh.sample(4000, seed=1)) if as_cloud else mesh
        scan.export(tmp_path / "room.ply")
        caplog.clear()
        load_scene(tmp_path / "room.ply")
        assert ("seems to be tilted" in caplog.text) == tilted
