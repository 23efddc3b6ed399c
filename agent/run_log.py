"""The run folder: its only writer, and the reader that lets a run go on. Schema: experiment_logs/README.md."""

import csv
import fcntl
import io
import json
import logging
import os
import platform
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from agent.config import ConfigError, RunConfig, changed_settings, config_from_dict, config_to_dict, resume_command
from agent.costs import costs
from agent.provenance import git_revision, package_versions
from agent.records import RESULT_COLUMNS, messages_to_list, result_row, turn_from_dict, turn_to_dict
from agent.state import QuestionState, Status, Turn
from data.scoring import summarize

log = logging.getLogger(__name__)

SCHEMA = 1
TURN_KEYS = ("turn", "pose", "action", "reply", "move", "batch", "seconds")
VERSIONS = ("git_revision", "packages", "python")
PNG_THREADS = 2
MOST_WRITES_AHEAD = 256
"""Bounds the images in memory when the disk is slower than the model."""


class RunLogError(Exception):
    """The run folder cannot be used or written; the message names it and what to do."""


@dataclass(frozen=True)
class JournaledTurn:
    """A turn as read back, with the image that it saw."""

    turn: Turn
    view: np.ndarray


class RunLog:
    """Writes one run folder; holds its lock until closed. Every journal line is whole or absent. `config` is how the
    run goes on, None: as it was begun."""

    def __init__(self, folder: Path, config: RunConfig | None = None):
        self.folder = folder
        self._config = config
        self._lock = _lock(folder)
        self._broken: RunLogError | None = None
        self._rows = {row["id"]: row for row in _result_rows(folder / "results.jsonl")}
        self._painters = ThreadPoolExecutor(PNG_THREADS, thread_name_prefix="png-writer")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal-writer")  # one: lines keep their order
        self._written: deque[Future[None]] = deque()

    @classmethod
    def create(cls, config: RunConfig, fingerprint: str, number_of_questions: int) -> "RunLog":
        """A new folder below `config.log_root` with its run.json."""
        run_log = cls(_new_folder(config.log_root, "" if config.ply else "_batched"))
        facts = {
            "schema": SCHEMA,
            "started": _now(),
            "config": config_to_dict(config),
            "questions": number_of_questions,
            "questions_sha256": fingerprint,
            "protocol": protocol(config),
            **_versions(),
            "host": socket.gethostname(),
        }
        run_log._replace("run.json", json.dumps(facts, indent=2))
        return run_log

    def require_questions(self, fingerprint: str) -> None:
        """Raise RunLogError unless the run was begun with the questions of this fingerprint."""
        if read_run(self.folder).fingerprint != fingerprint:
            raise RunLogError(f"{self.folder} was begun with other questions; give it those, or start a new run")

    def note_resumption(self) -> None:
        """Add to run.json that the run goes on, with which code, and which settings differ from its first ones.

        Another version of anything is told in the log, too: the replies so far were made by the old one.
        """
        run = read_run(self.folder)
        changed = changed_settings(run.config, self._config or run.config)
        now = _versions()
        if others := _differing(run.last_versions, now):
            log.warning("%s goes on with %s than before: its answers come from both", self.folder, "; ".join(others))
        resumption = {"at": _now(), "host": socket.gethostname(), "changed": changed, **now}
        facts = run.facts | {"resumed": [*run.facts.get("resumed", []), resumption]}
        self._replace("run.json", json.dumps(facts, indent=2))

    @property
    def resume_command(self) -> str:
        """The command that goes on with this run as it goes on now."""
        begun = read_run(self.folder).config
        return resume_command(self.folder, begun, self._config or begun)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows so far, by question number."""
        return sorted(self._rows.values(), key=lambda row: row["number"])

    def is_done(self, question_id: str) -> bool:
        """Whether this question's result is on disk."""
        return question_id in self._rows

    def reopen_failed(self) -> int:
        """Owe the questions again that failed; their turns so far are kept, and a later result counts in place of the
        failure. Returns their number."""
        failed = [id for id, row in self._rows.items() if row["status"] == Status.FAILED]
        for id in failed:
            del self._rows[id]
        return len(failed)

    def turn(self, state: QuestionState) -> None:
        """Write the last finished turn: its image first, then its line, then the conversation for people to read.

        Returns at once; the files are written in the order of the calls. Raises RunLogError where an earlier write
        failed.
        """
        turn = state.turns[-1]
        folder, image = self._question_folder(state.number), state.conversation.images[turn.index]
        drawn = self._painters.submit(_write_png, folder, turn.index, image)
        self._then(_write_turn, folder, drawn, turn_to_dict(turn), messages_to_list(state))

    def messages(self, state: QuestionState) -> None:
        """Write the conversation so far, as `turn` does with every turn."""
        self._then(_write_messages, self._question_folder(state.number), messages_to_list(state))

    def result(self, state: QuestionState) -> dict[str, Any]:
        """Write the result of a finished question, behind all its turns, and return its row."""
        row = result_row(state)
        self._then(_append, self.folder / "results.jsonl", row, durable=True)
        self._rows[row["id"]] = row
        return row

    def flush(self) -> None:
        """Wait until everything is on disk; raises RunLogError where a write failed."""
        while self._written:
            self._written.popleft().result()

    def _then(self, write: Callable[..., None], path: Path, *arguments: Any, **options: Any) -> None:
        """Write behind all earlier writes; waits only when very many are still to be done."""
        self._written.append(self._writer.submit(self._whole, write, path, *arguments, **options))
        while self._written and (self._written[0].done() or len(self._written) > MOST_WRITES_AHEAD):
            self._written.popleft().result()

    def export(self, session: dict[str, Any] | None) -> dict[str, Any]:
        """Replace results.json, results.csv and summary.json from all rows; returns the summary.

        `session` says how the process that exports has fared, and joins those of earlier processes; None when it has
        asked nothing.
        """
        self.flush()
        sessions = [*self._sessions(), *([session] if session else [])]
        batch_size = sessions[-1]["batch_size"] if sessions else None
        run = read_run(self.folder)
        summary: dict[str, Any] = {"protocol": run.facts["protocol"], "model": run.config.model}
        summary["questions"] = {"count": run.facts["questions"], "sha256": run.fingerprint}
        summary |= summarize(self.rows, owed=run.facts["questions"] - len(self.rows))
        summary |= {"cost": costs(self._all_turns(), batch_size), "sessions": sessions}
        self._replace("results.json", json.dumps(self.rows, indent=2))
        self._replace("results.csv", _csv(self.rows))
        self._replace("summary.json", json.dumps(summary, indent=2))
        return summary

    def turns_of(self, number: int) -> list[JournaledTurn]:
        """The whole turns of a question in progress, each with its image; what is torn behind them is cut off."""
        folder = self._question_folder(number)
        turns: list[JournaledTurn] = []
        lines = _whole_lines(folder / "turns.jsonl", TURN_KEYS)
        for index, line in enumerate(lines):
            view = _read_png(folder / f"render_{index:02d}.png")
            if view is None or line["turn"] != index:
                log.warning("%s: turn %d has no whole image; it is taken again", folder.name, index)
                break
            turns.append(JournaledTurn(_turn(line, folder / "turns.jsonl"), view))
        if len(turns) < len(lines):
            kept = "".join(json.dumps(line) + "\n" for line in lines[: len(turns)])
            self._whole(_replace, folder / "turns.jsonl", kept)
        return turns

    def close(self) -> None:
        """Finish what is being written and let another process write this folder."""
        self._painters.shutdown()
        self._writer.shutdown()
        self._lock.close()

    def _sessions(self) -> list[dict[str, Any]]:
        """How earlier processes fared, by the last export; none where there is no whole one."""
        path = self.folder / "summary.json"
        if not path.exists():
            return []
        try:
            return list(json.loads(path.read_text(encoding="utf-8"))["sessions"])
        except (ValueError, KeyError, TypeError):
            log.warning("%s is damaged and written anew; the figures of earlier sessions are lost", path)
            return []

    def _all_turns(self) -> Iterator[dict[str, Any]]:
        """Every turn line of every question, whichever process wrote it."""
        for path in sorted(self.folder.glob("q*/turns.jsonl")):
            yield from _whole_lines(path, TURN_KEYS)

    def _question_folder(self, number: int) -> Path:
        return self.folder / f"q{number:03d}"

    def _replace(self, name: str, text: str) -> None:
        self._whole(_replace, self.folder / name, text)

    def _whole(self, write: Callable[..., None], path: Path, *arguments: Any, **options: Any) -> None:
        """Write, and turn an OSError such as a full disk into one sentence. Nothing is written after a write that
        failed, since a journal must not go on behind a torn line."""
        if self._broken:
            raise self._broken
        try:
            write(path, *arguments, **options)
        except OSError as error:
            self._broken = _unwritable(path, error, f"; what is whole is kept: make room, then {self._to_go_on()}")
            raise self._broken from error

    def _to_go_on(self) -> str:
        try:
            return f"go on with {self.resume_command}"
        except (RunLogError, ConfigError):  # not even run.json is there
            return "start anew"


