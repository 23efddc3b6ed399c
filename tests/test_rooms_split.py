"""Levels of procedural rooms, and the split of them that is the benchmark `rooms`."""

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roomscout.data.benchmarks import find_benchmark
from roomscout.data.rooms import QUESTIONS_PER_TYPE, Room, ScanStyle, make_room, split
from roomscout.data.rooms.__main__ import main
from roomscout.data.rooms.geometry import points_in_polygon, polygon_area
from roomscout.data.rooms.levels import LEVELS, Level
from roomscout.data.rooms.split import split_folder
from roomscout.data.scans import OWN_ROOTS, find_scan

COARSE = ScanStyle(resolution_m=0.5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first room of each level, made by two callers at once."""
    parent = tmp_path_factory.mktemp("cache")
    with ThreadPoolExecutor(2) as pool:
        one, two = pool.map(lambda _: split_folder(parent, rooms=1), range(2))
    assert one == two
    return one


@pytest.fixture(scope="module")
def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "questions.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def bare() -> list[Room]:
    return [make_room(1, index, COARSE, LEVELS["bare"]) for index in range(4)]


@pytest.fixture(scope="module")
def cluttered() -> list[Room]:
    return [make_room(1, index, COARSE, LEVELS["cluttered"]) for index in range(4)]


def test_bare_rooms_are_rectangles_with_few_objects(bare: list[Room]):
    assert all(len(room.polygon) == 4 and 10 <= len(room.objects) <= 15 for room in bare)


def test_cluttered_rooms_are_concave_with_many_objects(cluttered: list[Room]):
    assert all(len(room.polygon) in (6, 8) and 32 <= len(room.objects) <= 70 for room in cluttered)


def test_cluttered_rooms_have_many_objects_of_one_kind(cluttered: list[Room]):
    assert all(max(Counter(each.category for each in room.objects).values()) >= 4 for room in cluttered)


def test_the_area_of_a_concave_plan_is_that_of_its_bounds_without_the_notches(cluttered: list[Room]):
    for room in cluttered:
        notches = sum(np.prod(notch.size[:2]) for notch in room.plan.notches)
        assert polygon_area(room.polygon) == pytest.approx(np.prod(np.ptp(room.polygon, axis=0)) - notches, abs=0.05)


def test_objects_of_a_concave_room_are_inside_it(cluttered: list[Room]):
    for room in cluttered:
        assert points_in_polygon(np.concatenate([each.box.footprint for each in room.objects]), room.polygon).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--objects", "20", "10"], "objects must be two numbers from 9 to 100, the smaller first, not 20 10"),
        (["--questions-per-type", "0"], "questions per type must be 1 or more, not 0"),
    ],
)
def test_bad_numbers_of_the_command_end_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
):
    assert main([str(tmp_path / "out"), "--rooms", "1", *arguments]) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_the_command_makes_rooms_of_a_level_with_as_many_questions_as_asked(tmp_path: Path):
    assert main([str(tmp_path), "--rooms", "1", "--level", "bare", "--objects", "12", "14", "--resolution", "0.5",
                 "--questions-per-type", "1"]) == 0  # fmt: skip
    (room,) = json.loads((tmp_path / "rooms.json").read_text())
    assert 12 <= len(room["objects"]) <= 14
    asked = Counter(json.loads(line)["question_type"] for line in (tmp_path / "questions.jsonl").open())
    assert set(asked.values()) == {1}


def test_a_folder_of_one_level_refuses_rooms_of_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    coarse = [str(tmp_path), "--rooms", "1", "--resolution", "0.5"]
    assert (main(coarse), main([*coarse, "--level", "bare"])) == (0, 2)
    assert "has other rooms" in capsys.readouterr().err


def test_impossible_numbers_of_objects_are_refused():
    with pytest.raises(ValueError, match="objects must be two numbers from 9 to 100"):
        Level("full", objects=(10, 1000))


def test_each_room_of_the_split_has_a_question_of_each_type(rows: list[dict[str, Any]]):
    asked = Counter((row["dataset"], row["question_type"]) for row in rows)
    assert asked == Counter({(level, name): 1 for level in LEVELS for name in QUESTIONS_PER_TYPE})


def test_the_scans_of_the_split_are_found_without_a_scan_root(folder: Path, rows: list[dict[str, Any]]):
    layouts = {OWN_ROOTS: (str(folder),)}
    found = {find_scan(Path("nowhere"), row["dataset"], row["scene_name"], layouts) for row in rows}
    assert {path.parent.name for path in found} == set(LEVELS)


def test_the_split_keeps_what_an_interrupted_call_has_made(tmp_path: Path, folder: Path):
    draft = tmp_path / f".rooms_v{split.VERSION}_1.draft" / "bare"
    draft.mkdir(parents=True)
    record = {"room": json.loads((folder / "bare" / "rooms.json").read_text())[0], "questions": []}
    first = json.loads((folder / "questions.jsonl").read_text().splitlines()[0])
    record["questions"] = [{**first, "question_type": name} for name in QUESTIONS_PER_TYPE]
    (draft / "000.json").write_text(json.dumps(record))
    again = split_folder(tmp_path, rooms=1)
    assert not list((again / "bare").glob("*.ply"))


def test_a_changed_generator_changes_the_version(folder: Path):
    """If this fails on purpose, count up VERSION in data/rooms/split.py and renew SHA256 there and this value."""
    made = hashlib.sha256((folder / "questions.jsonl").read_bytes())
    for level, style in ((each, LEVELS[each].style) for each in LEVELS):
        mesh = make_room(split.SEEDS[level], 0, ScanStyle(0.5, style.noise_m, style.holes), LEVELS[level]).mesh
        made.update(mesh.colours.tobytes() + np.round(mesh.vertices, 3).tobytes())
    assert made.hexdigest()[:16] == "0b843982ff7e3b53"


def test_the_label_of_the_benchmark_has_the_version_and_the_hash():
    assert find_benchmark("rooms").label == f"rooms_v{split.VERSION}_{split.SHA256[:8]}_overall"
