"""The same room in four files: as it is, on a national grid, in centimetres, and with y up. What is asked and answered
about it in metres, z up, from the origin of its file means the same in each."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import RoomScans, only_run
from PIL import Image
from planned import run_settings

from roomscout.analysis.replay.lookup import replay_of
from roomscout.analysis.replay.page import page_values
from roomscout.analysis.report.contents import RunContents
from roomscout.analysis.report.maps import FloorPlans
from roomscout.data.boxes import KnownBoxes, read_boxes
from roomscout.envs.library import recorded_scene
from roomscout.envs.object_boxes import in_view, known_boxes, require_same_frame
from roomscout.rendering.scene import load_scene
from roomscout.runs.reader import RunReader
from roomscout.runs.records import Turn

GRID = (500_000.0, 4_000_000.0, -430.0)  # metres, below sea level
TO_Y_UP = np.array([[1, 0, 0], [0, 0, 1], [0, -1, 0]])


@dataclass(frozen=True)
class Form:
    """How a room is written: coordinates in the file are `turn @ (place + origin) / scale`."""

    origin: tuple[float, float, float] = (0.0, 0.0, 0.0)
    scale: float = 1.0
    up_axis: str = "z"

    def in_file(self, places: np.ndarray) -> np.ndarray:
        """Places (N, 3) of the room as the file has them."""
        turn = TO_Y_UP if self.up_axis == "y" else np.eye(3)
        return (places.astype(np.float64) + self.origin) @ turn.T / self.scale


PLAIN = Form()
FORMS = {
    "on a national grid": Form(origin=GRID),
    "in centimetres": Form(scale=0.01),
    "with y up": Form(up_axis="y"),
    "all of these": Form(GRID, 0.01, "y"),
}


def write_ply(path: Path, vertices: np.ndarray, faces: np.ndarray, colours: np.ndarray) -> None:
    """A binary PLY file with doubles."""
    rows = np.empty(len(vertices), [("place", "<f8", 3), ("colour", "u1", 3)])
    rows["place"] = vertices
    rows["colour"] = colours
    corners = np.empty(len(faces), [("count", "u1"), ("corners", "<i4", 3)])
    corners["count"] = 3
    corners["corners"] = faces
    places = "".join(f"property double {axis}\n" for axis in "xyz")
    shades = "".join(f"property uchar {name}\n" for name in ("red", "green", "blue"))
    header = f"ply\nformat binary_little_endian 1.0\nelement vertex {len(rows)}\n{places}{shades}"
    header += f"element face {len(corners)}\nproperty list uchar int vertex_indices\nend_header\n"
    path.write_bytes(header.encode() + rows.tobytes() + corners.tobytes())


def moved(numbers: list[float], origin: tuple[float, float, float]) -> str:
    """Coordinates, and what follows them, as the text of a ground truth."""
    place = [number + start for number, start in zip(numbers, origin, strict=False)]
    return ", ".join(f"{number:.3f}" for number in [*place, *numbers[3:]])


def write_room(folder: Path, rooms: RoomScans, form: Form) -> Path:
    """A room in a form, its boxes, and questions about it; returns the file of the questions."""
    folder.mkdir()
    row = rooms.rows[0]
    (scan,) = rooms.root.rglob(f"{row['scene_name']}*.ply")
    scene = load_scene(scan)
    write_ply(folder / "room.ply", form.in_file(scene.vertices), scene.faces, scene.colours)
    boxes = read_boxes(rooms.root / "rooms.json")[row["scene_name"]]
    objects = [
        {
            "category": box.category,
            "center": list(np.add(box.center, form.origin)),
            "size": box.size,
            "yaw_deg": box.yaw_deg,
        }
        for box in boxes
    ]
    (folder / "boxes.json").write_text(json.dumps([{"scene_name": "room", "objects": objects}]))
    x, y, z = form.origin
    start = {"x_m": 2.0 + x, "y_m": 1.5 + y, "heading_deg": 30}
    asked = [
        {"question": "Where is the door?", "answer_kind": "point", "ground_truth": moved([2.1, 1.2, 0.8], form.origin)},
        {"question": "And from here?", "answer_kind": "point", "ground_truth": moved([2.1, 1.2, 0.8], form.origin),
         "start": {**start, "z_m": 1.2 + z, "pitch_deg": -10}},
        {"question": "Go there.", "answer_kind": "pose", "ground_truth": moved([2.5, 2.0, 1.6, 90, 0], form.origin),
         "start": start},
        {"question": "Is there a door?", "answer_kind": "yes_no", "ground_truth": "yes",
         "start": {"x_m": 0.4, "y_m": -0.3, "heading_deg": 200, "from_middle": True}},
    ]  # fmt: skip
    frame = {"scan": "room.ply", "scene_name": "room", "scale": form.scale, "up_axis": form.up_axis}
    rows = [{"id": str(number), "question_type": "own", **frame, **each} for number, each in enumerate(asked)]
    path = folder / "questions.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return path


@dataclass(frozen=True)
class Asked:
    """A run about a room in a form."""

    form: Form
    reader: RunReader

    def turns(self) -> list[Turn]:
        """The turns of all questions, in their order."""
        return [turn for row in self.rows for turn in self.reader.turns(row.episode)]

    @property
    def rows(self) -> list[Any]:
        """The results in the order of the questions."""
        return sorted(self.reader.rows, key=lambda row: row.number)

    def in_room(self, place: np.ndarray) -> np.ndarray:
        """A place that the run recorded, relative to the origin of the room's form."""
        return place - np.array(self.form.origin)


