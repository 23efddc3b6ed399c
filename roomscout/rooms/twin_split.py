"""The fixed test split of the benchmark `rooms-twins`: 200 pairs of rooms of each level, with a question about each."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from roomscout.rooms.frozen import RESOLUTION_M, FrozenRooms, rounded
from roomscout.rooms.questions import RoomQuestion
from roomscout.rooms.room import LEVELS, Room
from roomscout.rooms.split import CANARY, numbers_of
from roomscout.rooms.twins import MEMBERS, Twins, make_twins

VERSION = 2  # counted up whenever a room or a question changes. The scores of different versions are not comparable.
SHA256 = "4dd3b047e06d31f649b7d3591da64de32de43e22695e0d76b8a753da85725764"
"""Of SHIPPED, unpacked, and SHIPPED_SCANS: part of the label of scores."""
SHIPPED = Path(__file__).parent / "twins.jsonl.xz"  # the questions; scripts/twins_split.py wrote both files
SHIPPED_SCANS = Path(__file__).parent / "twins.sha256"  # of each room's file, as `sha256sum` writes and checks them
PAIRS_PER_TYPE = {
    "object_counting": 29, "object_abs_distance": 29, "object_size_estimation": 29, "room_size_estimation": 28,
    "object_rel_distance": 28, "object_rel_direction_easy": 9, "object_rel_direction_medium": 10,
    "object_rel_direction_hard": 10, "route_planning": 28,
}  # fmt: skip
"""Of each level."""
PAIRS = sum(PAIRS_PER_TYPE.values()) * len(LEVELS)
SEEDS = {"bare": 4_500_000, "furnished": 5_500_000, "cluttered": 6_500_000}
"""Other rooms than those of the benchmark `rooms`, of the explorer's training, validation and test, and of the demo."""


def split_twins(level: str, index: int, question_type: str) -> Twins:
    """A pair of the split as this machine makes it, if the first furniture that is tried has one; else ValueError."""
    style = replace(LEVELS[level].style, resolution_m=RESOLUTION_M)
    twins = make_twins(SEEDS[level], index, question_type, LEVELS[level], style, attempts=1)
    first, second = map(rounded, twins.rooms)
    return replace(twins, rooms=(first, second))


def row_of(level: str, pair: int, member: int, twins: Twins) -> RoomQuestion:
    """The row of a pair's member in the split; pairs count from 1."""
    return {"id": f"{pair}{MEMBERS[member]}"} | twins.rows[member] | {"dataset": level, "canary": CANARY}


def _room_of(level: str, name: str, questions: Sequence[RoomQuestion]) -> Room | None:
    (asked,) = questions
    _, index = numbers_of(name[:-1])
    member = MEMBERS.index(name[-1])
    try:
        twins = split_twins(level, index, asked["question_type"])
    except ValueError:
        return None
    made = row_of(level, int(asked["id"][:-1]), member, twins)
    return twins.rooms[member] if json.loads(json.dumps(made)) == asked else None


SPLIT = FrozenRooms(
    __name__,
    f"rooms_twins_v{VERSION}_{SHA256[:8]}",
    f"version {VERSION} of the twins",
    (SHIPPED,),
    SHIPPED_SCANS,
    _room_of,
    ".questions",
)
