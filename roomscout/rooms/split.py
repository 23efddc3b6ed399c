"""The fixed test split of the benchmark `rooms`: 200 rooms of each level, with a question of each type about each room.

The questions and the hash of each scan ship with the package; rooms are made when they are asked about. `make_scans`
starts processes `python -m roomscout.rooms.split FOLDER`, which read the rooms to make from their standard input.
"""

import fcntl
import hashlib
import json
import logging
import lzma
import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from roomscout.base.files import replace_bytes
from roomscout.base.grouping import grouped
from roomscout.base.processes import environment
from roomscout.data.question_files import QuestionError
from roomscout.rendering.scene import load_scene
from roomscout.rooms.questions import QUESTIONS_PER_TYPE, RoomQuestion, room_questions
from roomscout.rooms.room import LEVELS, Room, make_room
from roomscout.rooms.view_finding import write_picture
from roomscout.rooms.writer import QUESTIONS_FILE, ply_of, room_record

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
RESOLUTION_M = 0.08  # grid step of the meshes: at the usual 0.05, all rooms together would take 2 GB instead of 0.9
CANDIDATES = {name: 12 if "_rel_" in name or name == "route_planning" else 3 for name in QUESTIONS_PER_TYPE}
"""Questions from which one of each type is chosen, so that the answers of the split are balanced."""
DECIMALS = 3  # of a scan's coordinates in metres, so that processors that round otherwise make the same file
MOST_WORKERS = 16
SECONDS_BETWEEN_REPORTS = 20.0


class SplitError(QuestionError):
    """The rooms cannot be made as they should be. The message says how to fix it."""


