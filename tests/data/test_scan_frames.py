"""Scans in other units in one question file: checked, previewed, explored and replayed as they are."""

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import results

from roomscout.command.main import main
from roomscout.envs.library import recorded_scene
from roomscout.rendering.scene import SceneError, load_scene
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId

FACES = [(0, 1, 3), (0, 3, 2), (0, 1, 5), (0, 5, 4), (1, 3, 7), (1, 7, 5), (3, 2, 6), (3, 6, 7), (2, 0, 4), (2, 4, 6)]


def write_room(path: Path, unit: float = 1.0) -> Path:
    """A room of 4 x 5 x 2.5 m without a ceiling, with as many units to the metre."""
    corners = [(x * unit, y * unit, z * unit) for z in (0, 2.5) for y in (0, 5) for x in (0, 4)]
    head = (
        f"ply\nformat ascii 1.0\nelement vertex {len(corners)}\nproperty float x\nproperty float y\nproperty float z\n"
    )
    head += "".join(f"property uchar {name}\n" for name in ("red", "green", "blue"))
    head += f"element face {len(FACES)}\nproperty list uchar int vertex_indices\nend_header\n"
    lines = [f"{x} {y} {z} 90 {40 * place % 256} 120" for place, (x, y, z) in enumerate(corners)]
    path.write_text(head + "\n".join([*lines, *(f"3 {a} {b} {c}" for a, b, c in FACES)]) + "\n")
    return path


def questions(folder: Path, **columns: Any) -> Path:
    """A file with a question about a scan in metres, and one with `columns` about a scan in centimetres."""
    write_room(folder / "metres.ply")
    write_room(folder / "centimetres.ply", 100)
    about = {"question": "How many lamps?", "question_type": "object_counting", "ground_truth": 2}
    rows = [{"scan": "metres.ply", **about}, {"scan": "centimetres.ply", **about, **columns}]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_check_says_which_scan_is_in_another_unit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["check", "--questions", str(questions(tmp_path))]) == 1
    said = capsys.readouterr().out
    assert "1 of 2" in said
    assert "2 of 2" not in said
    assert "centimetres.ply cannot be used: it spans " in said
    assert "if it is in centimetres, set the scale to 0.01" in said
    assert "add columns scale and up_axis to the question file" in said


def test_scans_in_two_units_are_explored_in_one_run(tmp_path: Path):
    file = questions(tmp_path, scale=0.01)
    assert main(["check", "--questions", str(file)]) == 0
    looking = ["--policy", "random", "--renderer", "raycast", "--steps", "1", "--image-size", "32", "24"]
    logs = ["--log-root", str(tmp_path / "logs"), "--name", "units", "--no-report"]
    assert main(["eval", "--questions", str(file), *logs, *looking]) == 0
    run = tmp_path / "logs" / "units"
    assert [row["status"] for row in results(run)] == ["answered", "answered"]
    reader = RunReader(run)
    metres, centimetres = (reader.scan(EpisodeId(number)) for number in (1, 2))
    assert metres is not None and centimetres is not None
    assert (metres.scale, centimetres.scale) == (None, 0.01)
    assert '"scale"' not in (run / "q001" / "turns.jsonl").read_text()
    assert [question.scale for question in reader.questions] == [None, 0.01]
    sizes = [recorded_scene(scan, "auto", 1.0).size for scan in (metres, centimetres)]
    assert sizes[0] == sizes[1]
    assert main(["replay", str(run), "q002"]) == 0


@pytest.mark.parametrize(
    ("unit", "scale", "words"),
    [
        (1, 0.01, r"m at the given scale of 0\.01, .*: if it is in metres, leave out the scale"),
        (100, 1, r"if it is in centimetres, set the scale to 0\.01"),
        (1000, 0.1, r"at the given scale of 0\.1, .*: if it is in millimetres, set the scale to 0\.001"),
        (1e5, 1, "set the scale to the metres of its unit"),
    ],
)
def test_a_scan_of_another_unit_is_refused_with_what_was_given(tmp_path: Path, unit: float, scale: float, words: str):
    with pytest.raises(SceneError, match=words):
        load_scene(write_room(tmp_path / "room.ply", unit), scale=scale)
