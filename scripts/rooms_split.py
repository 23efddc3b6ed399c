"""Makes the questions of the benchmark `rooms` and the hashes of its scans again: python -m scripts.rooms_split."""

import hashlib
import json
import lzma
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any

from roomscout.rooms.frozen import SplitError, hash_line
from roomscout.rooms.questions import RoomQuestion, room_questions
from roomscout.rooms.room import LEVELS, make_room
from roomscout.rooms.scan import ScanStyle
from roomscout.rooms.split import CANARY, CANDIDATES, ROOMS, SEEDS, SHIPPED, SHIPPED_SCANS, split_room
from scripts.text_only import LETTERS, TextOnly, halves, scene, traits

MOST_REPLACEMENTS = 20
COARSE = ScanStyle(1.0)  # questions do not depend on the scan
USUAL = 4  # the first candidates of a type are as the generator usually makes them; later ones are what is left
MODELS = 4
LESS = 0.6


def choose_questions() -> list[RoomQuestion]:
    """The rows of the split's questions, chosen again among the candidates of each room.

    Of three candidates with a number, the one whose number was chosen least often in the level. Of twelve with options,
    the one with which the right options most nearly have their fair share (one of n options, the n-th part) of each
    letter, of each rank in the eyes of text-only models fitted on other rooms, and less strictly of turns and sides.
    """
    with ProcessPoolExecutor() as pool:
        made = list(pool.map(made_room, *zip(*product(range(ROOMS), LEVELS), strict=True), chunksize=3))
    chosen: list[RoomQuestion] = []
    orders = orders_of(made)
    used: Counter[Any] = Counter()
    for rows in made:
        for question_type in CANDIDATES:
            of_type = [row for row in rows if row["question_type"] == question_type]
            changes = [shares(row, orders[key(row)]) if row["options"] else numbers(row) for row in of_type]
            costs = [sum((used[each] + by) ** 2 - used[each] ** 2 for each, by in own.items()) for own in changes]
            best = costs.index(min(costs))
            used.update(changes[best])
            chosen.append(of_type[best])
    return [row | {"id": number, "canary": CANARY} for number, row in enumerate(chosen, start=1)]


def made_room(place: int, level: str) -> list[RoomQuestion]:
    """The candidates of the first room of the place that has a question of each type; raises SplitError."""
    for index in range(place, place + MOST_REPLACEMENTS * ROOMS, ROOMS):
        seed = SEEDS[level]
        rows = room_questions(make_room(seed, index, COARSE, LEVELS[level]), (seed, index), CANDIDATES)
        if {row["question_type"] for row in rows} == CANDIDATES.keys():
            return [row | {"dataset": level} for row in rows]
    raise SplitError(f"no room at place {place} of level {level} has a question of each type")


def key(row: RoomQuestion) -> tuple[str, ...]:
    """What tells a candidate with options from the others."""
    return (*scene(row), row["question_type"], row["question"], *row["options"])


def orders_of(made: Sequence[Sequence[RoomQuestion]]) -> dict[tuple[str, ...], list[list[int]]]:
    """The orders in which text-only models, which were fitted on other rooms, put a candidate's options."""
    found: dict[tuple[str, ...], list[list[int]]] = {}
    for question_type in CANDIDATES:
        of_rooms = [[row for row in rows if row["question_type"] == question_type] for rows in made]
        if not of_rooms[0][0]["options"]:
            continue
        every = [row for rows in of_rooms for row in rows]
        usual = {key(row) for rows in of_rooms for row in rows[:USUAL]}
        for seed in range(1, MODELS + 1):
            for known, others in halves(every, seed):
                model = TextOnly([row for row in known if key(row) in usual])
                for row in others:
                    found.setdefault(key(row), []).append(model.order(row))
    return found


def shares(row: RoomQuestion, orders: Sequence[Sequence[int]]) -> Counter[Any]:
    """By how much a question changes what right options have above their fair share."""
    change: Counter[Any] = Counter()
    right = LETTERS.index(row["ground_truth"])
    for place, own in enumerate(traits(row)):
        above = (place == right) - 1 / len(row["options"])
        change[row["dataset"], row["question_type"], own[0]] += above
        for number, order in enumerate(orders):
            change[row["question_type"], len(order), number, order.index(place)] += above
        named = row["question_type"] == "object_rel_distance"  # the options are objects, of which there are too many
        for trait in () if named else [each for each in own if each[0] in ("text", "turn", "turns")]:
            change[row["question_type"], trait] += LESS * above
    return change


def numbers(row: RoomQuestion) -> Counter[Any]:
    """One more question with its number."""
    return Counter({(row["dataset"], row["question_type"], row["ground_truth"]): 1})


def main() -> None:
    """Write the questions and the hashes of the rooms' files, and say what SHA256 has to be."""
    rows = choose_questions()
    SHIPPED.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), preset=9))
    with ProcessPoolExecutor() as pool:
        hashes = pool.map(hash_of_scan, sorted({scene(row) for row in rows}), chunksize=5)
        SHIPPED_SCANS.write_text("".join(hashes))
    sys.stdout.write(f'SHA256 = "{sha256_of_shipped()}"\n')


def sha256_of_shipped() -> str:
    """What SHA256 has to be."""
    return hashlib.sha256(lzma.decompress(SHIPPED.read_bytes()) + SHIPPED_SCANS.read_bytes()).hexdigest()


def hash_of_scan(room: tuple[str, str]) -> str:
    """The line of a room in SHIPPED_SCANS."""
    level, name = room
    return hash_line(level, split_room(level, name)) + "\n"


if __name__ == "__main__":
    main()
