"""Reads a run folder: takes no lock, changes nothing, and can read a run in progress."""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from runs import RunError
from runs.records import SCHEMA, ResultRow, RunFacts, ScanRecord, TurnRecord

Record = TypeVar("Record")


class RunReader:
    """What a run folder holds so far. Every access reads the disk again; a torn last line is ignored.

    Questions go by their number, from 1. Raises RunError naming a file that is damaged.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    @property
    def facts(self) -> RunFacts:
        """What run.json says; raises RunError too where it is missing or of another schema."""
        path = self.folder / "run.json"
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
            schema = facts["schema"]
            if schema == SCHEMA:
                return RunFacts.from_json(facts)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunError(f"{path} is damaged ({type(error).__name__}: {error}); start a new run") from None
        raise RunError(
            f"{path} has schema {schema}, and this version writes {SCHEMA}: resume with the one that began it"
        )

    @property
    def rows(self) -> list[ResultRow]:
        """The last result of each question that has one, by number."""
        last = {row.id: row for row in _records(self.folder / "results.jsonl", ResultRow.from_json)}
        return sorted(last.values(), key=lambda row: row.number)

    @property
    def summary(self) -> dict[str, Any] | None:
        """What summary.json says; None before the first export."""
        path = self.folder / "summary.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is damaged ({error}); resuming the run writes it again") from None

    @property
    def begun(self) -> list[int]:
        """Numbers of the questions that have finished a turn, ascending."""
        folders = (path.parent.name for path in self.folder.glob("q*/turns.jsonl"))
        return sorted(int(name[1:]) for name in folders if name[1:].isdecimal())

    def turns(self, number: int) -> list[TurnRecord]:
        """A question's finished turns; none where it has not begun."""
        return _records(journal_path(self.folder, number), TurnRecord.from_json)

    def scan(self, number: int) -> ScanRecord | None:
        """The scan that a question has begun with; None where it has not begun, or its run recorded none."""
        first = _records(journal_path(self.folder, number), TurnRecord.from_json, at_most=1)
        return first[0].scan if first else None

    def all_turns(self) -> Iterator[TurnRecord]:
        """The turns of all questions."""
        for number in self.begun:
            yield from self.turns(number)

    def image(self, number: int, turn: int) -> np.ndarray | None:
        """What a turn saw, (H, W, 3) uint8 RGB; None where the file is missing or torn."""
        try:
            with Image.open(question_folder(self.folder, number) / image_name(turn)) as image:
                return np.array(image.convert("RGB"))
        except (OSError, SyntaxError):  # Pillow raises SyntaxError for some broken PNG chunks
            return None

    def messages(self, number: int) -> list[dict[str, str]]:
        """The conversation as sent: `role`, `text` and, of a user message, the file name of its `image`."""
        path = question_folder(self.folder, number) / "messages.json"
        try:
            return json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is damaged ({error}); resuming the question writes it again") from None


def question_folder(run: Path, number: int) -> Path:
    """Where a run keeps what belongs to one question."""
    return run / f"q{number:03d}"


def journal_path(run: Path, number: int) -> Path:
    """Where a run keeps a question's turns."""
    return question_folder(run, number) / "turns.jsonl"


def image_name(turn: int) -> str:
    """The file, in its question's folder, of what a turn saw."""
    return f"render_{turn:02d}.png"


def run_folders(log_root: Path) -> list[Path]:
    """The folders of all runs directly below `log_root`, by name."""
    return sorted(path.parent for path in log_root.glob("*/run.json"))


def find_run(continue_from: str, log_root: Path, batched_only: bool = False) -> Path:
    """The folder to resume: the newest run below `log_root` for "recent", else the folder itself.

    `batched_only` leaves single questions out of the search. Raises RunError where there is no such run.
    """
    if continue_from != "recent":
        folder = Path(continue_from).expanduser()
        if not (folder / "run.json").is_file():
            raise RunError(f"--continue {folder}: no run.json in it, so it is not the folder of a run")
        return folder
    begun = {}
    for folder in run_folders(log_root):
        is_batched, began = _at_a_glance(folder)
        if is_batched or not batched_only:
            begun[folder] = began, folder.name
    if not begun:
        raise RunError(f"--continue recent: no run below {log_root}; start one with --batch")
    return max(begun, key=begun.__getitem__)


def find_part(log_root: Path, number: int, of: int) -> Path | None:
    """The newest run of a part directly below `log_root`; None where there is none. Damaged runs are left out."""
    begun = {}
    for folder in run_folders(log_root):
        try:
            facts = RunReader(folder).facts
            if facts.part and (facts.part.number, facts.part.of) == (number, of):
                begun[folder] = datetime.fromisoformat(facts.started).timestamp(), folder.name
        except (RunError, ValueError):
            continue
    return max(begun, key=begun.__getitem__, default=None)


def _at_a_glance(folder: Path) -> tuple[bool, float]:
    """Whether a run asks many questions, and when it began (seconds since 1970); where run.json is damaged, by the
    folder's name and the file's time."""
    try:
        facts = RunReader(folder).facts
        return facts.config["ply"] is None, datetime.fromisoformat(facts.started).timestamp()
    except (RunError, KeyError, TypeError, ValueError):
        return folder.name.endswith("_batched"), (folder / "run.json").stat().st_mtime


def _records(path: Path, from_json: Callable[[Mapping[str, Any]], Record], at_most: int | None = None) -> list[Record]:
    """The records of a journal's whole lines, or of the first `at_most`.

    Raises RunError naming a damaged line or an unreadable file.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunError(f"{path} cannot be read ({error.strerror})") from None
    records = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines()[:at_most], start=1):
        try:
            record = json.loads(line)
            if not isinstance(record, dict):
                raise ValueError("it is not a JSON object")
            records.append(from_json(record))
        except (KeyError, TypeError, ValueError) as error:
            why = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            raise RunError(f"{path}, line {number} is damaged ({why}); fix or remove that line") from None
    return records
