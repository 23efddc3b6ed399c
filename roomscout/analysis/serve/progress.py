"""How far a run is: when it last wrote something, and whether it has finished."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from roomscout.analysis.report.contents import RunContents
from roomscout.runs.hardware import HARDWARE_FILE
from roomscout.runs.reader import MARKS_FILE, PARTS_FOLDER, SIGHTS_FILE, journal_path, run_folders

QUIET_S = 120.0
"""A run that has written nothing for so long is reported as quiet."""
FILES = ("run.json", "results.jsonl", "summary.json", SIGHTS_FILE, MARKS_FILE, HARDWARE_FILE)
"""What tells whether a run has changed, apart from the turns of unfinished answers."""

Stamp = tuple[int, int] | None
"""A file's size and its time of modification in ns; None if it is missing."""


def stamp_of(path: Path) -> Stamp:
    """What changes when a file is appended to or replaced."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns


def stamps_of(folder: Path) -> dict[Path, Stamp]:
    """The stamps of the FILES of a run and of its parts."""
    return {run / name: stamp_of(run / name) for run in _with_parts(folder) for name in FILES}


def _with_parts(folder: Path) -> Iterator[Path]:
    yield folder
    yield from run_folders(folder / PARTS_FOLDER)


def turn_stamps(run: RunContents) -> dict[Path, Stamp]:
    """The stamps of the journals of the answers that have begun and not finished."""
    unfinished = [(episode, reader) for episode, reader in run.begun.items() if episode not in run.rows]
    return {path: stamp_of(path) for path in (journal_path(reader.folder, each) for each, reader in unfinished)}


@dataclass(frozen=True)
class Progress:
    """`state` is "finished", "running" or "quiet"; `words` say it in a sentence."""

    state: str
    words: str

    @classmethod
    def of(cls, run: RunContents) -> "Progress":
        """The progress of a run by its answers and by the newest of its files."""
        return cls.at(run.folder, run.facts.episodes, run.pending, tuple(turn_stamps(run)))

    @classmethod
    def at(cls, folder: Path, of: int, pending: int, journals: Iterable[Path]) -> "Progress":
        """The progress of a run of so many answers, of which some are pending; `journals` are those in progress."""
        done, asked = of - pending, f"{of:,} answer{'s' if of > 1 else ''}"
        if pending == 0:
            return cls("finished", f"Finished: {asked}.")
        written = _last_written(folder, journals)
        if time.time() - written < QUIET_S:
            return cls("running", f"In progress: {done:,} of {asked}.")
        at = datetime.fromtimestamp(written).strftime("%Y-%m-%d %H:%M")
        why = "the run was stopped, or a turn is taking long"
        return cls("quiet", f"{done:,} of {asked}. Nothing written since {at}: {why}.")


def _last_written(folder: Path, journals: Iterable[Path]) -> float:
    """When a run last wrote to its log or a journal, in seconds since 1970."""
    stamps = [stamp_of(each / name) for each in _with_parts(folder) for name in (*FILES, "run.log")]
    stamps += map(stamp_of, journals)
    return max(stamp[1] for stamp in stamps if stamp is not None) / 1e9
