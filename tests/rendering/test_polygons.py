"""Polygons as triangles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from roomscout.rendering import geometry
from roomscout.rendering.geometry import triangulated
from roomscout.rendering.readers import read_geometry

L = [(0, 0), (4, 0), (4, 2), (2, 2), (2, 4), (0, 4)]
HOLE = [(0, 0), (6, 0), (6, 6), (0, 6), (0, 0), (2, 2), (2, 4), (4, 4), (4, 2), (2, 2)]
"""A square with a square hole, which a bridge leads to."""


def area(points: np.ndarray, triangles: np.ndarray) -> np.ndarray:
    """The sum of the triangles' oriented areas, (3,), and of their sizes."""
    a, b, c = points[triangles].swapaxes(0, 1)
    oriented = np.cross(b - a, c - a) / 2
    return np.array([*oriented.sum(axis=0), np.linalg.norm(oriented, axis=1).sum()])


@given(st.sampled_from([(L, 12), (HOLE, 32)]), st.integers(0, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_triangles_cover_a_polygon_once_however_it_lies_and_begins(shape, first, seed, backwards):
    outline, size = shape
    turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(3, 3)))[0]
    points = np.column_stack([outline, np.zeros(len(outline))]) @ turned.T
    polygon = np.roll(np.arange(len(outline)), first)[:: -1 if backwards else 1]
    places, rows = triangulated(polygon[None], points)
    *oriented, covered = area(points, polygon[places])
    assert covered == pytest.approx(size) and np.linalg.norm(oriented) == pytest.approx(size)
    assert np.sign(np.dot(oriented, turned[:, 2] * np.linalg.det(turned))) == (-1 if backwards else 1)
    assert (rows == 0).all()


def test_convex_polygons_are_fans_in_their_order():
    points = np.array([(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0.4, 0.4, 0)], dtype=float)
    places, rows = triangulated(np.array([[0, 1, 2, 3], [0, 1, 4, 3], [3, 2, 1, 0]]), points)
    assert rows.tolist() == [0, 0, 1, 1, 2, 2]
    assert places[[0, 1, 4, 5]].tolist() == [[0, 1, 2], [0, 2, 3]] * 2
    assert area(points, np.array([0, 1, 4, 3])[places[2:4]])[2] == pytest.approx(0.4)


def test_polygons_are_cut_alike_in_blocks(monkeypatch):
    points = np.random.default_rng(0).normal(size=(40, 3))
    polygons = np.arange(40).reshape(10, 4)
    whole = triangulated(polygons, points)
    monkeypatch.setattr(geometry, "POLYGONS_AT_A_TIME", 3)
    for found, expected in zip(triangulated(polygons, points), whole, strict=True):
        assert (found == expected).all()


@pytest.mark.parametrize("suffix", [".obj", ".ply"])
def test_a_concave_floor_has_its_area(tmp_path, suffix):
    rows = "".join(f"{x} {y} 0\n" for x, y in L)
    if suffix == ".obj":
        text = "".join(f"v {row}\n" for row in rows.splitlines()) + "f 2 3 4 5 6 1\n"
    else:
        text = (
            "ply\nformat ascii 1.0\nelement vertex 6\nproperty float x\nproperty float y\nproperty float z\n"
            "element face 1\nproperty list uchar int vertex_indices\nend_header\n" + rows + "6 1 2 3 4 5 0\n"
        )
    (tmp_path / f"floor{suffix}").write_text(text)
    floor = read_geometry(tmp_path / f"floor{suffix}")
    assert area(floor.vertices, floor.faces)[2:] == pytest.approx([12, 12])
