"""The fixed test split of the benchmark `rooms`: 200 rooms of each level, with a question of each type about each room.

`split_folder` starts processes `python -m roomscout.data.rooms.split DRAFT ROOMS PART OF`, which make a part each.
"""

import fcntl
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from roomscout.data.question_files import QuestionError
from roomscout.data.rooms.levels import LEVELS
from roomscout.data.rooms.questions import QUESTIONS_PER_TYPE, room_questions
from roomscout.data.rooms.room import Room, make_room
from roomscout.data.rooms.writer import QUESTIONS_FILE, room_record, write_ply
from roomscout.processes import environment

log = logging.getLogger(__name__)

VERSION = 1
"""Counted up whenever a room or a question changes. The scores of different versions are not comparable."""
SHA256 = "5b16509889cd3fdf044ad47955c2376a463d3d60e110d743f2ae85c92ca6481e"
"""Of the questions and the rooms' geometry in millimetres."""
ROOMS = 200
"""Rooms of each level, with a question of each of the nine types about each."""
SEEDS = {"bare": 4_000_000, "furnished": 5_000_000, "cluttered": 6_000_000}
"""Other rooms than those of the explorer's training, validation and test, and of the demo."""
RESOLUTION_M = 0.08
"""Grid step of the meshes: at the usual 0.05, all rooms together would take 2 GB instead of 0.9."""
CANDIDATES = dict.fromkeys(QUESTIONS_PER_TYPE, 3)
"""Questions from which one of each type is chosen, so that the answers of the split are balanced."""
MOST_REPLACEMENTS = 20
MOST_WORKERS = 16
SECONDS_BETWEEN_REPORTS = 20.0


class SplitError(QuestionError):
    """The rooms cannot be made as they should be. The message says how to fix it."""


def cache_root() -> Path:
    """Where files that can be made again are kept: $XDG_CACHE_HOME/roomscout, by default ~/.cache/roomscout."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if Path(given).is_absolute() else Path.home() / ".cache") / "roomscout"


def split_folder(parent: Path | None = None, rooms: int = ROOMS) -> Path:
    """The folder of the first `rooms` rooms of each level below `parent`, by default `cache_root()`.

    Makes them if they are not there, in one process per core; an interrupted call is continued by the next one, and of
    several at once one makes them while the others wait. The folder has <level>/<scene>.ply, <level>/rooms.json with
    the objects' boxes, and questions.jsonl. Raises SplitError.
    """
    parent = cache_root() if parent is None else parent
    name = f"rooms_v{VERSION}_{SHA256[:8] if rooms == ROOMS else rooms}"
    folder = parent / name
    if folder.is_dir():
        return folder
    try:
        parent.mkdir(parents=True, exist_ok=True)
        with (parent / f".{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():  # another process may have made it while this one waited
                draft = parent / f".{name}.draft"
                _make_all(draft, folder, rooms)
                _finish(draft, rooms)
                draft.rename(folder)
    except OSError as error:
        raise SplitError(
            f"{parent}: the rooms cannot be kept there ({error}); set XDG_CACHE_HOME to a folder"
        ) from None
    return folder


def _make_all(draft: Path, folder: Path, rooms: int) -> None:
    """Run one process per core until all rooms are in the folder `draft`."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # not on macOS
    total, workers = rooms * len(LEVELS), min(cores, MOST_WORKERS)
    log.info("Making %d rooms once, in %s; on two cores this takes some minutes", total, folder)
    command = [sys.executable, "-m", "roomscout.data.rooms.split", str(draft), str(rooms)]
    env = environment() | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([*command, str(part), str(workers)], env=env, stderr=subprocess.PIPE, text=True)
        for part in range(workers)
    ]
    try:
        reported = time.monotonic()
        while any(process.poll() is None for process in started):
            time.sleep(0.2)
            if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
                log.info("%d of %d rooms made", len(list(draft.glob("*/*.json"))), total)
                reported = time.monotonic()
        errors = [process.communicate()[1] for process in started]
    finally:
        for process in started:
            process.terminate()
            process.wait()
    for process, error in zip(started, errors, strict=True):
        if process.returncode:
            last = (error.strip().splitlines() or ["no message"])[-1]
            raise SplitError(f"making the rooms failed ({last}); the next run continues with those made so far")


