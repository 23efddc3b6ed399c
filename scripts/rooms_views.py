"""Makes the questions of the benchmark `rooms` whose answer is a pose again: python -m scripts.rooms_views."""

import hashlib
import json
import lzma
import sys
from concurrent.futures import ProcessPoolExecutor

from roomscout.data.pictures import MADE
from roomscout.rooms.frozen import shipped_rows
from roomscout.rooms.questions import RoomQuestion
from roomscout.rooms.split import CANARY, SHIPPED, SHIPPED_VIEWS, numbers_of, split_room
from roomscout.rooms.view_finding import view_finding


def row_of(scene: tuple[str, str]) -> RoomQuestion:
    """The question about a room of the split, by its level and name."""
    level, name = scene
    room = split_room(level, name)
    row = view_finding(room, room.scene, numbers_of(name))
    picture = {"file": f"{level}/{name}_view.png", "sha256": MADE}
    return row | {"dataset": level, "images": [picture], "canary": CANARY}


def main() -> None:
    """Write the questions, numbered after the others, and say what VIEWS_SHA256 has to be."""
    others = shipped_rows(SHIPPED)
    scenes = dict.fromkeys((row["dataset"], row["scene_name"]) for row in others)
    with ProcessPoolExecutor() as pool:
        rows = pool.map(row_of, scenes, chunksize=5)
        lines = [json.dumps({"id": len(others) + number} | row) + "\n" for number, row in enumerate(rows, start=1)]
    content = "".join(lines).encode()
    SHIPPED_VIEWS.write_bytes(lzma.compress(content, preset=9))
    sys.stdout.write(f'VIEWS_SHA256 = "{hashlib.sha256(content).hexdigest()}"\n')


if __name__ == "__main__":
    main()