def _unwritable(path: Path, error: OSError, what_to_do: str) -> RunLogError:
    return RunLogError(f"{path} cannot be written ({error.strerror or error}){what_to_do}")


def protocol(config: RunConfig) -> str:
    """How the answers came about, in one line: what must be equal for two scores to be compared."""
    width, height = config.image_size
    up = "" if config.up_axis == "auto" else f", {config.up_axis} up"
    blind = "BLIND, every view grey: " if config.renderer == "blind" else ""
    decoding = "greedy" if config.temperature == 0 else f"temperature {config.temperature:g}"
    return (
        f"{blind}free camera in the scan, its pose and the room's extent told, {config.steps} moves, {width}x{height} "
        f"px, focal {config.focal:g} px, eye {config.camera_height:g} m, pitch {config.camera_pitch:g} degrees, first "
        f"view by {config.first_view}{up}, {config.dtype}, {decoding}, replies of {config.max_new_tokens} tokens at "
        f"most{', constrained' if config.constrained else ''}, official VSI-Bench scoring"
    )


def find_run(continue_from: str, log_root: Path, batched_only: bool = False) -> Path:
    """The folder to continue: the newest run below `log_root` for "recent", else the folder itself.

    `batched_only` leaves single questions out of the search. Raises RunLogError where there is no such run.
    """
    if continue_from != "recent":
        folder = Path(continue_from).expanduser()
        if not (folder / "run.json").is_file():
            raise RunLogError(f"--continue {folder}: no run.json in it, so it is not the folder of a run")
        return folder
    begun = {}
    for path in log_root.glob("*/run.json"):
        is_batched, began = _at_a_glance(path)
        if is_batched or not batched_only:
            begun[path.parent] = began, path.parent.name
    if not begun:
        raise RunLogError(f"--continue recent: no run below {log_root}; start one with --batch")
    return max(begun, key=begun.__getitem__)


