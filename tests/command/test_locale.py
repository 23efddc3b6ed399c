"""Names and questions outside ASCII, in a locale whose encoding lacks them."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from conftest import COMMAND, RoomScans, only_run, results, run_command

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


def test_a_scan_named_outside_ascii_is_found_and_may_be_a_filter(kitchen: RoomScans, tmp_path: Path):
    ended = run_command(kitchen.command(tmp_path, "--check-data", "--scenes", "küche"), env=ASCII)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert r"h\xe4user" in ended.stdout


def test_flags_take_text_outside_ascii_and_the_output_escapes_it(kitchen: RoomScans, tmp_path: Path):
    flags = ["--ply", str(kitchen.root / "küche.ply"), "--question", "Wo ist die Tür?", "--options", "Tür", "Wand"]
    command = [*flags, "--log-root", str(tmp_path / "logs"), "--renderer", "blind", "--policy", "random"]
    ended = run_command([sys.executable, str(COMMAND), *command], env=ASCII)
    assert ended.returncode == 0
    assert results(only_run(tmp_path / "logs"))[0]["question"] == "Wo ist die Tür?"
    assert "\\xb0" in ended.stdout and "°" in (only_run(tmp_path / "logs") / "run.log").read_text(encoding="utf-8")


def test_parts_merge_below_a_folder_named_outside_ascii(kitchen: RoomScans, tmp_path: Path):
    assert run_command(kitchen.command(tmp_path / "läufe", "--shard", "1/1"), env=ASCII).returncode == 0
    command = [
        *(sys.executable, "-m", "roomscout", "merge", str(tmp_path / "größer"), str(only_run(tmp_path / "läufe")))
    ]
    ended = run_command(command, env=ASCII, cwd=COMMAND.parent)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert len(results(tmp_path / "größer")) == 3
