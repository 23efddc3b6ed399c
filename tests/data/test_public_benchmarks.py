"""ReVSI, SQA3D and OpenEQA: rows as published, scores as their scorers compute them, and runs over procedural rooms."""

import json
import math
import random
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from conftest import RoomScans, only_run, run_main
from planned import run_settings
from result_rows import result_row

from roomscout.data.benchmarks import find_benchmark
from roomscout.data.benchmarks.revsi import TYPES_OF_TASK
from roomscout.data.benchmarks.sqa3d import SITUATED_KIND, cleaned
from roomscout.data.judged import mark_of, prompt_of, score_of_mark
from roomscout.data.questions import load_questions, load_saved, saved
from roomscout.data.scan_frames import Start
from roomscout.data.scans import find_scan
from roomscout.rendering.scene import load_scene
from roomscout.runs.reader import RunReader
from roomscout.scoring.summary import aggregate

REVSI, SQA3D = find_benchmark("revsi"), find_benchmark("sqa3d")


def lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


# ---- ReVSI ------------------------------------------------------------------------------------------------------


def revsi_row(number: int = 0, **changes: object) -> dict:
    """A row in ReVSI's columns."""
    return {"id": number, "dataset": "scannet", "scene_id": "scene0011_00", "num_frames": "all",
            "question_type": "object_counting_single", "question": "How many table(s) are in this scene?",
            "options": None, "ground_truth": "2", **changes}  # fmt: skip


def test_revsi_rows_are_read_in_their_own_columns(tmp_path: Path):
    chosen = revsi_row(
        1, question_type="object_rel_direction_backward_easy", dataset="3RScan", scene_id="0cac7578-8d6f-2d13",
        question="Is the lamp to my left, right, or back?", options=["A. left", "B. right", "C. back"],
        ground_truth="B",
    )  # fmt: skip
    counting, direction = load_questions(lines(tmp_path / "rows.jsonl", [revsi_row(), chosen]), REVSI)
    assert (counting.scene, counting.ground_truth) == (("scannet", "scene0011_00"), "2")
    assert (direction.dataset, direction.letters) == ("3rscan", ("A", "B", "C"))


def official_revsi(rows: list[tuple[str, str, str]]) -> float:
    """The overall by lmms-eval's formulas, from (type, prediction, ground truth); 0 to 1."""
    scores: dict[str, list[float]] = {}
    for name, prediction, truth in rows:
        first = prediction.strip().split(" ")[0].rstrip(".").strip()
        if REVSI.by_name[name].kind.takes_options:
            score = float(first.lower() == truth.lower())
        else:
            error = abs(float(first) - float(truth)) / float(truth)
            score = float(np.mean(error <= 1 - np.linspace(0.5, 0.95, int((0.95 - 0.5) / 0.05 + 2))))
        scores.setdefault(name, []).append(score)
    means = {name: np.mean(values) for name, values in sorted(scores.items())}
    for task in ("object_rel_direction", "object_rel_distance", "object_counting", "room_size_estimation"):
        if parts := [means.pop(name) for name in TYPES_OF_TASK[task] if name in means]:
            means[task] = np.mean(parts)
    return sum(means.values()) / len(means)


@pytest.mark.parametrize("seed", range(8))
def test_revsi_overalls_equal_those_of_lmms_eval(seed: int):
    draw = random.Random(seed)
    rows = []
    for _ in range(draw.randint(1, 60)):
        kind = draw.choice(REVSI.types)
        truth = draw.choice("ABCD") if kind.kind.takes_options else f"{draw.uniform(0.5, 9):.1f}"
        answer = draw.choice("ABCD") if kind.kind.takes_options else f"{float(truth) * draw.uniform(0.4, 1.6):.2f}"
        rows.append((kind.name, answer, truth))
    ours = [result_row(name, REVSI.by_name[name].kind.score(answer, truth)) for name, answer, truth in rows]
    assert aggregate(ours, REVSI)["overall"] == 100 * official_revsi(rows)


def test_scans_of_one_room_of_multiscan_are_one_scene_in_statistics():
    assert REVSI.room_of("multiscan", "scene_00003_01") == REVSI.room_of("multiscan", "scene_00003_00")


