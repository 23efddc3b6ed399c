"""A run with several kinds of answers: one headline that says what it covers, and answers as people read them."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import RoomScans, run_in_process
from result_rows import result_row

from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.pages import caption_of
from roomscout.analysis.report.writer import page_values, write_report
from roomscout.analysis.serve.runs import RunList
from roomscout.data.answers import POSE_KIND
from roomscout.data.benchmark import mean
from roomscout.data.benchmarks import find_benchmark
from roomscout.rooms.writer import write_rooms
from roomscout.runs.reader import RunReader
from roomscout.scoring.headline import headline_of, scores_in_words
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
    for text in (values["title"], values["lead"]["without"], listed.label):
        assert "view_finding" in text
    table = values["further"]["view_finding"]
    assert table.heads == ["1 answer, not in the overall", "mean"]
    assert dict(table.rows)["distance"].endswith(" m")


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


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("1, 2, 1.5, 350, -15, 2.0", "0.00 m and 0 degrees off"),
        ("1, 5.2476, 1.5, 8, -15", "3.2 m and 17 degrees off"),
        ("here", "here"),
    ],
)
def test_poses_are_read_beside_their_truth(answer: str, words: str):
    truth = "1, 2, 1.5, 350, -15, 2.0"
    assert POSE_KIND.in_words(answer, truth) == words
    assert POSE_KIND.in_words(truth) == "x 1.00, y 2.00, z 1.50 m, heading 350, pitch -15 degrees"
    assert POSE_KIND.place(truth) == [1, 2, 1.5, 350, -15]


def test_keys_of_further_scores_are_read_with_their_units():
    scores = {"distance_m": 3.2476, "hour_error_deg": 30.0, "success_wide": 0.0, "relative_error": 0.25}
    assert scores_in_words(scores) == {
        "distance": "3.25 m",
        "hour error": "30 degrees",
        "score within the wider limits": "0",
        "relative error": "0.25",
    }


def test_pictures_of_a_question_are_called_so():
    assert [caption_of(name) for name in ("picture1", "picture2", "map")] == [
        "the photo in question", "photo 2 in question", "map",
    ]  # fmt: skip
