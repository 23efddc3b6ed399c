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
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from agent.actions import CameraAction, ParsedAction
from agent.backends import Reply
from agent.config import RunConfig, config_from_dict, config_to_dict, resume_command
from agent.costs import MODEL_PARTS, costs
from agent.provenance import git_revision, package_versions
from agent.state import QuestionState, Turn
from data.scoring import score_answer, summarize
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome

log = logging.getLogger(__name__)

SCHEMA = 1
PNG_THREADS = 2
MOST_WRITES_AHEAD = 256
"""Bounds the images in memory when the disk is slower than the model."""
RESULT_COLUMNS = (
    "number", "id", "dataset", "scene_name", "question_type", "question", "ground_truth", "answer", "score",
    "status", "failed_part", "error", "turns", "parse_errors", "seconds",
)  # fmt: skip


class RunLogError(Exception):
    """The run folder cannot be used or written; the message names it and what to do."""


@dataclass(frozen=True)
class JournaledTurn:
    """A turn as read back, with the image that it saw."""

    turn: Turn
    view: np.ndarray


class RunLog:
    """Writes one run folder; holds its lock until closed. Every journal line is whole or absent."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._lock = _lock(folder)
        results = folder / "results.jsonl"
        self._rows = {row["id"]: row for row in _whole_lines(results)}
        self._painters = ThreadPoolExecutor(PNG_THREADS, thread_name_prefix="png-writer")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal-writer")  # one: lines keep their order
        self._written: deque[Future[None]] = deque()

    @classmethod
    def create(cls, config: RunConfig, fingerprint: str, number_of_questions: int) -> "RunLog":
        """A new folder below `config.log_root` with its run.json."""
        run_log = cls(_new_folder(config.log_root, "" if config.ply else "_batched"))
        facts = {
            "schema": SCHEMA,
            "started": datetime.now().astimezone().isoformat(timespec="seconds"),
            "config": config_to_dict(config),
            "questions": number_of_questions,
            "questions_sha256": fingerprint,
            "protocol": protocol(config),
            "git_revision": git_revision(),
            "packages": package_versions(),
            "python": platform.python_version(),
            "host": socket.gethostname(),
        }
        run_log._replace("run.json", json.dumps(facts, indent=2))
        return run_log

    def require_questions(self, fingerprint: str) -> None:
        """Raise RunLogError unless the run was begun with the questions of this fingerprint."""
        if read_run(self.folder)[1] != fingerprint:
            raise RunLogError(f"{self.folder} was begun with other questions; give it those, or start a new run")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The result rows so far, by question number."""
        return sorted(self._rows.values(), key=lambda row: row["number"])

    def is_done(self, question_id: str) -> bool:
        """Whether this question's result is on disk."""
        return question_id in self._rows

    def turn(self, state: QuestionState) -> None:
        """Write the last finished turn: its image first, then its line, then the conversation for people to read.

        Returns at once; the files are written in the order of the calls. Raises RunLogError where an earlier write
        failed.
        """
        turn = state.turns[-1]
        folder, image = self._question_folder(state.number), state.conversation.images[turn.index]
        drawn = self._painters.submit(_write_png, folder, turn.index, image)
        self._then(_write_turn, folder, drawn, turn_to_dict(turn), _messages(state))

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
        self._written.append(self._writer.submit(_as_run_log_error, write, path, *arguments, **options))
        while self._written and (self._written[0].done() or len(self._written) > MOST_WRITES_AHEAD):
            self._written.popleft().result()

    def export(self, session: dict[str, Any] | None) -> dict[str, Any]:
        """Replace results.json, results.csv and summary.json from all rows; returns the summary.

        `session` says how the process that exports has fared, beside what all turns of all processes cost; None
        when it has asked nothing.
        """
        self.flush()
        summary = summarize(self.rows) | {"cost": costs(self._all_turns()), "session": session}
        self._replace("results.json", json.dumps(self.rows, indent=2))
        self._replace("results.csv", _csv(self.rows))
        self._replace("summary.json", json.dumps(summary, indent=2))
        return summary

    def turns_of(self, number: int) -> list[JournaledTurn]:
        """The whole turns of a question in progress, each with its image; what is torn behind them is cut off."""
        folder = self._question_folder(number)
        turns: list[JournaledTurn] = []
        lines = _whole_lines(folder / "turns.jsonl")
        for index, line in enumerate(lines):
            view = _read_png(folder / f"render_{index:02d}.png")
            if view is None or line["turn"] != index:
                log.warning("%s: turn %d has no whole image; it is taken again", folder.name, index)
                break
            turns.append(JournaledTurn(turn_from_dict(line), view))
        if len(turns) < len(lines):
            kept = "".join(json.dumps(line) + "\n" for line in lines[: len(turns)])
            _replace(folder / "turns.jsonl", kept)
        return turns

    def close(self) -> None:
        """Finish what is being written and let another process write this folder."""
        self._painters.shutdown()
        self._writer.shutdown()
        self._lock.close()

    def _all_turns(self) -> Iterator[dict[str, Any]]:
        """Every turn line of every question, whichever process wrote it."""
        for path in sorted(self.folder.glob("q*/turns.jsonl")):
            yield from _whole_lines(path)

    def _question_folder(self, number: int) -> Path:
        return self.folder / f"q{number:03d}"

    def _replace(self, name: str, text: str) -> None:
        _as_run_log_error(_replace, self.folder / name, text)


def _as_run_log_error(write: Callable[..., None], path: Path, *arguments: Any, **options: Any) -> None:
    """Write, and turn an OSError such as a full disk into one sentence."""
    try:
        write(path, *arguments, **options)
    except OSError as error:
        folder = next(place for place in (path, *path.parents) if (place / "run.lock").exists())
        raise RunLogError(
            f"{path} cannot be written ({error.strerror or error}); what is whole is kept: make room, then go on "
            f"with {resume_command(folder)}"
        ) from error


