"""Names and questions outside ASCII, in a locale whose encoding lacks them."""

import json
import os
import shutil
from pathlib import Path

import pytest
from conftest import RoomScans, only_run, results, run_command

ASCII = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture
def kitchen(rooms: RoomScans, tmp_path: Path) -> RoomScans:
    """One scan called "küche", of the data set "häuser"; its questions are about doors as well."""
    root = tmp_path / "scans-ü"
    root.mkdir()
    shutil.copy(min(rooms.root.rglob("*.ply")), root / "küche.ply")
    rows = [{**row, "dataset": "häuser", "scene_name": "küche", "id": f"ü{n}"} for n, row in enumerate(rooms.rows[:3])]
    path = root / "fragen.jsonl"
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return RoomScans(root, path)


def test_questions_scans_and_folders_outside_ascii_are_found_and_their_output_is_escaped(
    kitchen: RoomScans, tmp_path: Path
):
    ended = run_command(kitchen.command(tmp_path / "läufe", "--scenes", "küche"), env=ASCII)
    assert (ended.returncode, ended.stderr) == (0, "")
    run = only_run(tmp_path / "läufe")
    assert [row["id"] for row in results(run)] == ["ü0", "ü1", "ü2"]
    assert r"l\udcc3\udca4ufe" in ended.stdout and "küche" in (run / "run.log").read_text(encoding="utf-8")
