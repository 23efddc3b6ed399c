"""Writes rooms to disk: scans in ScanNet's layout, questions in VSI-Bench's columns, geometry as JSON."""

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from roomscout.base.files import replace_bytes, replacing
from roomscout.base.text import json_in
from roomscout.rooms.questions import QUESTIONS_PER_TYPE, RoomQuestion, room_questions
from roomscout.rooms.room import FURNISHED, Level, Room, make_room, require_numbers
from roomscout.rooms.scan import RoomMesh, ScanStyle
from roomscout.rooms.twins import MEMBERS, make_twins
from roomscout.rooms.view_finding import view_finding, write_picture

log = logging.getLogger(__name__)

QUESTIONS_FILE = "questions.jsonl"
MADE_WITH_FILE = "made_with.json"


def kept_rooms(parent: Path, rooms: int, seed: int, per_type: Mapping[str, int]) -> Path:
    """The folder below `parent` with the first `rooms` rooms of a seed, written as a whole if it does not exist; a hash
    of this package's code is in its name. Raises what `write_rooms` raises."""
    counts = json.dumps(dict(per_type), sort_keys=True)
    sources = (path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.rglob("*.py")))
    version = hashlib.sha256("".join([counts, *sources]).encode()).hexdigest()[:8]
    folder = parent / f"rooms_{rooms}_seed{seed}_{version}"
    if not folder.exists():
        log.info("Making %d furnished rooms with questions in %s", rooms, folder)
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making_rooms_", dir=parent) as draft:
            write_rooms(Path(draft) / "made", rooms, seed, per_type=per_type)
            try:
                (Path(draft) / "made").rename(folder)
            except OSError:
                if not folder.exists():  # otherwise another process wrote it first
                    raise
    return folder


def write_rooms(
    out: Path,
    rooms: int,
    seed: int,
    style: ScanStyle | None = None,
    per_type: Mapping[str, int] = QUESTIONS_PER_TYPE,
    level: Level = FURNISHED,
    views: bool = False,
    twins: bool = False,
) -> int:
    """Write the first `rooms` rooms of a seed and return the number of questions; with `twins`, so many pairs of rooms,
    with one question about both, of each type of `per_type` in turn.

    A room's files and questions do not depend on `rooms`. Overwrites existing files of these names in `out`:

    - scannet/scans/<scene>/<scene>_vh_clean_2.ply: the scans, which make `out` a scan root.
    - questions.jsonl: the questions. It is deleted first and appears last, so that it never refers to other scans.
    - rooms.json: each room's polygon, height, area and object boxes. It contains the answers, so no model may see it.
    - pictures/<scene>.png: with `views`, the picture of a last question about each room, whose view is to be found.
    - made_with.json: the seed, the style, and an unusual level. `out` accepts only rooms that are made with the same.

    Raises ValueError for rooms that were made differently or invalid numbers, and OSError if `out` cannot be written.
    """
    if rooms < 1:
        raise ValueError(f"rooms must be 1 or more, not {rooms}")
    require_numbers(seed, rooms - 1)
    style = style or level.style
    usual: dict[str, Any] = {"twins": True} if twins else {}
    if level != FURNISHED:
        usual |= {"level": level.name, "objects": level.objects and list(level.objects)}
    _claim(out, {"seed": seed, **asdict(style), **usual})
    out.mkdir(parents=True, exist_ok=True)
    for name in (QUESTIONS_FILE, "rooms.json"):
        (out / name).unlink(missing_ok=True)
    geometry, total = [], 0
    with replacing(out / QUESTIONS_FILE) as draft, draft.open("w", encoding="utf-8") as lines:
        for index in range(rooms):
            if twins:
                made, rows = _pair(seed, index, style, list(per_type), level)
            else:
                room = make_room(seed, index, style, level)
                made = [room]
                rows = room_questions(room, (seed, index), per_type, first_id=total)
                if views:
                    rows.append({"id": total + len(rows)} | _view(out, room, (seed, index)))
            for room in made:
                folder = out / "scannet" / "scans" / room.name
                folder.mkdir(parents=True, exist_ok=True)
                replace_bytes(folder / f"{room.name}_vh_clean_2.ply", ply_of(room.mesh))
                geometry.append(room_record(room))
            lines.writelines(json.dumps(row) + "\n" for row in rows)
            total += len(rows)
        (out / "rooms.json").write_text(json.dumps(geometry, indent=1) + "\n", encoding="utf-8")
    return total


def _pair(
    seed: int, index: int, style: ScanStyle, types: Sequence[str], level: Level
) -> tuple[list[Room], list[RoomQuestion]]:
    """A pair of twins and its rows, whose types come in turn."""
    twins = make_twins(seed, index, types[index % len(types)], level, style)
    rows = [{"id": f"{index + 1}{member}"} | row for member, row in zip(MEMBERS, twins.rows, strict=True)]
    return list(twins.rooms), rows


def _view(out: Path, room: Room, seed: tuple[int, int]) -> RoomQuestion:
    """The row, without an id, of the view to find in a room, whose picture is written."""
    scene = room.scene
    row = view_finding(room, scene, seed) | {"answer_kind": "pose"}
    write_picture(scene, row, out / f"pictures/{room.name}.png")
    return row


def _claim(out: Path, made_with: dict[str, Any]) -> None:
    """Record how the rooms are made; raises ValueError if the folder has rooms that were made differently."""
    path = out / MADE_WITH_FILE
    try:
        earlier = json_in(path.read_bytes())
    except FileNotFoundError:
        if (out / QUESTIONS_FILE).exists() or (out / "scannet").exists():
            raise ValueError(
                f"{out} already has rooms or questions, but no {MADE_WITH_FILE} to tell how they were made; choose "
                "another folder"
            ) from None
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made_with) + "\n", encoding="utf-8")
        return
    if earlier != made_with:
        raise ValueError(f"{out} has other rooms (made with {earlier}, not {made_with}); choose another folder")


def ply_of(mesh: RoomMesh) -> bytes:
    """A binary PLY file with vertex colours, the same bytes whatever is installed."""
    vertices = np.empty(len(mesh.vertices), [("xyz", "<f4", 3), ("rgb", "u1", 3)])
    vertices["xyz"] = mesh.vertices
    vertices["rgb"] = mesh.colours
    faces = np.empty(len(mesh.faces), [("corners", "u1"), ("indices", "<i4", 3)])
    faces["corners"] = 3
    faces["indices"] = mesh.faces
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(vertices)}"]
    header += [f"property float {axis}" for axis in "xyz"]
    header += [f"property uchar {channel}" for channel in ("red", "green", "blue")]
    header += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header", ""]
    return "\n".join(header).encode() + vertices.tobytes() + faces.tobytes()


def room_record(room: Room) -> dict[str, Any]:
    """The room's geometry as JSON values, in metres, square metres and degrees."""
    return {
        "scene_name": room.name,
        "polygon": room.plan.corners.tolist(),
        "height": room.plan.height,
        "area_m2": room.area_m2,
        "objects": [{"category": o.category, **asdict(o.box), "supported_by": o.supported_by} for o in room.objects],
    }