def protocol(config: RunConfig) -> str:
    """How the answers came about, in one line: what must be equal for two scores to be compared."""
    width, height = config.image_size
    return (
        f"free camera in the scan, {config.steps} moves, {width}x{height} px, focal {config.focal:g} px, eye "
        f"{config.camera_height:g} m, pitch {config.camera_pitch:g} degrees, first view by {config.first_view}, "
        f"{'greedy' if config.temperature == 0 else f'temperature {config.temperature:g}'}, official VSI-Bench scoring"
    )


def find_run(continue_from: str, log_root: Path, batched_only: bool = False) -> Path:
    """The folder to continue: the newest run below `log_root` for "recent", else the folder itself.

    `batched_only` leaves single questions out of the search. Raises RunLogError where there is no such run.
    """
    if continue_from != "recent":
        folder = Path(continue_from)
        if not (folder / "run.json").is_file():
            raise RunLogError(f"--continue {folder}: no run.json in it, so it is not the folder of a run")
        return folder
    runs = sorted(path.parent for path in log_root.glob(f"*{'_batched' if batched_only else ''}/run.json"))
    if not runs:
        raise RunLogError(f"--continue recent: no run below {log_root}; start one with --batch")
    return runs[-1]


def read_run(folder: Path) -> tuple[RunConfig, str]:
    """The configuration of a run and the fingerprint of its questions."""
    try:
        facts = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return config_from_dict(facts["config"], str(folder / "run.json")), facts["questions_sha256"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunLogError(f"{folder / 'run.json'} cannot be read: {error}") from None


def result_row(state: QuestionState) -> dict[str, Any]:
    """What results.jsonl, results.json and results.csv say of a finished question."""
    question, error = state.question, state.error
    truth = question.ground_truth
    score = None
    if question.kind.metric is not None and truth is not None:
        score = score_answer(question.question_type, state.answer, truth)
    return {
        "number": state.number,
        "id": question.id,
        "dataset": question.dataset,
        "scene_name": question.scene_name,
        "question_type": question.question_type,
        "question": question.question,
        "ground_truth": truth,
        "answer": state.answer,
        "score": score,
        "status": state.status.value,
        "failed_part": error.part if error else None,
        "error": error.message if error else None,
        "turns": state.turn,
        "parse_errors": sum(turn.parsed.error is not None for turn in state.turns),
        "seconds": round(state.elapsed_s, 3),
    }


def turn_to_dict(turn: Turn) -> dict[str, Any]:
    """A turn as JSON holds it; `turn_from_dict` gives an equal one back."""
    reply = asdict(turn.reply)
    seconds = {part: round(reply.pop(f"{part}_seconds"), 4) for part in MODEL_PARTS}
    return {
        "turn": turn.index,
        "pose": asdict(turn.pose),
        "action": asdict(turn.parsed.action),
        "clamped": turn.parsed.clamped,
        "parse_error": turn.parsed.error,
        "move": asdict(turn.move) if turn.move else None,
        "reply": reply,
        "batch": turn.batch,
        "seconds": {**seconds, "render": turn.render_s},
    }


def turn_from_dict(line: dict[str, Any]) -> Turn:
    """The turn that a line of turns.jsonl holds."""
    move, reply, seconds = line["move"], line["reply"], line["seconds"]
    model_seconds = {f"{part}_seconds": seconds[part] for part in MODEL_PARTS}
    return Turn(
        index=line["turn"],
        pose=CameraPose(**line["pose"]),
        reply=Reply(**{**reply, **model_seconds, "tokens": tuple(reply["tokens"])}),
        parsed=ParsedAction(CameraAction(**line["action"]), tuple(line["clamped"]), line["parse_error"]),
        move=MoveOutcome(**{**move, "pose": CameraPose(**move["pose"])}) if move else None,
        batch=tuple(line["batch"]),
        render_s=seconds["render"],
    )


def _messages(state: QuestionState) -> list[dict[str, Any]]:
    """The conversation as sent; an image stands as the name of its file."""
    listed, images = [], 0
    for message in state.conversation.messages:
        entry: dict[str, Any] = {"role": message.role}
        if message.image is not None:
            entry["image"] = f"render_{images:02d}.png"
            images += 1
        listed.append({**entry, "text": message.text})
    return listed


def _lock(folder: Path) -> io.TextIOWrapper:
    """Take the folder's lock, which the system frees when this process ends; its file says who holds it."""
    handle = (folder / "run.lock").open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.seek(0)
        holder = handle.read().strip() or "another process"
        handle.close()
        raise RunLogError(f"{folder} is being written by {holder}; wait for it, or start a new run") from None
    handle.truncate(0)
    handle.write(f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now():%Y-%m-%d %H:%M:%S}\n")
    handle.flush()
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


def _whole_lines(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a journal; a torn last line is cut off the file, so that the next append begins a line."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        with path.open("r+b") as handle:
            handle.truncate(len(whole))
    try:
        return [json.loads(line) for line in whole.splitlines()]
    except ValueError as error:
        raise RunLogError(f"{path} is damaged before its last line ({error}); mend or remove that line") from None


def _append(path: Path, record: dict[str, Any], durable: bool = False) -> None:
    with path.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(record) + "\n")
        handle.flush()
        if durable:
            os.fsync(handle.fileno())


def _replace(path: Path, text: str) -> None:
    """Write a whole file or leave the old one."""
    draft = path.with_name(path.name + ".tmp")
    draft.write_text(text, encoding="utf-8")
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