def test_revsi_is_run_scored_and_labelled(rooms: RoomScans, tmp_path: Path):
    place = rooms.rows[0]
    rows = [
        revsi_row(i, dataset=place["dataset"], scene_id=place["scene_name"], question_type=each.name,
                  options=["A. this", "B. that"] if each.kind.takes_options else None,
                  ground_truth="A" if each.kind.takes_options else "2.5")
        for i, each in enumerate(REVSI.types)
    ]  # fmt: skip
    config = rooms.config(tmp_path / "runs", questions=lines(tmp_path / "rows.jsonl", rows), benchmark="revsi", steps=0)
    assert run_settings(config).status == 0
    summary = RunReader(only_run(tmp_path / "runs")).summary.to_json()
    label = f"{re.sub('[^A-Za-z0-9]+', '_', tmp_path.name)}_rows_overall_7_task"
    assert summary["asked"]["overall_label"] == label, "made-up rows are not ReVSI's own"
    assert list(summary["asked"]["tasks"]) == list(TYPES_OF_TASK)


# ---- SQA3D ------------------------------------------------------------------------------------------------------


QUESTION = {
    "scene_id": "scene0380_00",
    "situation": "I am facing a window and there is a desk on my right and a chair behind me.",
    "alternative_situation": ["I am looking outside through the window behind the desk."],
    "question": "What color is the desk to my right?",
    "question_id": 220602000000,
}
ANNOTATION = {
    "scene_id": "scene0380_00",
    "question_type": "N/A",
    "answer_type": "other",
    "question_id": 220602000000,
    "answers": [{"answer": "brown", "answer_confidence": "yes", "answer_id": 1}],
    "rotation": {"_x": 0, "_y": 0, "_z": 0.09983341664682724, "_w": 0.9950041652780182},
    "position": {"x": -0.9651003385573296, "y": -1.2417634435553606, "z": 0},
}


def sqa3d_files(folder: Path, question: dict | None = None, annotation: dict | None = None) -> Path:
    """SQA3D's two files with one question; returns that of the questions."""
    folder.mkdir(exist_ok=True)
    path = folder / "v1_balanced_questions_test_scannetv2.json"
    path.write_text(json.dumps({"info": {}, "questions": [question or QUESTION]}))
    beside = folder / "v1_balanced_sqa_annotations_test_scannetv2.json"
    beside.write_text(json.dumps({"info": {}, "annotations": [annotation or ANNOTATION]}))
    return path


def test_sqa3d_joins_its_two_files(tmp_path: Path):
    (question,) = load_questions(sqa3d_files(tmp_path), SQA3D)
    assert question.question == f"{QUESTION['situation']} {QUESTION['question']}"
    assert (question.id, question.scene) == ("220602000000", ("scannet", "scene0380_00"))
    assert (question.question_type, question.ground_truth) == ("what", "brown")


def test_an_agent_of_sqa3d_faces_minus_x_and_turns_left_about_z(tmp_path: Path):
    (question,) = load_questions(sqa3d_files(tmp_path), SQA3D)
    assert question.start is not None and question.start.from_middle
    assert (question.start.x_m, question.start.y_m) == (-0.9651003385573296, -1.2417634435553606)
    assert question.start.heading_deg == pytest.approx(180 + math.degrees(0.2))


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("Brown.", "brown"),
        ("2", "two"),
        ("23", "twenty-three"),
        ("none", "zero"),
        ("an apple, the pear", "apple, pear"),
        ("backwards", "backward"),
        ("rigth", "right"),
        ("mat2", "mat"),
        ("4 o' clock", "four o'clock"),
    ],
)
def test_answers_are_cleaned_as_by_the_script_of_sqa3d(answer: str, words: str):
    assert cleaned(answer) == words


@pytest.mark.parametrize(
    ("answer", "truth", "exact", "lenient"),
    [
        ("2", "two", 1, 1),
        ("a wooden desk", "desk", 0, 1),
        ("des", "desk", 0, 1),
        ("trashcan", "trash can", 0, 1),
        ("chair", "desk", 0, 0),
        (None, "desk", 0, 0),
    ],
)
def test_exact_and_lenient_matches_of_sqa3d(answer: str | None, truth: str, exact: int, lenient: int):
    assert SITUATED_KIND.score(answer, truth) == exact
    assert SITUATED_KIND.more_scores(answer, truth) == {"lenient_match": lenient}


