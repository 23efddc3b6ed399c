"""Files of boxes, the objects that questions name, and published boxes that are checked against scans."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans

from roomscout.data.boxes import BoxError, KnownBoxes, ObjectBox, SceneBoxes, needed_for, read_boxes
from roomscout.envs.import_boxes import main
from roomscout.rendering.scene import load_scene

CHAIR = ObjectBox("chair", (1.0, 2.0, 0.5), (0.5, 0.6, 1.0), 30.0)
TILTED = ObjectBox("lamp", (1.0, 2.0, 0.5), (2.0, 4.0, 6.0), id="7", axes=((0, 0, 1), (1, 0, 0), (0, 1, 0)))


def boxes_of(*categories: str) -> list[ObjectBox]:
    return [ObjectBox(name, (0, 0, 0), (1, 1, 1)) for name in categories]


def written(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def test_what_is_written_is_read_again(tmp_path: Path):
    file = written(tmp_path / "boxes.json", [SceneBoxes("room", (CHAIR, TILTED)).to_json()])
    assert read_boxes(file) == {"room": (CHAIR, TILTED)}


def test_a_file_beside_the_scans_is_found(tmp_path: Path):
    scan = tmp_path / "scannet" / "scans" / "room" / "room_vh_clean_2.ply"
    written(tmp_path / "boxes.json", [SceneBoxes("room", (CHAIR,)).to_json()])
    assert KnownBoxes().of(scan, "room") == (CHAIR,)
    assert KnownBoxes().of(scan, "another") == ()


def test_the_outline_of_a_tilted_box_is_that_of_its_corners():
    assert sorted(TILTED.footprint) == [(-1, -1), (-1, 5), (3, -1), (3, 5)]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, "should be a valid array"),
        ([{"scene_name": "room"}], "missing keys: 0.objects"),
        ([{"scene_name": "room", "objects": [{"category": "lamp"}]}], "missing keys: 0.objects.0.center"),
        (
            [SceneBoxes("room", (ObjectBox("lamp", (0, 0, 0), (1, -1, 1)),)).to_json()],
            "0.objects.0.size.1: Input should be gre",
        ),
        (
            [SceneBoxes("room", (ObjectBox("lamp", (0, 0, 0), (1, 1, 1), axes=((1, 0, 0),) * 3),)).to_json()],
            "at right angles",
        ),
    ],
)
def test_a_file_that_cannot_be_read_says_where(tmp_path: Path, content: Any, words: str):
    with pytest.raises(BoxError) as error:
        read_boxes(written(tmp_path / "boxes.json", content))
    assert words in str(error.value) and str(tmp_path / "boxes.json") in str(error.value)


def test_a_question_that_counts_needs_all_objects_of_the_kind():
    boxes = boxes_of("chair", "table", "chair", "chair")
    (chairs,) = needed_for("How many chair(s) are in this room?", (), boxes)
    assert (chairs.category, len(chairs.boxes), chairs.enough) == ("chair", 3, 3)


def test_a_question_of_the_nearest_needs_all_that_may_be_it_and_another_one_of_each_kind():
    boxes = boxes_of("chair", "table", "chair", "sofa")
    for question, chairs in (
        ("Measuring from the closest point of each object, which of these is the closest to the sofa?", 2),
        ("Measuring from the closest point of each object, what is the distance between chair, table and sofa?", 1),
    ):
        needed = needed_for(question, ("A. chair", "B. table"), boxes)
        assert [(each.category, each.enough) for each in needed] == [("chair", chairs), ("table", 1), ("sofa", 1)]


def meta_of(scene: str, boxes: list[ObjectBox], offset: np.ndarray) -> dict[str, Any]:
    """VSI-Bench's meta information of a scene, with its centers moved by `offset`."""
    by_category: dict[str, list[dict[str, Any]]] = {}
    for each in boxes:
        flat = [value for axis in each.directions for value in axis]
        record = {"centroid": list(np.add(each.center, offset)), "axesLengths": list(each.size), "normalizedAxes": flat}
        by_category.setdefault(each.category, []).append(record)
    return {scene: {"dataset": "scannet", "object_bbox": by_category}}


def annotation_of(scene: str, boxes: list[ObjectBox], offset: np.ndarray) -> list[dict[str, Any]]:
    """ReVSI's annotation of a scene, with its centers moved by `offset`."""
    objects = []
    for number, each in enumerate(boxes):
        columns = np.array(each.directions).T.tolist()
        obb = {"center": list(np.add(each.center, offset)), "rotation": columns, "extent": list(each.size)}
        objects.append({"id": number, "name": each.category, "obb": obb})
    return [{"dataset": "scannet", "scene_id": scene, "objects": objects}]


@pytest.fixture
def room(rooms: RoomScans) -> tuple[str, list[ObjectBox]]:
    """The name of a room and its boxes."""
    name, boxes = next(iter(read_boxes(rooms.root / "rooms.json").items()))
    return name, list(boxes)


@pytest.mark.parametrize("published", [meta_of, annotation_of])
def test_published_boxes_become_the_boxes_of_the_scan(rooms: RoomScans, room, tmp_path: Path, published):
    name, boxes = room
    file, out = written(tmp_path / "published.json", published(name, boxes, np.zeros(3))), tmp_path / "boxes.json"
    assert main([str(file), "--scan-root", str(rooms.root), "--out", str(out)]) == 0
    found = {(each.category, each.center): each for each in read_boxes(out)[name]}
    for each in boxes:
        same = found[each.category, each.center]
        assert np.allclose(same.directions, each.directions) and same.size == each.size


def test_boxes_of_a_centred_scan_are_moved_back(rooms: RoomScans, room, tmp_path: Path):
    name, boxes = room
    mean = load_scene(next(rooms.root.rglob(f"{name}*.ply"))).vertices.mean(axis=0, dtype=float)
    file, out = written(tmp_path / "published.json", meta_of(name, boxes, -mean)), tmp_path / "boxes.json"
    assert main([str(file), "--scan-root", str(rooms.root), "--out", str(out)]) == 0
    found = sorted(each.center for each in read_boxes(out)[name])
    assert np.allclose(found, sorted(each.center for each in boxes), atol=1e-3)


def test_boxes_in_other_coordinates_are_refused(rooms: RoomScans, room, tmp_path: Path, caplog):
    name, boxes = room
    offset = np.array([4.0, 0, 0])
    file, out = written(tmp_path / "published.json", meta_of(name, boxes, offset)), tmp_path / "boxes.json"
    assert main([str(file), "--scan-root", str(rooms.root), "--out", str(out)]) == 1
    assert read_boxes(out) == {}
    (said,) = [message for message in caplog.messages if "fit its surface" in message]
    assert f"published boxes of scannet {name}" in said and "export it in its original coordinates" in said
