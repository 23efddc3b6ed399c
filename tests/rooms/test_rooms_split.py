"""Levels of procedural rooms, and the split of them that is the benchmark `rooms`."""

import hashlib
import json
import lzma
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from roomscout.data.boxes import boxes_file
from roomscout.data.scans import OWN_ROOTS, find_scan
from roomscout.rooms import QUESTIONS_PER_TYPE, ScanStyle, frozen, make_room, split
from roomscout.rooms.command import main
from roomscout.rooms.room import LEVELS
from roomscout.rooms.split import SHIPPED, SPLIT
from scripts.rooms_split import sha256_of_shipped
from scripts.text_only import text_only_scores
from tests.conftest import made_once, run_main

COARSE = ScanStyle(resolution_m=0.5)


FIRST = [("bare", "room_seed4000000_000"), ("furnished", "room_seed5000000_000"), ("cluttered", "room_seed6000000_000")]
"""The first scene of each level."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first room of each level, made by two callers at once."""

    def make(parent: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: SPLIT.make_scans([*FIRST, ("bare", "unknown")], parent), range(2)))

    return SPLIT.folder(made_once(tmp_path_factory, "split", make))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return list(frozen.shipped_rows(SHIPPED))


def test_a_level_decides_the_walls_and_the_objects():
    bare, cluttered = ([make_room(1, 0, COARSE, LEVELS[name])] for name in ("bare", "cluttered"))
    assert all(len(room.plan.corners) == 4 and 10 <= len(room.objects) <= 15 for room in bare)
    assert all(len(room.plan.corners) in (6, 8) and 32 <= len(room.objects) <= 70 for room in cluttered)


def test_the_command_makes_rooms_of_a_level_with_as_many_questions_as_asked(tmp_path: Path):
    assert main([str(tmp_path), "--rooms", "1", "--level", "bare", "--objects", "12", "14", "--resolution", "0.5",
                 "--questions-per-type", "1"]) == 0  # fmt: skip
    (room,) = json.loads((tmp_path / "rooms.json").read_text())
    assert 12 <= len(room["objects"]) <= 14
    asked = Counter(json.loads(line)["question_type"] for line in (tmp_path / "questions.jsonl").open())
    assert set(asked.values()) == {1}


def test_each_room_of_the_split_has_a_question_of_each_type(rows: list[dict[str, Any]]):
    assert [row["id"] for row in rows] == list(range(1, 5401))
    asked = Counter((row["dataset"], row["scene_name"], row["question_type"]) for row in rows)
    assert set(asked.values()) == {1} and {key[2] for key in asked} == QUESTIONS_PER_TYPE.keys()
    assert Counter(level for level, _ in {key[:2] for key in asked}) == dict.fromkeys(LEVELS, split.ROOMS)


def test_only_the_rooms_that_are_asked_about_are_made_with_their_boxes(folder: Path):
    assert sorted(path.stem for path in folder.rglob("*.ply")) == sorted(name for _, name in FIRST)
    for level, name in FIRST:
        (room,) = json.loads((folder / level / "rooms.json").read_text())
        assert room["scene_name"] == name
        found = find_scan(Path("nowhere"), level, name, {OWN_ROOTS: (str(folder),)})
        assert boxes_file(found) == folder / level / "rooms.json"


def test_the_text_alone_tells_nothing_that_the_best_constants_do_not(rows: list[dict[str, Any]]):
    """A text-only model that was fitted on other rooms, and the last option, stay below `frequent` + 2 points."""
    for question_type, scores in text_only_scores(rows, splits=1).items():
        assert max(scores.values()) < scores["frequent"] + 2, question_type


def test_letters_are_balanced_for_each_number_of_options(rows: list[dict[str, Any]]):
    for number in (2, 3, 4):
        for level in LEVELS:
            own = [row for row in rows if row["dataset"] == level and len(row["options"] or ()) == number]
            for question_type in {row["question_type"] for row in own}:
                right = Counter(row["ground_truth"] for row in own if row["question_type"] == question_type)
                assert len(right) == number and max(right.values()) - min(right.values()) <= 4, (question_type, right)


def test_a_room_of_other_colours_or_of_a_coarser_mesh_is_refused(
    rows: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
):
    level, name = FIRST[0]
    asked = [row for row in rows if row["scene_name"] == name]
    monkeypatch.setattr(split, "RESOLUTION_M", 0.3)
    with pytest.raises(frozen.SplitError, match="another room"):
        SPLIT.checked_room(level, name, asked)


def test_each_row_is_marked_as_test_data_and_each_scan_has_its_hash(folder: Path, rows: list[dict[str, Any]]):
    assert {row["canary"] for row in rows} == {split.CANARY}
    assert sha256_of_shipped() == split.SHA256
    for line in (folder / "split.sha256").read_text().splitlines():
        sha256, name = line.split()
        if (folder / name).exists():
            assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha256
    assert len({(row["dataset"], row["scene_name"]) for row in rows}) == 600


def test_a_plan_and_a_server_that_is_not_there_make_no_rooms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    asked = ["--benchmark", "rooms", "--num-questions", "9", "--log-root", str(tmp_path / "runs"), "--renderer"]
    asked.append("raycast")
    server = ["--engine", "openai", "--model", "served", "--base-url", "http://127.0.0.1:1/v1"]
    planned = run_main(["--batch", "--plan", *asked, *server])
    assert planned.returncode == 0 and "Questions: 9 on 1 scan" in planned.stdout
    ended = run_main(["--batch", *asked, *server])
    assert ended.returncode == 2 and "did not answer" in ended.stderr
    assert not list(tmp_path.rglob("*.ply")) and not (tmp_path / "runs").exists()


def test_each_room_has_a_view_to_find_apart_from_the_overall(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path):
    rows = [json.loads(line) for line in (folder / "questions.jsonl").open()]
    views = [row for row in rows if row["question_type"] == "view_finding"]
    assert len(rows) == 6000 and len({(row["dataset"], row["scene_name"]) for row in views}) == len(views) == 600
    monkeypatch.setattr(frozen, "cache_root", lambda: folder.parent)
    flags = ["eval", "--benchmark", "rooms", "--question-types", "view_finding", "--policy", "planner", "--no-report"]
    scenes = ["--scenes", FIRST[0][1], "--log-root", str(tmp_path), "--name", "views"]
    said = run_main([*flags, *scenes, "--image-size", "64", "48", "--focal", "30"]).stdout
    assert f"rooms_v2_{split.VIEWS_SHA256[:8]}_view_finding_of_1_questions: 100.0 % over 1 question" in said
    assert hashlib.sha256(lzma.decompress(split.SHIPPED_VIEWS.read_bytes())).hexdigest() == split.VIEWS_SHA256
    assert [path.name for path in folder.glob("*/*_view.png")] == [f"{FIRST[0][1]}_view.png"]
