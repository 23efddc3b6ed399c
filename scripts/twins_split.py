"""Makes the questions of `rooms-twins` and the hashes of its scans again: python -m scripts.twins_split."""

import hashlib
import json
import lzma
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

from roomscout.rooms.frozen import hash_line
from roomscout.rooms.questions import RoomQuestion
from roomscout.rooms.room import LEVELS
from roomscout.rooms.twin_split import PAIRS_PER_TYPE, SHIPPED, SHIPPED_SCANS, row_of, split_twins

INDICES = 1000  # of each type


def pairs_of(level: str, question_type: str) -> list[tuple[list[RoomQuestion], list[str]]]:
    """The rows, without their pairs' numbers, and the lines of hashes of a type's pairs in a level."""
    first = INDICES * list(PAIRS_PER_TYPE).index(question_type)
    found = []
    for index in range(first, first + INDICES):
        if len(found) == PAIRS_PER_TYPE[question_type]:
            break
        try:
            twins = split_twins(level, index, question_type)
        except ValueError:
            continue
        lines = [hash_line(level, room) for room in twins.rooms]
        found.append(([row_of(level, 0, member, twins) for member in range(2)], lines))
    return found


def chosen() -> Iterator[tuple[list[RoomQuestion], list[str]]]:
    """All pairs, so that the first ones are of all types and levels."""
    cells = [(level, question_type) for question_type in PAIRS_PER_TYPE for level in LEVELS]
    with ProcessPoolExecutor() as pool:
        made = list(pool.map(pairs_of, *zip(*cells, strict=True)))
    for place in range(max(PAIRS_PER_TYPE.values())):
        yield from (of_cell[place] for of_cell in made if place < len(of_cell))


def main() -> None:
    """Write the questions and the hashes of the rooms' files, and say what SHA256 has to be."""
    rows = []
    hashes = []
    for pair, (of_pair, lines) in enumerate(chosen(), start=1):
        rows += [row | {"id": f"{pair}{row['id'][-1]}"} for row in of_pair]
        hashes += lines
    SHIPPED.write_bytes(lzma.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), preset=9))
    SHIPPED_SCANS.write_text("".join(line + "\n" for line in hashes))
    sys.stdout.write(f'{len(rows)} questions; SHA256 = "{sha256_of_shipped()}"\n')


def sha256_of_shipped() -> str:
    """What SHA256 has to be."""
    return hashlib.sha256(lzma.decompress(SHIPPED.read_bytes()) + SHIPPED_SCANS.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
