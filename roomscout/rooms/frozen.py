"""Rooms that are frozen: their questions and the hash of each scan ship with the package, and rooms are made when they
are asked about, by processes `python -m roomscout.rooms.frozen MODULE FOLDER`, which read the rooms to make from their
standard input. The module has the `FrozenRooms` as SPLIT.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np

from roomscout.base.files import replace_bytes
from roomscout.base.grouping import grouped
from roomscout.base.processes import environment
from roomscout.data.question_files import QuestionError
from roomscout.rooms.questions import RoomQuestion
from roomscout.rooms.room import LEVELS, Room
from roomscout.rooms.writer import QUESTIONS_FILE, ply_of, room_record

log = logging.getLogger(__name__)

RESOLUTION_M = 0.08  # grid step of the meshes: at the usual 0.05, 600 rooms together would take 2 GB instead of 0.9
DECIMALS = 3  # of a scan's coordinates in metres, so that processors that round otherwise make the same file
MOST_WORKERS = 16
SECONDS_BETWEEN_REPORTS = 20.0


class SplitError(QuestionError):
    """The rooms cannot be made as they should be. The message says how to fix it."""


@dataclass(frozen=True, eq=False)
class FrozenRooms:
    """A set of rooms and questions about them, the same on all machines."""

    module: str  # in which it is SPLIT
    name: str  # of its folder; other rooms have another one
    title: str  # what messages call it
    files: tuple[Path, ...]  # its questions, packed
    hashes: Path  # of each room's file, as `sha256sum` writes and checks them
    room_of: Callable[[str, str, Sequence[RoomQuestion]], Room | None]
    """Makes a room by level and name; None if its questions are not true here."""
    marker: str  # a file in the folder once it has all questions, such as ".views_1234abcd"

    def folder(self, parent: Path | None = None) -> Path:
        """The folder below `parent`, by default `cache_root()`. Raises SplitError. It has questions.jsonl, and of the
        rooms made so far <level>/<scene>.ply and their boxes in <level>/rooms.json."""
        parent = cache_root() if parent is None else parent
        folder = parent / self.name
        with keeping_in(parent):
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / QUESTIONS_FILE
            marker = folder / self.marker
            if not (file.exists() and marker.exists()):
                replace_bytes(folder / self.hashes.name, self.hashes.read_bytes())
                replace_bytes(file, b"".join(lzma.decompress(path.read_bytes()) for path in self.files))
                marker.touch()
        return folder

    def make_scans(self, scenes: Iterable[tuple[str, str]], parent: Path | None = None) -> None:
        """Make those rooms (level and name) that are not in `folder(parent)` yet, one process per core; calls at once
        wait for one, and continue an interrupted one. Raises SplitError."""
        folder = self.folder(parent)
        shipped = {(row["dataset"], row["scene_name"]) for row in shipped_rows(self.files[0])}
        wanted = sorted(shipped.intersection(scenes), key=lambda scene: (scene[1].rpartition("_")[2], scene))
        unfinished = folder / ".unfinished"
        with keeping_in(folder):
            if not _missing(folder, wanted) and not unfinished.exists():
                return
            with (folder / ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                unfinished.touch()
                if missing := _missing(folder, wanted):  # another process may have made them while this one waited
                    self._make(folder, missing)
                for level in LEVELS:
                    records = sorted((folder / level).glob("room_*.json"))
                    if boxes := [json.loads(path.read_text(encoding="utf-8")) for path in records]:
                        replace_bytes(folder / level / "rooms.json", (json.dumps(boxes) + "\n").encode())
                unfinished.unlink()

    def checked_room(self, level: str, name: str, questions: Sequence[RoomQuestion]) -> Room:
        """A room by its name; SplitError if its `questions` are not true here, or its scan is another."""
        room = self.room_of(level, name, questions)
        if room is None or hash_line(level, room) not in _lines(self.hashes):
            raise SplitError(
                f"this machine makes another room {name} than {self.title}, so scores would not be comparable; install "
                "the NumPy and SciPy of constraints.txt"
            )
        return room

    def _make(self, folder: Path, scenes: Sequence[tuple[str, str]]) -> None:
        """Run one process per core until these rooms are in the folder."""
        cores = (
            len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        )  # not on macOS
        workers = min(cores, MOST_WORKERS, len(scenes))
        log.info("Rooms to make once, in %s: %d; on two cores 100 take about a minute", folder, len(scenes))
        command = [sys.executable, "-m", "roomscout.rooms.frozen", self.module, str(folder)]
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


def rounded(room: Room) -> Room:
    """The room with the coordinates of its scan as they are frozen."""
    return replace(room, mesh=replace(room.mesh, vertices=np.round(room.mesh.vertices, DECIMALS)))


def hash_line(level: str, room: Room) -> str:
    """The line of a room's file among the hashes."""
    return f"{hashlib.sha256(ply_of(room.mesh)).hexdigest()}  {level}/{room.name}.ply"


def cache_root() -> Path:
    """Where files that can be made again are kept: $XDG_CACHE_HOME/roomscout, by default ~/.cache/roomscout."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "roomscout"


@contextmanager
def keeping_in(folder: Path) -> Iterator[None]:
    """Say as a SplitError that files cannot be kept in a folder."""
    try:
        yield
    except OSError as error:
        raise SplitError(
            f"{folder}: the rooms cannot be kept there ({error}); set XDG_CACHE_HOME to a folder"
        ) from None


@cache
def shipped_rows(file: Path) -> tuple[RoomQuestion, ...]:
    """The questions in a packed file as rows, in their order."""
    return tuple(map(json.loads, lzma.decompress(file.read_bytes()).splitlines()))


@cache
def _lines(file: Path) -> frozenset[str]:
    return frozenset(file.read_text(encoding="ascii").splitlines())


def _missing(folder: Path, scenes: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(level, name) for level, name in scenes if not (folder / level / f"{name}.ply").exists()]


def main(arguments: list[str]) -> None:
    """Make the rooms that the standard input names, of the SPLIT of a MODULE in this FOLDER. Ends early if the caller
    died."""
    caller = os.getppid()
    split: FrozenRooms = import_module(arguments[0]).SPLIT
    folder = Path(arguments[1])
    questions = grouped(((row["dataset"], row["scene_name"]), row) for row in shipped_rows(split.files[0]))
    for line in sys.stdin:
        if os.getppid() != caller:
            return
        level, name = line.split()
        room = split.checked_room(level, name, questions[level, name])
        (folder / level).mkdir(exist_ok=True)
        replace_bytes(folder / level / f"{name}.json", json.dumps(room_record(room)).encode())
        replace_bytes(folder / level / f"{name}.ply", ply_of(room.mesh))


if __name__ == "__main__":
    main(sys.argv[1:])
