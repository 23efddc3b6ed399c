"""A run with several kinds of answers: one headline that says what it covers, and answers as people read them."""

import base64
import csv
import io
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browsing import OpenPage
from conftest import RoomScans, run_in_process, run_main
from result_rows import result_row

from roomscout.analysis.compare.answers import read_answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.replay.lookup import replay_of
from roomscout.analysis.replay.page import hides_of, places_of
from roomscout.analysis.replay.page import page_values as replay_values
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pages import caption_of
from roomscout.analysis.report.writer import page_values, write_report
from roomscout.analysis.serve.runs import RunList
from roomscout.command.main import main
from roomscout.data.answers import POINT_KIND, POSE_KIND
from roomscout.data.benchmark import mean
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.boxes import read_boxes
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.scene import load_scene
from roomscout.rooms.room import LEVELS
from roomscout.rooms.writer import write_rooms
from roomscout.runs.reader import RunReader
from roomscout.scoring.headline import headline_of, in_one_line
from roomscout.scoring.summary import aggregate, format_summary, summarize


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of counting and of finding a view, without its report."""
    root = tmp_path_factory.mktemp("mixed")
    write_rooms(root, rooms=1, seed=5, per_type={"object_counting": 2}, views=True)
    scans = RoomScans(root, root / "questions.jsonl")
    return run_in_process(scans.config(root / "runs", report=False))


TYPES = ("object_counting", "route_planning", "view_finding", "presence", "which_hour")


@pytest.mark.parametrize("asked", [TYPES, TYPES[:2], TYPES[2:], TYPES[3:], TYPES[2:3], (*TYPES[:1], *TYPES[3:])])
def test_an_overall_covers_types_of_one_origin_and_names_all_others(asked: tuple[str, ...]):
    rooms = find_benchmark("rooms")
    rows = [replace(result_row(name, place / 7), id=f"{name}{place}") for place in range(3) for name in asked]
    scores = summarize(rows, rooms)
    headline = headline_of(scores, rooms)
    assert headline is not None
    origins = (rooms.by_name, rooms.apart_by_name, asked)
    covered = next(found for names in origins if (found := [name for name in asked if name in names]))
    assert list(headline.left_out) == [name for name in scores.types if name in asked and name not in covered]
    assert headline.answers == 3 * len(covered)
    own = replace(rooms, label="mine_overall", title="mine.jsonl", sizes={}, datasets=(), scored_as="Rooms")
    assert "mine_overall" in str(summarize(rows, own).asked.label)
    alone = aggregate([row for row in rows if row.question_type in covered], rooms)
    assert headline.percent == pytest.approx(alone["overall"])
    lines = format_summary(scores, rooms)
    assert all(any(line.startswith(f"{name}, beside the overall: ") for line in lines) for name in headline.left_out)
    for name, counts in headline.left_out.items():
        assert counts.percent == pytest.approx(100 * mean([row.score for row in rows if row.question_type == name]))


def test_each_page_has_the_same_headline_and_says_what_it_leaves_out(mixed: Path, tmp_path: Path):
    run = RunContents.read(mixed)
    headline = run.headline
    assert headline is not None and run.left_out == ["view_finding"]
    values = page_values(run, [])
    (listed,) = RunList(mixed.parent, tmp_path).runs()
    assert values["lead"]["percent"] == f"{headline.percent:.1f} %" == f"{listed.overall} %"
    assert "view_finding" in values["scores"].rows[-1][0]
    for text in (values["title"], values["lead"]["without"], listed.label):
        assert "view_finding" in text
    table = values["further"]["view_finding"]
    assert table.heads == ["1 answer, not in the overall", "mean"]
    assert dict(table.rows)["distance"].endswith(" m")


def test_a_comparison_and_rescored_answers_name_what_their_own_questions_leave_out(
    mixed: Path, caplog: pytest.LogCaptureFixture
):
    (run,) = read_answers([mixed])
    views = replace(run, rows=tuple(row for row in run.rows if row.question_type == "view_finding"))
    for other, left_out in ((run, ("view_finding",)), (views, ())):
        assert compare([run, other], ["questions"]).pairs[0].left_out == left_out
    headline = RunContents.read(mixed).headline
    assert headline is not None and "1 task" in headline.label
    caplog.set_level("INFO")
    assert main(["rescore", str(mixed)]) == 0
    assert f"overall: {headline.label}{headline.without}" in caplog.messages
    (overall,) = [line.split() for line in caplog.messages if line.startswith("overall ")]
    assert overall[1:] == [f"{headline.percent:.1f}"] * 2


def test_a_pose_reads_as_how_far_it_is_off_and_has_its_numbers_in_columns(mixed: Path, tmp_path: Path):
    (row,) = [row for row in RunReader(mixed).rows if row.question_type == "view_finding"]
    metres = row.scores["distance_m"]
    degrees = row.scores["angle_deg"]
    words = f"{metres:.{1 if metres >= 1 else 2}f} m and {degrees:.0f} degrees off"
    assert row.answer_in_words == words and row.truth_in_words.startswith("x ")
    (cells,) = [
        cells
        for cells in csv.DictReader(io.StringIO((mixed / "results.csv").read_text()))
        if cells["question_type"] == "view_finding"
    ]
    assert float(cells["scores.distance_m"]) == metres and float(cells["scores.angle_deg"]) == degrees
    assert cells["answer_text"] == words and cells["person"] == ""
    assert json.loads((mixed / "results.jsonl").read_text().splitlines()[0])["person"] is None
    report = write_report(mixed, tmp_path / "report.html").path
    page = (report.parent / "report_files" / "data" / f"{row.folder}.js").read_text()
    values = json.loads(page[page.index(",") + 1 : page.rindex(")")])
    assert values["answer"] == words and values["scores"]["angle"] == f"{degrees:.3g} degrees"
    assert [caption for caption, _ in values["turns"][0]["more"]] == ["the photo in question"]
    assert [name for name, *_ in values["map"]["answers"]] == ["right", "given"]
    last = values["map"]["poses"][-1]
    assert values["map"]["answers"][1][1:3] == pytest.approx(last[1:3], abs=0.1)


POSE = "1, 2, 1.5, 350, -15, 2.0"


@pytest.mark.parametrize(
    ("read", "words"),
    [
        (POSE_KIND.in_words(POSE, POSE), "0.00 m and 0 degrees off"),
        (POSE_KIND.in_words("1, 14.34, 1.5, 350, -15.6", POSE), "12.3 m and 1 degree off"),
        (POSE_KIND.in_words("1, 5.2476, 1.5, 8, -15", POSE), "3.2 m and 17 degrees off"),
        (POSE_KIND.in_words("here", POSE), "here"),
        (POSE_KIND.in_words(POSE), "x 1.00, y 2.00, z 1.50 m, heading 350, pitch -15 degrees"),
        (POSE_KIND.place(POSE), [1, 2, 1.5, 350, -15]),
        (POINT_KIND.in_words("1, 2, 3", "1, 2"), "1, 2, 3 m, 0.00 m off"),
        (POINT_KIND.in_words("1, 2, 3", "1, 2, 4.5"), "1, 2, 3 m, 1.50 m off"),
        (POINT_KIND.in_words("1, 2"), "1, 2 m"),
        (POINT_KIND.place("1, 2"), [1, 2]),
        (in_one_line({"distance_m": 3.2476, "hour_error_deg": 30.0}), "distance 3.25 m, hour error 30 degrees"),
        (in_one_line({"success_wide": 0.0, "ratio": 0.25}), "score within the wider limits 0, ratio 0.25"),
        (in_one_line({"error_m": 1.0, "error_deg": 2.0}), "error 1 m, error deg 2 degrees"),
        ([*map(caption_of, ("picture1", "picture2", "map"))], ["the photo in question", "photo 2 in question", "map"]),
    ],
)
def test_what_is_scored_and_shown_is_read_in_words(read: str | list[float], words: str | list[float]):
    assert read == words


def test_a_kind_of_ones_own_says_how_it_reads_also_where_its_code_is_not_loaded(mixed: Path, tmp_path: Path):
    root = mixed.parents[1]
    row = json.loads((root / "questions.jsonl").read_text().splitlines()[0])
    row = {name: row[name] for name in ("id", "dataset", "scene_name", "question")}
    path = tmp_path / "clock.jsonl"
    path.write_text(json.dumps({**row, "question_type": "which_hour", "ground_truth": "3", "options": None}) + "\n")
    clock = f"{Path(__file__).parents[2] / 'examples' / 'clock_benchmark.py'}:CLOCK"
    scans = RoomScans(root, path)
    folder = run_in_process(scans.config(tmp_path / "runs", benchmark=clock, report=False))
    (row,) = RunReader(folder).rows
    hours = 6 * (1 - row.score)
    assert row.answer_text == f"{row.answer} o'clock, {hours:g} hours off" and row.ground_truth_text == "3 o'clock"
    read = Path(folder / "run.json").read_text().replace(clock, "gone.py:CLOCK")
    (folder / "run.json").write_text(read)  # so that this process has not loaded it
    (answer,) = RunContents.read(folder).finished()
    assert (answer.entry.answer, answer.entry.truth) == (row.answer_text, "3 o'clock")
    assert "; right: 3 o'clock" in run_main(["wrong", str(folder)]).stdout


def test_a_replay_has_the_goal_and_the_end_where_the_run_has_them(mixed: Path):
    run = RunContents.read(mixed)
    (name,) = [row.folder for row in run.rows.values() if row.question_type == "view_finding"]
    replay = replay_of(run, name)
    values = replay_values(replay)
    right, given = values["answers"]
    pose = CameraPose.of_text(replay.answer.question.ground_truth)
    assert right["place"]["eye"] == pytest.approx(replay.scene.own(pose.position), abs=1e-3)
    assert right["place"]["ahead"] == pytest.approx(pose.camera_to_world[:3, 2], abs=1e-3)
    assert given["place"]["eye"] == pytest.approx(values["turns"][-1]["place"]["eye"], abs=1e-3)
    assert values["photo"].startswith("data:image/jpeg")
    question = replace(replay.answer.question, kind=POINT_KIND, ground_truth="1, 2")
    on_plan = replace(replay, answer=replace(replay.answer, question=question, row=None))
    ((_, place),) = places_of(on_plan)
    floor_z_m = replay.scene.main_storey.floor_z_m
    assert place == pytest.approx(replay.scene.own(np.array([1, 2, floor_z_m])))


@pytest.mark.parametrize("level", ["furnished", "cluttered"])
def test_what_hides_a_room_from_outside_is_around_its_objects_and_never_cuts_one(level: str, tmp_path: Path):
    write_rooms(tmp_path, rooms=1, seed=11, per_type={"object_counting": 1}, level=LEVELS[level])
    (scan,) = tmp_path.rglob("*.ply")
    scene = load_scene(scan, "auto", 1.0)
    hides = hides_of(scene, scene.main_storey)
    cells = np.frombuffer(zlib.decompress(base64.b64decode(hides["inside"])), np.uint8).reshape(-1, hides["columns"])
    (boxes,) = read_boxes(tmp_path / "rooms.json").values()

    def inside(x_m: float, y_m: float) -> bool:
        column, row = np.floor((np.array([x_m, y_m]) - hides["lower"]) / hides["cell"]).astype(int)
        return bool(cells[row, column])

    on_floor = [box for box in boxes if box.center[2] - box.size[2] / 2 < 0.05]
    assert len(on_floor) > 5 and all(inside(*scene.own(np.array(box.center))[:2]) for box in on_floor)
    assert not cells[[0, -1]].any() and not cells[:, [0, -1]].any()
    tops = [box.center[2] + box.size[2] / 2 for box in on_floor]
    assert hides["cut_z"] + scene.origin[2] > max(tops)


@pytest.mark.slow
def test_turns_on_the_spot_share_one_label(mixed: Path, browser: Any, tmp_path: Path):
    root = mixed.parents[1]
    scans = RoomScans(root, root / "questions.jsonl")
    config = scans.config(tmp_path, translation=False, num_questions=1, min_turns=3, steps=3, report=False)
    folder = run_in_process(config)
    assert main(["replay", str(folder), "q001"]) == 0
    opened = OpenPage(browser, (folder / "replay_q001.html").as_uri())
    opened.page.wait_for_selector("body[data-drawn]")
    opened.drawn()
    labels = opened.page.locator("#labels span:visible:not(.object)")
    assert labels.all_inner_texts() == ["0 of 0–3"]
    opened.page.close()
