"""Write rooms to disk: scans in ScanNet's layout, questions in VSI-Bench's columns, geometry as JSON."""

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from data.rooms.questions import QUESTIONS_PER_TYPE, room_questions
from data.rooms.room import Room, make_room
from data.rooms.scan import RoomMesh, ScanStyle

log = logging.getLogger(__name__)

QUESTIONS_FILE = "questions.jsonl"
MADE_WITH_FILE = "made_with.json"


def kept_rooms(parent: Path, rooms: int, seed: int, per_type: Mapping[str, int]) -> Path:
    """The folder of such rooms below `parent`, written when it is first asked for and then kept.

    Its name tells rooms of another generator apart: after a change of this package's code they are written anew. It
    appears whole, whoever else makes the same. Raises what `write_rooms` does.
    """
    asked = json.dumps(dict(per_type), sort_keys=True)
    sources = (path.read_text(encoding="utf-8") for path in sorted(Path(__file__).parent.rglob("*.py")))
    version = hashlib.sha256("".join([asked, *sources]).encode()).hexdigest()[:8]
    folder = parent / f"rooms_{rooms}_seed{seed}_{version}"
    if not folder.exists():
        log.info("Making %d furnished rooms with questions in %s", rooms, folder)
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making_rooms_", dir=parent) as draft:
            write_rooms(Path(draft) / "made", rooms, seed, per_type=per_type)
            try:
                (Path(draft) / "made").rename(folder)
            except OSError:
                if not folder.exists():  # else another process was faster
                    raise
    return folder


def write_rooms(
    out: Path,
    rooms: int,
    seed: int,
    style: ScanStyle | None = None,
    per_type: Mapping[str, int] = QUESTIONS_PER_TYPE,
) -> int:
    """Write the first `rooms` rooms of a seed under `out`, replacing files of the same names, and return the number
    of questions. A room's files and questions do not depend on how many rooms are written.

    `out/scannet/scans/<scene>/<scene>_vh_clean_2.ply` are the scans (so `out` is a scan root), `out/questions.jsonl`
    the questions, and `out/rooms.json` a list of each room's polygon, height, area and objects' boxes: it holds the
    answers, so no model may see it. The questions' file appears last, when all else is there; an older one, whose rooms
    other scans replace, goes first. `out/made_with.json` says how the set was made: the same set may be written again,
    with more or fewer rooms, but a folder with another set is left as it is. Raises ValueError for that and for bad
    numbers, OSError where nothing can be written.
    """
    if rooms < 1:
        raise ValueError(f"rooms must be 1 or more, not {rooms}")
    style = style or ScanStyle()
    if seed >= 0:  # make_room refuses others
        _claim(out, {"seed": seed, **asdict(style)})
    out.mkdir(parents=True, exist_ok=True)
    for name in (QUESTIONS_FILE, "rooms.json"):
        (out / name).unlink(missing_ok=True)
    geometry, asked = [], 0
    draft = out / f"{QUESTIONS_FILE}.tmp"
    with draft.open("w", encoding="utf-8") as lines:
        for index in range(rooms):
            room = make_room(seed, index, style)
            write_ply(room.mesh, out / "scannet" / "scans" / room.name / f"{room.name}_vh_clean_2.ply")
            rows = room_questions(room, (seed, index), per_type, first_id=asked)
            lines.writelines(json.dumps(row) + "\n" for row in rows)
            geometry.append(room_record(room))
            asked += len(rows)
    (out / "rooms.json").write_text(json.dumps(geometry, indent=1) + "\n", encoding="utf-8")
    draft.replace(out / QUESTIONS_FILE)
    return asked


def _claim(out: Path, made_with: dict[str, Any]) -> None:
    """Note in a new folder how its rooms are made; raises ValueError where it has rooms that were made otherwise."""
    path = out / MADE_WITH_FILE
    try:
        earlier = json.loads(path.read_bytes())
    except FileNotFoundError:
        if (out / QUESTIONS_FILE).exists() or (out / "scannet").exists():
            raise ValueError(
                f"{out} already has rooms or questions, and no {MADE_WITH_FILE} says how they were made; choose "
                "another folder"
            ) from None
        out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(made_with) + "\n", encoding="utf-8")
        return
    if earlier != made_with:
        raise ValueError(
            f"{out} has another set of rooms ({_in_words(earlier)}, not {_in_words(made_with)}); choose another folder"
        )


def _in_words(made_with: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in made_with.items())


def write_ply(mesh: RoomMesh, path: Path) -> None:
    """Write a binary PLY with vertex colours, making its folder."""
    import trimesh

    path.parent.mkdir(parents=True, exist_ok=True)
    surface = trimesh.Trimesh(mesh.vertices, mesh.faces, vertex_colors=mesh.colours, process=False)
    draft = path.with_suffix(".tmp")
    draft.write_bytes(surface.export(file_type="ply"))
    draft.replace(path)


def room_record(room: Room) -> dict[str, Any]:
    """The room's geometry as JSON values: metres, square metres and degrees."""
    return {
        "scene_name": room.name,
        "polygon": room.polygon.tolist(),
        "height": room.height,
        "area_m2": room.area_m2,
        "objects": [
            {
                "category": o.category,
                "center": list(o.box.center),
                "size": list(o.box.size),
                "yaw_deg": o.box.yaw_deg,
                "supported_by": o.supported_by,
            }
            for o in room.objects
        ],
    }