def cache_root() -> Path:
    """Where files that can be made again are kept: $XDG_CACHE_HOME/roomscout, by default ~/.cache/roomscout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "roomscout"


def split_folder(parent: Path | None = None) -> Path:
    """The folder of the split below `parent`, by default `cache_root()`. Raises SplitError. It has questions.jsonl, and
    of the rooms made so far <level>/<scene>.ply and their boxes in <level>/rooms.json."""
    parent = cache_root() if parent is None else parent
    folder = parent / f"rooms_v{VERSION}_{SHA256[:8]}_by_room"
    with _keeping_in(parent):
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / QUESTIONS_FILE
        has_views = folder / f".views_{VIEWS_SHA256[:8]}"
        if not (file.exists() and has_views.exists()):  # folders are older than views
            replace_bytes(folder / SHIPPED_SCANS.name, SHIPPED_SCANS.read_bytes())
            replace_bytes(file, b"".join(lzma.decompress(path.read_bytes()) for path in (SHIPPED, SHIPPED_VIEWS)))
            has_views.touch()
    return folder


@contextmanager
def _keeping_in(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SplitError(
            f"{folder}: the rooms cannot be kept there ({error}); set XDG_CACHE_HOME to a folder"
        ) from None


def make_scans(scenes: Iterable[tuple[str, str]], parent: Path | None = None) -> None:
    """Make those rooms (level and name) of the split that are not in `split_folder(parent)` yet, one process per core;
    calls at once wait for one, and continue an interrupted one. Raises SplitError."""
    folder = split_folder(parent)
    shipped = {(row["dataset"], row["scene_name"]) for row in shipped_questions()}
    wanted = sorted(shipped.intersection(scenes), key=lambda scene: (scene[1].rpartition("_")[2], scene))
    unfinished = folder / ".unfinished"
    with _keeping_in(folder):
        if not _missing(folder, wanted) and not unfinished.exists():
            return
        with (folder / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            unfinished.touch()
            if missing := _missing(folder, wanted):  # another process may have made them while this one waited
                _make(folder, missing)
            for level in LEVELS:
                records = sorted((folder / level).glob("room_*.json"))
                if boxes := [json.loads(path.read_text(encoding="utf-8")) for path in records]:
                    replace_bytes(folder / level / "rooms.json", (json.dumps(boxes) + "\n").encode())
            unfinished.unlink()


@cache
def shipped_questions(file: Path = SHIPPED) -> tuple[RoomQuestion, ...]:
    """The questions of the split in one of its files as rows, in their order."""
    return tuple(map(json.loads, lzma.decompress(file.read_bytes()).splitlines()))


def make_pictures(scenes: Iterable[tuple[str, str]]) -> None:
    """Draw the pictures of the questions about those rooms that are not there yet; raises SplitError."""
    folder = split_folder()
    wanted = set(scenes)
    rows = [row for row in shipped_questions(SHIPPED_VIEWS) if (row["dataset"], row["scene_name"]) in wanted]
    missing = [row for row in rows if not (folder / row["images"][0]["file"]).exists()]
    if missing:
        log.info("Pictures to draw once, in %s: %d", folder, len(missing))
    with _keeping_in(folder):
        for row in missing:
            picture = folder / row["images"][0]["file"]
            write_picture(load_scene(picture.with_name(f"{row['scene_name']}.ply")), row, picture)


def _missing(folder: Path, scenes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(level, name) for level, name in scenes if not (folder / level / f"{name}.ply").exists()]


def _make(folder: Path, scenes: Sequence[tuple[str, str]]) -> None:
    """Run one process per core until these rooms are in the folder."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # not on macOS
    workers = min(cores, MOST_WORKERS, len(scenes))
    log.info("Rooms to make once, in %s: %d; on two cores 100 take about a minute", folder, len(scenes))
    command = [sys.executable, "-m", "roomscout.rooms.split", str(folder)]
    env = environment() | {"OMP_NUM_THREADS": "1"}
    started = []
    try:
        for part in range(workers):
            process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            started.append(process)
            assert process.stdin is not None
            process.stdin.write("".join(f"{level} {name}\n" for level, name in scenes[part::workers]))
            process.stdin.close()
            process.stdin = None  # communicate() would flush it
        reported = time.monotonic()
        while any(process.poll() is None for process in started):
            time.sleep(0.2)
            if time.monotonic() - reported > SECONDS_BETWEEN_REPORTS:
                log.info("%d of %d rooms made", len(scenes) - len(_missing(folder, scenes)), len(scenes))
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
    """Make the rooms that the standard input names, in this FOLDER. Ends early if the caller died."""
    caller = os.getppid()
    folder = Path(arguments[0])
    questions = grouped(((row["dataset"], row["scene_name"]), row) for row in shipped_questions())
    for line in sys.stdin:
        if os.getppid() != caller:
            return
        level, name = line.split()
        room = checked_room(level, name, questions[level, name])
        (folder / level).mkdir(exist_ok=True)
        replace_bytes(folder / level / f"{name}.json", json.dumps(room_record(room)).encode())
        replace_bytes(folder / level / f"{name}.ply", ply_of(room.mesh))


def split_room(level: str, name: str) -> Room:
    """A room of the split by its name, as this machine makes it."""
    seed, index = numbers_of(name)
    room = make_room(seed, index, replace(LEVELS[level].style, resolution_m=RESOLUTION_M), LEVELS[level])
    return replace(room, mesh=replace(room.mesh, vertices=np.round(room.mesh.vertices, DECIMALS)))


def checked_room(level: str, name: str, questions: Sequence[RoomQuestion]) -> Room:
    """A room of the split by its name; SplitError if its `questions` are not true here, or its scan is another."""
    room = split_room(level, name)
    rows = json.loads(json.dumps(room_questions(room, numbers_of(name), CANDIDATES)))
    own = dict.fromkeys(OWN_COLUMNS)
    candidates = [row | own for row in rows]
    line = f"{hashlib.sha256(ply_of(room.mesh)).hexdigest()}  {level}/{name}.ply"
    if line not in _shipped_scans() or not all(row | own in candidates for row in questions):
        raise SplitError(
            f"this machine makes another room {name} than version {VERSION} of the benchmark, so scores would not be "
            "comparable; install the NumPy and SciPy of constraints.txt"
        )
    return room


def numbers_of(name: str) -> tuple[int, int]:
    """The seed and the index of a room of the split."""
    seed, index = map(int, name.removeprefix("room_seed").split("_"))
    return seed, index


@cache
def _shipped_scans() -> frozenset[str]:
    return frozenset(SHIPPED_SCANS.read_text(encoding="ascii").splitlines())


if __name__ == "__main__":
    main(sys.argv[1:])
