"""How far a run is: when it last wrote something, and whether it has finished."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from roomscout.analysis.report.contents import RunContents
from roomscout.base.text import counted
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


def stamps_of(folder: Path, names: Iterable[str] = FILES) -> dict[Path, Stamp]:
    """The stamps of files of a run and of its parts."""
    runs = [folder, *run_folders(folder / PARTS_FOLDER)]
    return {run / name: stamp_of(run / name) for run in runs for name in names}


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
    def of(cls, folder: Path, answers: int, pending: int, journals: Iterable[Path]) -> "Progress":
        """The progress of a run of so many answers, of which some are pending; `journals` are those in progress."""
        done, asked = answers - pending, counted(answers, "answer")
        if pending == 0:
            return cls("finished", f"Finished: {asked}.")
        stamps = [*stamps_of(folder, (*FILES, "run.log")).values(), *map(stamp_of, journals)]
        written = max(stamp[1] for stamp in stamps if stamp is not None) / 1e9
        if time.time() - written < QUIET_S:
            return cls("running", f"In progress: {done:,} of {asked}.")
        at = datetime.fromtimestamp(written).strftime("%Y-%m-%d %H:%M")
        why = "the run was stopped, or a turn is taking long"
        return cls("quiet", f"{done:,} of {asked}. Nothing written since {at}: {why}.")
