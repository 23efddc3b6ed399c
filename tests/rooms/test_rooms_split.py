"""Levels of procedural rooms, and the split of them that is the benchmark `rooms`."""

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from roomscout.data.boxes import boxes_file
from roomscout.data.scans import OWN_ROOTS, find_scan
from roomscout.rooms import QUESTIONS_PER_TYPE, ScanStyle, make_room, split
from roomscout.rooms.command import main
from roomscout.rooms.room import LEVELS
from roomscout.rooms.split import split_folder
from scripts.rooms_split import choose_questions
from tests.conftest import made_once, run_main

COARSE = ScanStyle(resolution_m=0.5)


FIRST = [("bare", "room_seed4000000_000"), ("furnished", "room_seed5000000_000"), ("cluttered", "room_seed6000000_000")]
"""The first scene of each level."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first room of each level, made by two callers at once."""

    def make(parent: Path) -> None:
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda _: split.make_scans([*FIRST, ("bare", "unknown")], parent), range(2)))

    return split_folder(made_once(tmp_path_factory, "split", make))


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return list(split.shipped_questions())


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


def test_the_questions_that_ship_are_those_that_the_generator_makes(rows: list[dict[str, Any]]):
    lines = choose_questions(rooms=1).splitlines()
    assert [json.loads(line) for line in lines] == rows[: len(lines)]


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


def test_a_changed_generator_changes_the_version(folder: Path):
    """If this fails on purpose, count up VERSION in rooms/split.py and renew SHA256 there and this value."""
    lines = (folder / "questions.jsonl").read_bytes().splitlines(keepends=True)
    made = hashlib.sha256(b"".join(lines[: len(LEVELS) * len(QUESTIONS_PER_TYPE)]))
    for level, style in ((each, LEVELS[each].style) for each in LEVELS):
        mesh = make_room(split.SEEDS[level], 0, ScanStyle(0.5, style.noise_m, style.holes), LEVELS[level]).mesh
        made.update(mesh.colours.tobytes() + np.round(mesh.vertices, 3).tobytes())
    assert made.hexdigest()[:16] == "0b843982ff7e3b53"
