"""Scans are found in every supported layout, and never outside the root."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roomscout.base.errors import in_words
from roomscout.data.questions import Question
from roomscout.data.scans import ScanNotFound, find_scan, missing_scans, scan_table
from tests.conftest import vsi_question

LAYOUTS = [
    ("arkitscenes", "arkitscenes/raw/Validation/42446167/42446167_3dod_mesh.ply"),
    ("arkitscenes", "arkitscenes/raw/Training/42446167/42446167_3dod_mesh.ply"),
    ("arkitscenes", "arkitscenes/3dod/Validation/42446167/42446167_3dod_mesh.ply"),
    ("arkitscenes", "arkitscenes/Validation/42446167/42446167_3dod_mesh.ply"),
    ("arkitscenes", "raw/Training/42446167/42446167_3dod_mesh.ply"),
    ("arkitscenes", "Validation/42446167/42446167_3dod_mesh.ply"),
    ("arkitscenes", "42446167/42446167_3dod_mesh.ply"),
    ("scannet", "scannet/scans/42446167/42446167_vh_clean_2.ply"),
    ("scannet", "scannet/42446167/42446167_vh_clean_2.ply"),
    ("scannet", "scans/42446167/42446167_vh_clean.ply"),
    ("scannet", "42446167/42446167_vh_clean.ply"),
    ("scannetpp", "scannetpp/data/42446167/scans/mesh_aligned_0.05.ply"),
    ("scannetpp", "scannetpp/42446167/scans/mesh_aligned_0.05.ply"),
    ("scannetpp", "data/42446167/scans/mesh_aligned_0.05.ply"),
    ("3rscan", "3rscan/42446167/mesh.refined.v2.obj"),
    ("3rscan", "3RScan/42446167/mesh.refined.v2.obj"),
    ("multiscan", "multiscan/42446167/42446167.ply"),
    ("multiscan", "MultiScan/42446167/textured_mesh/42446167.obj"),
    ("scannet", "42446167.ply"),
    ("my rooms", "42446167.glb"),
    ("my rooms", "42446167.gltf"),
    ("my rooms", "42446167.pcd"),
    ("my rooms", "my rooms/42446167.obj"),
    ("my rooms", "42446167/42446167.ply"),
]


def touch(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"ply\n")
    return path


@pytest.mark.parametrize(("dataset", "layout"), LAYOUTS)
def test_a_scan_is_found_in_every_layout(tmp_path: Path, dataset: str, layout: str) -> None:
    scan = touch(tmp_path / layout)
    assert find_scan(tmp_path, dataset, "42446167") == scan


@pytest.mark.parametrize("root", ["absent", "file.ply"])
def test_a_root_that_is_not_a_folder_is_refused(tmp_path: Path, root: str) -> None:
    touch(tmp_path / "file.ply")
    with pytest.raises(ScanNotFound, match=f"{root} is not a folder") as refused:
        find_scan(tmp_path / root, "scannet", "s")
    assert in_words(refused.value).startswith("--scan-root: ")


UNSAFE = ["", ".", "..", "../x", "/etc/passwd", "a/b", "a\\b", "..\\x", "C:x", "x\0", "x\n", "\ud800", "x" * 300]


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_scene_names_are_refused(tmp_path: Path, name: str) -> None:
    touch(tmp_path / "x.ply")
    (tmp_path / "root").mkdir()
    with pytest.raises(ScanNotFound, match="scene name"):
        find_scan(tmp_path / "root", "scannet", name)


@given(st.text())
def test_no_scene_name_escapes_the_root(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    outside = tmp_path_factory.getbasetemp()
    touch(outside / "x.ply")
    root = outside / "root"
    root.mkdir(exist_ok=True)
    with pytest.raises(ScanNotFound):
        find_scan(root, "scannet", name)


def question(number: int, dataset: str, scene: str) -> Question:
    return vsi_question(str(number), dataset, scene, "object_counting", "How many chair(s) are in this room?", (), "1")


QUESTIONS = [
    question(1, "scannet", "b"),
    question(2, "arkitscenes", "a"),
    question(3, "scannet", "b"),
    question(4, "scannet", "a"),
    question(5, "scannet", "../x"),
    question(6, "arkitscenes", "a"),
]


def test_the_printed_table_has_totals(tmp_path: Path) -> None:
    touch(tmp_path / "scannet/scans/b/b_vh_clean_2.ply")
    lines = scan_table(QUESTIONS, missing_scans(QUESTIONS, tmp_path))
    assert [line.split() for line in lines[1:]] == [
        ["scannet", "1", "of", "3", "2", "of", "4"],
        ["arkitscenes", "0", "of", "1", "0", "of", "2"],
        ["all", "1", "of", "4", "2", "of", "6"],
    ]