def test_a_run_of_sqa3d_starts_at_the_pose_of_its_situation(rooms: RoomScans, tmp_path: Path):
    scene, folder = rooms.rows[0]["scene_name"], tmp_path / "scans"
    folder.mkdir()
    scan = find_scan(rooms.root, rooms.rows[0]["dataset"], scene)
    shutil.copy(scan, folder / f"{scene}.ply")
    place = {"x": 0.5, "y": -0.25, "z": 0}
    turned = {"_x": 0, "_y": 0, "_z": math.sin(math.pi / 8), "_w": math.cos(math.pi / 8)}
    path = sqa3d_files(
        tmp_path / "sqa", {**QUESTION, "scene_id": scene}, {**ANNOTATION, "position": place, "rotation": turned}
    )
    config = rooms.config(tmp_path / "runs", questions=path, scan_root=folder, benchmark="sqa3d", steps=1)
    assert run_settings(config).status == 0
    reader = RunReader(only_run(tmp_path / "runs"))
    pose = reader.turns(reader.rows[0].episode)[0].pose
    vertices = load_scene(scan, "auto", 1.0).vertices
    middle = (vertices.min(axis=0) + vertices.max(axis=0)) / 2
    assert (pose.x_m, pose.y_m) == pytest.approx((middle[0] + 0.5, middle[1] - 0.25), abs=1e-4)
    assert pose.heading_deg == pytest.approx(225)
    assert reader.summary.to_json()["asked"]["overall_label"].endswith("_overall_1_task_without_is+how+can+which+other")
    assert next(iter(reader.questions)).start == Start(0.5, -0.25, pytest.approx(225), from_middle=True)


# ---- starts -----------------------------------------------------------------------------------------------------


def started(rooms: RoomScans, tmp_path: Path, start: object) -> Path:
    """A question file whose first row has a start."""
    return lines(tmp_path / "rows.jsonl", [{**rooms.rows[0], "start": start}])


def test_a_start_survives_a_run_folder(rooms: RoomScans, tmp_path: Path):
    questions = load_questions(started(rooms, tmp_path, {"x_m": 1, "y_m": 2, "heading_deg": 90}))
    (tmp_path / "saved.jsonl").write_text(saved(questions))
    assert load_saved(tmp_path / "saved.jsonl", find_benchmark("vsi-bench")) == questions
    assert questions[0].start == Start(1.0, 2.0, 90.0)


def test_a_start_outside_the_scan_fails_its_question_only(rooms: RoomScans, tmp_path: Path):
    path = started(rooms, tmp_path, {"x_m": 100, "y_m": 0, "heading_deg": 0})
    path.write_text(path.read_text() + json.dumps(rooms.rows[1]) + "\n")
    ended = run_main(rooms.flags(tmp_path / "runs", "--questions", str(path), "--steps", "1"))
    assert ended.returncode == 1, ended.stdout + ended.stderr
    rows = RunReader(only_run(tmp_path / "runs")).rows
    assert ["starts at x 100.00, y 0.00 m, outside the scan" in (row.error or "") for row in rows] == [True, False]


# ---- OpenEQA ----------------------------------------------------------------------------------------------------


OPENEQA = find_benchmark("openeqa")
FIRE = {
    "question": "What red object is the below the windows?",
    "answer": "Fire extinguisher",
    "category": "object recognition",
    "question_id": "e845f82a-d55c-42f8-88e3-8e9fcaf5bd02",
    "episode_history": "scannet-v0/002-scannet-scene0709_00",
}
CEREAL = {
    **FIRE,
    "question": "Where is the cereal?",
    "answer": "Behind the soap",
    "category": "object localization",
    "question_id": "7df7d40a-5a41-46f5-b738-767a5cfa14f2",
    "extra_answers": ["To the right of the sink. ", "On the kitchen counter"],
}


def openeqa_file(folder: Path, *rows: dict) -> Path:
    path = folder / "open-eqa-v0.json"
    path.write_text(json.dumps(rows))
    return path


def test_the_prompts_of_the_judge_are_those_of_openeqa(tmp_path: Path):
    fire, cereal = load_questions(openeqa_file(tmp_path, FIRE, CEREAL), OPENEQA)
    assert prompt_of(fire, "a red can. I think").endswith(
        "Question: What red object is the below the windows?\nAnswer: Fire extinguisher\nResponse: a red can."
    )
    assert "Extra Answers: ['To the right of the sink. ', 'On the kitchen counter']\nResponse: here" in prompt_of(
        cereal, "here"
    )


@pytest.mark.parametrize(
    ("reply", "mark"),
    [
        ("4", 4),
        ("Your mark: 3", 3),
        ("It is close.\nYour mark: 2\nSince it is red.", 2),
        ("Your mark: good", None),
        ("", None),
    ],
)
def test_marks_are_read_as_by_openeqa(reply: str, mark: int | None):
    assert mark_of(reply) == mark


def test_marks_become_scores_as_in_openeqa():
    marks = [0, 1, 2, 3, 4, 5, 9]
    assert [100 * score_of_mark(mark) for mark in marks] == list(100.0 * (np.clip(marks, 1, 5) - 1) / 4)