@dataclass(frozen=True)
class SavedRun:
    """What run.json says: the configuration, the fingerprint of the questions, and all facts as they are written."""

    config: RunConfig
    fingerprint: str
    facts: dict[str, Any]

    @property
    def last_versions(self) -> dict[str, Any]:
        """The code that the run was last taken up with, as far as it was noted."""
        last = self.facts | (self.facts.get("resumed") or [{}])[-1]
        return {key: last[key] for key in VERSIONS if key in last}


def read_run(folder: Path) -> SavedRun:
    """What a run was begun with; raises RunLogError or ConfigError where run.json does not say."""
    path = folder / "run.json"
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        schema, config, fingerprint = facts["schema"], facts["config"], facts["questions_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunLogError(f"{path} is damaged ({type(error).__name__}: {error}); start a new run") from None
    if schema != SCHEMA:
        raise RunLogError(
            f"{path} has schema {schema}, and this version writes {SCHEMA}: go on with that which began it"
        )
    return SavedRun(config_from_dict(config, str(path)), fingerprint, facts)


def _at_a_glance(path: Path) -> tuple[bool, float]:
    """Whether the run of a run.json asks many questions, and when it began (seconds since 1970); a damaged one tells by
    its folder's name and its own time."""
    try:
        run = read_run(path.parent)
        return run.config.ply is None, datetime.fromisoformat(run.facts["started"]).timestamp()
    except (RunLogError, ConfigError, KeyError, TypeError, ValueError):
        return path.parent.name.endswith("_batched"), path.stat().st_mtime


def _lock(folder: Path) -> io.TextIOWrapper:
    """Take the folder's lock, which the system frees when this process ends; its file says who holds it."""
    try:
        handle = (folder / "run.lock").open("a+", encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error, "; mend that, or start a new run") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        holder = handle.read().strip() or "another process"
        handle.close()
        raise RunLogError(f"{folder} is being written by {holder}; wait for it, or start a new run") from None
    except OSError as error:
        handle.close()
        raise RunLogError(
            f"{folder} cannot be locked ({error.strerror}): its file system keeps no locks, so two processes could "
            "write it at once; choose another with --log-root, or mount it with locks (Lustre: -o flock)"
        ) from None
    try:
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now():%Y-%m-%d %H:%M:%S}\n")
        handle.flush()
    except OSError as error:
        raise _unwritable(folder, error, "; make room, then give the same command again") from None
    return handle