def ask(folder: Path, rooms: RoomScans, form: Form, policy: str) -> Asked:
    """Ask about a room in a form, with maps and plans."""
    path = write_room(folder, rooms, form)
    changes = {"questions": path, "scan_root": folder, "policy": policy, "steps": 3, "see": ("map", "plan")}
    assert run_settings(rooms.config(folder / "runs", **changes)).status == 0
    return Asked(form, RunReader(only_run(folder / "runs")))


@pytest.fixture(scope="module")
def usual(rooms: RoomScans, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Asked]:
    """The run of a policy about the room as it is."""
    return cache(lambda policy: ask(tmp_path_factory.mktemp(policy) / "room", rooms, PLAIN, policy))


@pytest.mark.parametrize(("name", "policy"), [*((name, "random") for name in FORMS), ("all of these", "planner")])
def test_a_room_means_the_same_in_each_form_of_its_file(
    usual, rooms: RoomScans, tmp_path: Path, name: str, policy: str
):
    usual = usual(policy)
    other = ask(tmp_path / "room", rooms, FORMS[name], policy)
    goals = [row.score for row in other.rows if row.question == "Go there."]
    assert policy != "planner" or goals == [1.0]
    assert [(row.status, row.score) for row in other.rows] == [(row.status, row.score) for row in usual.rows]
    for ours, theirs in zip(usual.turns(), other.turns(), strict=True):
        assert other.in_room(theirs.pose.position) == pytest.approx(ours.pose.position, abs=2e-3)
        assert theirs.pose.heading_deg == pytest.approx(ours.pose.heading_deg, abs=1e-6)
        for shot, image in ours.images.items():
            apart = np.abs(theirs.images[shot].astype(int) - image.astype(int)).max(axis=-1)
            assert (apart > 8).mean() < 0.02, f"{shot} of turn {ours.turn}"
    for ours, theirs in zip(usual.rows, other.rows, strict=True):
        if "," not in (ours.answer or ""):
            assert theirs.answer == ours.answer
            continue
        place = np.array([float(number) for number in theirs.answer.split(",")])
        assert other.in_room(place[:3]) == pytest.approx([float(n) for n in ours.answer.split(",")[:3]], abs=0.11)
    ours = drawn_of(usual)
    theirs = drawn_of(other)
    assert theirs["seen"] == ours["seen"]
    assert theirs["path"] == pytest.approx(ours["path"], abs=1.0)
    assert (np.abs(theirs["plan"].astype(int) - ours["plan"]).max(axis=-1) > 8).mean() < 0.02
    assert theirs["eye_in_replay"] == pytest.approx(ours["eye_in_replay"], abs=5e-3)
    assert theirs["cut_in_replay"] == pytest.approx(ours["cut_in_replay"], abs=5e-3)


def drawn_of(asked: Asked) -> dict[str, Any]:
    """What a report and a replay show of the first question: the objects seen at turn 0, the plan, the path in its
    pixels, and the camera's place from the lower corner of the replay's room."""
    folder = asked.reader.folder
    facts = asked.reader.facts
    row = asked.rows[0]
    turns = list(asked.reader.turns(row.episode))
    scan = turns[0].scan
    path, place = FloorPlans(folder / "plans", facts).draw(scan, turns[0].pose.z_m)
    scene = recorded_scene(scan, facts.setting("up_axis"), facts.setting("scale"))
    boxes = known_boxes(KnownBoxes(), Path(scan.file), "room")
    require_same_frame(scene, boxes, Path(scan.file), "room")
    page = page_values(replay_of(RunContents.read(folder), row.folder))
    return {
        "seen": sorted(box.category for box in in_view(scene, turns[0].pose, facts.intrinsics, boxes)),
        "path": [number for turn in turns for number in place.pixel(turn.pose.x_m, turn.pose.y_m)],
        "plan": np.asarray(Image.open(path)),
        "cut_in_replay": page["scan"]["hides"]["cut_z"] - page["scan"]["room_lower"][2],
        "eye_in_replay": list(np.subtract(page["turns"][0]["place"]["eye"], page["scan"]["room_lower"])),
    }