def main(arguments: list[str]) -> None:
    """Make each room of a part that is not in the folder yet: DRAFT ROOMS PART OF. Ends early if the caller died."""
    caller = os.getppid()
    draft, (rooms, part, of) = Path(arguments[0]), map(int, arguments[1:])
    jobs = [(level, place) for place in range(rooms) for level in LEVELS]
    for level, place in jobs[part::of]:
        if os.getppid() != caller:
            return
        record = draft / level / f"{place:03d}.json"
        if not record.exists():
            room, rows = made_room(level, place, SEEDS[level])
            write_ply(room.mesh, draft / level / f"{room.name}.ply")
            unfinished = record.with_suffix(".tmp")
            unfinished.write_text(json.dumps({"room": room_record(room), "questions": rows}), encoding="utf-8")
            unfinished.replace(record)


def made_room(level: str, place: int, seed: int) -> tuple[Room, list[dict[str, Any]]]:
    """The first room of the place that has a question of each type, and its candidates; raises SplitError."""
    style = replace(LEVELS[level].style, resolution_m=RESOLUTION_M)
    for index in range(place, place + MOST_REPLACEMENTS * ROOMS, ROOMS):
        room = make_room(seed, index, style, LEVELS[level])
        rows = room_questions(room, (seed, index), CANDIDATES)
        if {row["question_type"] for row in rows} == CANDIDATES.keys():
            return room, rows
    raise SplitError(f"no room at place {place} of level {level} has a question of each type")


def _finish(draft: Path, rooms: int) -> None:
    """Write the questions and boxes of all rooms, and remove the records of each; raises SplitError."""
    chosen: list[dict[str, Any]] = []
    boxes: dict[str, list[Any]] = {}
    used = {level: Counter[tuple[str, str]]() for level in LEVELS}
    for place in range(rooms):
        for level in LEVELS:
            record = json.loads((draft / level / f"{place:03d}.json").read_text(encoding="utf-8"))
            boxes.setdefault(level, []).append(record["room"])
            chosen += [row | {"dataset": level} for row in balanced(record["questions"], used[level])]
    lines = "".join(json.dumps(row | {"id": number}) + "\n" for number, row in enumerate(chosen, start=1))
    digest = hashlib.sha256((lines + json.dumps(_in_millimetres(boxes))).encode()).hexdigest()
    if rooms == ROOMS and digest != SHA256:
        shutil.rmtree(draft)
        raise SplitError(
            f"this machine makes other rooms ({digest[:8]}) than version {VERSION} of the benchmark ({SHA256[:8]}), so "
            "scores would not be comparable; install the NumPy and SciPy of constraints.txt"
        )
    for level in LEVELS:
        (draft / level / "rooms.json").write_text(json.dumps(boxes[level]) + "\n", encoding="utf-8")
        for path in _records(draft / level):
            path.unlink()
    (draft / QUESTIONS_FILE).write_text(lines, encoding="utf-8")


def _records(folder: Path) -> Iterator[Path]:
    return (path for path in folder.glob("*.json") if path.stem.isdigit())


def balanced(candidates: list[dict[str, Any]], used: Counter[tuple[str, str]]) -> list[dict[str, Any]]:
    """A question of each type: the one whose answer was chosen least often so far, the first one on a tie."""
    chosen = []
    for question_type in CANDIDATES:
        of_type = [row for row in candidates if row["question_type"] == question_type]
        chosen.append(min(of_type, key=lambda row: used[question_type, row["ground_truth"]]))
        used[question_type, chosen[-1]["ground_truth"]] += 1
    return chosen


def _in_millimetres(value: Any) -> Any:
    """JSON values with all numbers rounded, so that they do not depend on the last bits of a processor's results."""
    if isinstance(value, dict):
        return {name: _in_millimetres(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_in_millimetres(each) for each in value]
    return round(value, 3) + 0.0 if isinstance(value, float) else value


if __name__ == "__main__":
    main(sys.argv[1:])
