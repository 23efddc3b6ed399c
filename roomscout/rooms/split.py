"""The fixed test split of the benchmark `rooms`: 200 rooms of each level, with a question of each type about each room,
and a view to find in each."""

import json
import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from roomscout.rendering.scene import load_scene
from roomscout.rooms.frozen import RESOLUTION_M, FrozenRooms, keeping_in, rounded, shipped_rows
from roomscout.rooms.questions import QUESTIONS_PER_TYPE, RoomQuestion, room_questions
from roomscout.rooms.room import LEVELS, Room, make_room
from roomscout.rooms.view_finding import write_picture

log = logging.getLogger(__name__)

VERSION = 2  # counted up whenever a room or a question changes. The scores of different versions are not comparable.
SHA256 = "9c2ee0d2f1d991d8c96cf40972c9ec011b8f86262df51b1d5e039d2d58487417"
"""Of SHIPPED, unpacked, and SHIPPED_SCANS: part of the label of scores."""
SHIPPED = Path(__file__).parent / "split.jsonl.xz"  # the questions; scripts/rooms_split.py wrote both files
SHIPPED_VIEWS = Path(__file__).parent / "views.jsonl.xz"  # those whose answer is a pose, one about each room
SHIPPED_SCANS = Path(__file__).parent / "split.sha256"  # of each room's file, as `sha256sum` writes and checks them
CANARY = "Test data of the benchmark rooms of RoomScout: not for training. GUID 5d0a6f1e-3c7b-4e52-9b0e-8a41c2f7d936"
"""In each row, so that training data can be searched for it; see BIG-bench (arXiv:2206.04615)."""
VIEWS_SHA256 = "87d8770a39d72b3bd9fe3336dc4f851c44012abc4b9dd415f49c570bffe83734"
"""Of SHIPPED_VIEWS, unpacked: part of the label of their scores."""
OWN_COLUMNS = ("id", "dataset", "canary")  # columns that a question gets in the split
ROOMS = 200  # rooms of each level, with a question of each of the nine types about each
SEEDS = {"bare": 4_000_000, "furnished": 5_000_000, "cluttered": 6_000_000}
"""Other rooms than those of the explorer's training, validation and test, and of the demo."""
CANDIDATES = {name: 12 if "_rel_" in name or name == "route_planning" else 3 for name in QUESTIONS_PER_TYPE}
"""Questions from which one of each type is chosen, so that the answers of the split are balanced."""


def split_room(level: str, name: str) -> Room:
    """A room of the split by its name, as this machine makes it."""
    seed, index = numbers_of(name)
    return rounded(make_room(seed, index, replace(LEVELS[level].style, resolution_m=RESOLUTION_M), LEVELS[level]))


def _room_of(level: str, name: str, questions: Sequence[RoomQuestion]) -> Room | None:
    room = split_room(level, name)
    rows = json.loads(json.dumps(room_questions(room, numbers_of(name), CANDIDATES)))
    own = dict.fromkeys(OWN_COLUMNS)
    candidates = [row | own for row in rows]
    return room if all(row | own in candidates for row in questions) else None


def numbers_of(name: str) -> tuple[int, int]:
    """The seed and the index of a room of the split."""
    seed, index = map(int, name.removeprefix("room_seed").split("_"))
    return seed, index


SPLIT = FrozenRooms(
    __name__,
    f"rooms_v{VERSION}_{SHA256[:8]}_by_room",
    f"version {VERSION} of the benchmark",
    (SHIPPED, SHIPPED_VIEWS),
    SHIPPED_SCANS,
    _room_of,
    f".views_{VIEWS_SHA256[:8]}",  # folders are older than views
)


def make_pictures(scenes: Iterable[tuple[str, str]]) -> None:
    """Draw the pictures of the questions about those rooms that are not there yet; raises SplitError."""
    folder = SPLIT.folder()
    wanted = set(scenes)
    rows = [row for row in shipped_rows(SHIPPED_VIEWS) if (row["dataset"], row["scene_name"]) in wanted]
    missing = [row for row in rows if not (folder / row["images"][0]["file"]).exists()]
    if missing:
        log.info("Pictures to draw once, in %s: %d", folder, len(missing))
    with keeping_in(folder):
        for row in missing:
            picture = folder / row["images"][0]["file"]
            write_picture(load_scene(picture.with_name(f"{row['scene_name']}.ply")), row, picture)
