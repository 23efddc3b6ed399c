"""Makes the questions of the benchmark `rooms` again: python scripts/rooms_split.py."""

import json
import lzma
from collections import Counter
from dataclasses import replace

from roomscout.rooms.questions import RoomQuestion, room_questions
from roomscout.rooms.room import LEVELS, Room, make_room
from roomscout.rooms.split import CANDIDATES, RESOLUTION_M, ROOMS, SEEDS, SHIPPED, SplitError

MOST_REPLACEMENTS = 20


def choose_questions(rooms: int = ROOMS) -> str:
    """The lines of the split's questions, made again."""
    chosen: list[RoomQuestion] = []
    used = {level: Counter[tuple[str, str]]() for level in LEVELS}
    for place in range(rooms):
        for level in LEVELS:
            _, rows = made_room(level, place, SEEDS[level])
            chosen += [row | {"dataset": level} for row in balanced(rows, used[level])]
    return "".join(json.dumps(row | {"id": number}) + "\n" for number, row in enumerate(chosen, start=1))


def made_room(level: str, place: int, seed: int) -> tuple[Room, list[RoomQuestion]]:
    """The first room of the place that has a question of each type, and its candidates; raises SplitError."""
    style = replace(LEVELS[level].style, resolution_m=RESOLUTION_M)
    for index in range(place, place + MOST_REPLACEMENTS * ROOMS, ROOMS):
        room = make_room(seed, index, style, LEVELS[level])
        rows = room_questions(room, (seed, index), CANDIDATES)
        if {row["question_type"] for row in rows} == CANDIDATES.keys():
            return room, rows
    raise SplitError(f"no room at place {place} of level {level} has a question of each type")


def balanced(candidates: list[RoomQuestion], used: Counter[tuple[str, str]]) -> list[RoomQuestion]:
    """A question of each type: the one whose answer was chosen least often so far, the first one on a tie."""
    chosen = []
    for question_type in CANDIDATES:
        of_type = [row for row in candidates if row["question_type"] == question_type]
        chosen.append(min(of_type, key=lambda row: used[question_type, row["ground_truth"]]))
        used[question_type, chosen[-1]["ground_truth"]] += 1
    return chosen


if __name__ == "__main__":
    SHIPPED.write_bytes(lzma.compress(choose_questions().encode(), preset=9))
