"""Previews of scans, and the floor plan that they show."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import trimesh
from conftest import RoomScans
from PIL import Image
from simple_rooms import BLUE, GREEN, GREY, RED, box, scene_of

from roomscout.command.preview import BLUE as START
from roomscout.command.preview import GREEN as PHOTO
from roomscout.command.preview import drawable, main, preview
from roomscout.data.questions import load_questions
from roomscout.rendering.top_down import GRID, PLAN_MARGIN_M, plan_view
from roomscout.rooms.writer import write_rooms


def test_a_plan_shows_what_lies_where_from_above_and_no_ceiling():
    scene = scene_of(
        box((0, 0, 0), (6, 4, 2.5), GREY),
        box((0.5, 0.5, 0), (1.5, 1.5, 1), RED),
        box((4, 2.5, 0), (5, 3.5, 1), BLUE),
        box((4, 0.5, 2.2), (5, 1.5, 2.4), GREEN),
    )
    image, plan = plan_view(scene, 320)
    assert image.shape == (plan.height, plan.width, 3) and plan.width == pytest.approx(320, abs=1)
    assert plan.metres_per_pixel == pytest.approx((6 + 2 * PLAN_MARGIN_M) / 320, rel=0.02)

    def colour_at(x_m: float, y_m: float) -> tuple[int, ...]:
        column, row = plan.pixel(x_m, y_m)
        return tuple(image[round(row), round(column)].tolist())

    assert colour_at(1, 1) == RED
    assert colour_at(4.5, 3) == BLUE
    assert colour_at(4.5, 1) == colour_at(3, 2) == GREY  # below the lamp at 2.2 m is floor


def test_every_scan_of_a_question_file_is_drawn(rooms: RoomScans, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    out = tmp_path / "out"
    assert main(["--questions", str(rooms.questions), "--scan-root", str(rooms.root), "--out", str(out)]) == 0
    scenes = {question.scene_name for question in load_questions(rooms.questions)}
    assert {path.stem.removesuffix("_vh_clean_2") for path in out.iterdir()} == scenes
    for path in out.iterdir():
        with Image.open(path) as picture:
            view, plan = (np.array(picture.crop(part)) for part in ((0, 40, 640, 500), (656, 40, picture.width, 500)))
        assert view.std() > 10 and plan.std() > 10
        assert (plan == (207, 34, 46)).all(axis=2).sum() > 100  # the camera
    assert sum("triangles: " in line for line in caplog.messages) == len(scenes)


def test_a_scan_that_cannot_be_used_is_named_and_the_others_are_drawn(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    room = trimesh.creation.box(bounds=[[0, 0, 0], [5, 4, 2.5]])
    room.export(tmp_path / "metres.ply")
    room.apply_scale(1000).export(tmp_path / "millimetres.ply")
    scans = [str(tmp_path / f"{name}.ply") for name in ("millimetres", "metres", "absent")]
    assert main([*scans, "--out", str(tmp_path / "out")]) == 1
    assert "set the scale to 0.001" in caplog.text and "absent.ply does not exist" in caplog.text
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["metres.png"]
    assert main([scans[0], "--scale", "0.001", "--out", str(tmp_path / "out")]) == 0


def test_an_axis_may_point_down(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    trimesh.creation.box(bounds=[[0, 0, 0], [5, 2.5, 4]]).export(tmp_path / "room.ply")
    assert main([str(tmp_path / "room.ply"), "--up-axis", "-y", "--out", str(tmp_path / "out")]) == 0
    assert "room.ply: 5 x 4 x 2.5 m" in caplog.text


def test_the_scans_of_one_dataset_of_a_benchmark_are_drawn(rooms: RoomScans, tmp_path: Path):
    """Of a benchmark without code, with the scans in its folder."""
    folder = tmp_path / "kitchens"
    folder.mkdir()
    (folder / "benchmark.yaml").write_text("types:\n  colour: text\n")
    rows = [
        {"id": number, "dataset": dataset, "scene_name": f"kitchen_{number}", "question_type": "colour",
         "question": "Which colour is the door?", "ground_truth": "red"}
        for number, dataset in enumerate(("old", "new"))
    ]  # fmt: skip
    (folder / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for row, scan in zip(rows, sorted(rooms.root.rglob("*.ply")), strict=True):
        shutil.copy(scan, folder / f"{row['scene_name']}.ply")
    assert main(["--benchmark", str(folder), "--datasets", "new", "--out", str(tmp_path / "out")]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kitchen_1.png"]


def test_a_title_has_every_letter_or_its_code():
    text, font = drawable("W\xf6hnung \u5ba2: 4 x 3 x 2.5 m")
    assert text.replace("\\xf6", "\xf6").replace("\\u5ba2", "\u5ba2") == "W\xf6hnung \u5ba2: 4 x 3 x 2.5 m"
    missing = bytes(font.getmask("\uffff"))
    assert all(bytes(font.getmask(letter)) != missing for letter in text if letter != " ")


@pytest.mark.parametrize("width_m", [2.2, 90.0])
def test_each_storey_has_a_plan_with_a_bar_of_one_step_of_its_grid(width_m: float):
    floors = [box((0, 0, low), (width_m, 2, low + 2.5), BLUE) for low in (0.0, 3.0)]
    picture = np.array(preview(scene_of(*floors)))[-480:]
    for left in (656, 656 + 496):
        plan = picture[:, left : left + 480]
        lines = np.flatnonzero((plan[200:280] == GRID).all(axis=(0, 2)))
        bar = max(np.flatnonzero((row == 0).all(axis=-1)).size for row in plan[400:])
        assert bar == pytest.approx(lines[1] - lines[0], abs=2)
        steps_m = (lines[1] - lines[0]) * (width_m + 2 * PLAN_MARGIN_M) / 480
        assert f"{steps_m:.1g}"[-1] in "125", "a round length, in the plan's scale"


def test_starts_and_photos_of_questions_are_on_the_plan(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    write_rooms(tmp_path, 1, 3, views=True)
    scan = next(tmp_path.rglob("*.ply"))
    (asked,) = [row for row in map(json.loads, (tmp_path / "questions.jsonl").open()) if row.get("start")]
    wrong = asked | {"id": "far", "start": asked["start"] | {"x_m": 30.0}}
    (tmp_path / "found.jsonl").write_text("".join(json.dumps(row) + "\n" for row in (asked, wrong)))
    questions = ["--questions", str(tmp_path / "found.jsonl"), "--scan-root", str(tmp_path)]
    assert main([*questions, "--out", str(tmp_path / "out")]) == 0
    assert "Question far: " in caplog.text and "the question starts at x 30.00" in caplog.text
    with Image.open(tmp_path / "out" / f"{scan.stem}.png") as picture:
        plan = np.array(picture)[-480:, 656:]
    for colour in (START, PHOTO):
        assert (plan == colour).all(axis=-1).sum() > 100


def test_a_preview_is_replaced_by_its_own_scan_alone(tmp_path: Path):
    room = trimesh.creation.box(bounds=[[0, 0, 0], [5, 4, 2.5]])
    odd = os.fsdecode(b"donn\xe9es")  # no UTF-8
    scans = [tmp_path / "a" / "mesh.ply", tmp_path / odd / "mesh.ply", tmp_path / odd / "mesh.obj"]
    for scan in scans:
        scan.parent.mkdir(exist_ok=True)
        room.export(scan)
    for names in (scans[:1], scans[1:], scans[::-1]):
        assert main([*map(str, names), "--out", str(tmp_path / "out")]) == 0
    whole = ["_".join([*scan.parent.parts[1:], scan.name]) for scan in scans[1:]]
    assert {file.stem for file in (tmp_path / "out").iterdir()} == {"mesh", *whole}