def _new_folder(root: Path, suffix: str) -> Path:
    """A folder named by the time; a second run of the same second waits for the next one."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        while True:
            folder = root / f"{datetime.now():%Y%m%d_%H%M%S}{suffix}"
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                time.sleep(0.1)
    except OSError as error:
        raise RunLogError(f"--log-root {root}: no folder can be made there ({error.strerror})") from None


def _whole_lines(path: Path, keys: Iterable[str]) -> list[dict[str, Any]]:
    """The whole lines of a journal; a torn last line is cut off the file, so that the next append begins a line.

    Raises RunLogError naming the line that is no record with these keys, or the file that cannot be read or cut.
    """
    if not path.exists():
        return []
    try:
        content = path.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        if len(whole) < len(content):
            with path.open("r+b") as handle:
                handle.truncate(len(whole))
    except OSError as error:
        raise RunLogError(f"{path} cannot be read and mended ({error.strerror})") from None
    return [_record(path, number, line, keys) for number, line in enumerate(whole.splitlines(), start=1)]


def _record(path: Path, number: int, line: bytes, keys: Iterable[str]) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise _damaged(path, number, str(error)) from None
    if not isinstance(record, dict):
        raise _damaged(path, number, "it is no JSON object")
    if lacking := [key for key in keys if key not in record]:
        raise _damaged(path, number, f"it lacks {', '.join(lacking)}")
    return record


def _damaged(path: Path, number: int, why: str) -> RunLogError:
    return RunLogError(f"{path}, line {number} is damaged ({why}); mend or remove that line")


def _result_rows(path: Path) -> list[dict[str, Any]]:
    rows = _whole_lines(path, RESULT_COLUMNS)
    for number, row in enumerate(rows, start=1):
        score = row["score"]
        if score is not None and not (isinstance(score, int | float) and 0 <= score <= 1):
            raise _damaged(path, number, f"its score is {score!r}, not between 0 and 1")
    return rows


def _turn(line: dict[str, Any], path: Path) -> Turn:
    try:
        return turn_from_dict(line)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, line["turn"] + 1, f"{type(error).__name__}: {error}") from None


def _versions() -> dict[str, Any]:
    """The code that runs here."""
    return dict(zip(VERSIONS, (git_revision(), package_versions(), platform.python_version()), strict=True))


def _differing(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What is another version than before, in words."""
    flat_before, flat_now = ({**facts.get("packages", {}), **facts} for facts in (before, now))
    names = [name for name in flat_now if name != "packages" and name in flat_before]
    return [
        f"{name} {flat_now[name]} (was {flat_before[name]})" for name in names if flat_now[name] != flat_before[name]
    ]


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def _append(path: Path, record: dict[str, Any], durable: bool = False) -> None:
    with path.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(record) + "\n")
        handle.flush()
        if durable:
            os.fsync(handle.fileno())


def _replace(path: Path, text: str) -> None:
    """Write a whole file or leave the old one. Bytes of a path that are no UTF-8 are written as \\udc80 and up."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text, encoding="utf-8", errors="backslashreplace")
    draft.replace(path)


def _write_png(folder: Path, index: int, image: np.ndarray) -> float:
    """Write what a turn saw; returns the seconds it took."""
    started = time.perf_counter()
    folder.mkdir(exist_ok=True)
    Image.fromarray(image).save(folder / f"render_{index:02d}.png", compress_level=1)
    return round(time.perf_counter() - started, 4)


def _write_turn(folder: Path, drawn: Future[float], line: dict[str, Any], messages: list[dict[str, Any]]) -> None:
    """Write a turn's line once its image is on disk, and the conversation so far."""
    line["seconds"]["write"] = drawn.result()
    _append(folder / "turns.jsonl", line)
    _write_messages(folder, messages)


def _write_messages(folder: Path, messages: list[dict[str, Any]]) -> None:
    _replace(folder / "messages.json", json.dumps(messages, indent=2, ensure_ascii=False))


def _read_png(path: Path) -> np.ndarray | None:
    """The image, or None where the file is missing or torn."""
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except (OSError, SyntaxError):  # Pillow raises SyntaxError for some broken PNG chunks
        return None


def _csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, RESULT_COLUMNS)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
