"""ViewSuite's rows, made in the layout that its code reads; the published files are not here."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from roomscout.data.benchmarks import find_benchmark
from roomscout.data.benchmarks.viewsuite import pose_of
from roomscout.data.questions import QuestionError, load_questions
from roomscout.rendering.camera import CameraPose

BENCHMARK = find_benchmark("viewsuite")
START, GOAL = CameraPose(2.98, 3.85, 1.53, 180.0, -30.0), CameraPose(3.42, 4.35, 1.28, 270.0, -30.0)


def view(name: str, pose: CameraPose, roll_deg: float = 0.0) -> dict:
    """An entry of `image_detail`."""
    c2w, roll = pose.camera_to_world, math.radians(roll_deg)
    c2w[:3, :2] = c2w[:3, :2] @ [[math.cos(roll), -math.sin(roll)], [math.sin(roll), math.cos(roll)]]
    return {"path": f"./scene0203_02/{name}.png", "c2w_extrinsics": c2w.tolist(), "c2w_intrinsics": np.eye(3).tolist()}


def row(number: int, details: dict, **more) -> dict:
    return {
        "scene_id": "scene0203_02",
        "sample_id": f"scene0203_02_sample_{number:03d}",
        "image_detail": details,
        **more,
    }


def planning(number: int = 17, goal_roll: float = 0.0) -> dict:
    details = {"init_view": view("initial", START), "top_down_view": view("top", START)}
    details["target_view"] = view("target", GOAL, goal_roll)
    return row(number, details, gt_action_seq=["turn_left"] * 3, gt_answer=None)


ASKED = "Given the initial view <image> and a top-down reference <image>, "
PATH = "after you execute [turn_left], which of the following images corresponds to the result?\n"
TO_VIEW = row(
    1,
    {"init_view": view("initial", START), "top_down_view": view("top", START), "target_view": view("target", GOAL)}
    | {f"view_{each}": view(f"option_{each}", GOAL) for each in range(4)},
    prompt=ASKED + PATH + "\n".join(f"{letter}. <image>" for letter in "ABCD"),
    gt_answer="C",
)
TO_PATH = row(
    2,
    {"init_view": view("initial", START), "top_down_view": view("top", START), "target_view": view("target", GOAL)},
    prompt=ASKED + "which sequence reaches the target view <image>?\n"
    + "\n".join(f"{letter}. [turn_left, move_{letter}]" for letter in "ABCD"),
    gt_answer="B. turn_left",
)  # fmt: skip


def written(folder: Path, *rows: dict) -> Path:
    (folder / "scene0203_02").mkdir(exist_ok=True)
    for each in rows:
        for detail in each["image_detail"].values():
            Image.new("RGB", (64, 64)).save(folder / detail["path"])
    (path := folder / "rows.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


def test_rows_of_all_tasks_are_read_with_their_pictures_and_poses(tmp_path):
    plan, to_view, to_path = load_questions(written(tmp_path, planning(), TO_VIEW, TO_PATH), BENCHMARK)
    assert [each.question_type for each in (plan, to_view, to_path)] == list(BENCHMARK.by_name)
    names = [[Path(picture.file).stem for picture in each.images] for each in (plan, to_view, to_path)]
    assert names == [["target", "top"], ["top", *(f"option_{each}" for each in range(4))], ["top", "target"]]
    assert all(picture.sha256 for picture in plan.images)
    x, y, z, heading, pitch = map(float, plan.ground_truth.split(", "))
    assert (x, y, z) == (3.42, 4.35, 1.28) and (heading, pitch) == pytest.approx((270, -30))
    start = plan.start
    assert (start.x_m, start.y_m, start.z_m) == pytest.approx((2.98, 3.85, 1.53))
    assert (start.heading_deg, start.pitch_deg) == pytest.approx((180, -30))
    assert (to_view.ground_truth, to_path.ground_truth) == ("C", "B")
    assert to_view.options == tuple(f"{letter}. picture {place}" for place, letter in enumerate("ABCD", start=2))
    assert "the initial view (the current view) and a top-down reference (picture 1), after" in to_view.question
    assert to_path.options[3] == "D. [turn_left, move_D]" and to_path.question.endswith("the target view (picture 2)?")


def test_success_is_that_of_the_published_table(tmp_path):
    (plan,) = load_questions(written(tmp_path, planning()), BENCHMARK)
    assert plan.score("3.42, 4.84, 1.28, 270, -30, 1") == plan.score("3.42, 4.35, 1.28, 270, -1, 1") == 1
    assert plan.score("3.42, 4.86, 1.28, 270, -30, 1") == plan.score("3.42, 4.35, 1.28, 270, 1, 1") == 0


@pytest.mark.parametrize("heading", [0.0, 90.0, 200.0])
def test_a_pose_is_that_of_its_matrix(heading):
    pose = CameraPose(1.0, 2.0, 3.0, heading, -15.0)
    assert pose_of(view("a", pose)) == pytest.approx((1, 2, 3, heading, -15))


LEFT_OUT = {
    "OpenGL's axes": (lambda c2w: c2w @ np.diag([1.0, -1, -1, 1]), "not upright"),
    "world-to-camera": (np.linalg.inv, "not upright"),
    "no pose": (lambda c2w: np.full((4, 4), -np.inf), "has no pose"),
    "mirrored": (lambda c2w: c2w @ np.diag([-1.0, 1, 1, 1]), "is no rotation"),
    "zeros": (lambda c2w: np.zeros((4, 4)), "is no rotation"),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_rows_without_an_upright_pose_are_counted_with_their_reason(tmp_path, caplog, name):
    changed, why = LEFT_OUT[name]
    bad = planning(3)
    pose = bad["image_detail"]["init_view"]
    pose["c2w_extrinsics"] = changed(np.array(pose["c2w_extrinsics"])).tolist()
    caplog.set_level("INFO")
    assert len(load_questions(written(tmp_path, planning(1), bad), BENCHMARK)) == 1
    assert "1 row left out since" in caplog.text and why in caplog.text
    with pytest.raises(QuestionError, match=f"is empty: 1 row left out since .*{why}"):
        load_questions(written(tmp_path, bad), BENCHMARK)


def test_a_target_with_a_roll_is_left_out_and_a_broken_row_named(tmp_path):
    rolled = [planning(number, goal_roll=roll) for number, roll in enumerate((0, 30, -90, 180))]
    assert len(load_questions(written(tmp_path, *rolled), BENCHMARK)) == 1
    broken = planning(3)
    del broken["image_detail"]["target_view"]
    with pytest.raises(QuestionError, match="row 2: its image_detail lacks 'target_view'"):
        load_questions(written(tmp_path, planning(1), broken), BENCHMARK)
