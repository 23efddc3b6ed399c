"""The only writer of run folders. Every journal line is whole or absent. Schema: docs/run-folder.md."""

import errno
import json
import logging
import os
import shutil
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from roomscout.base.files import replace_text, sweep_drafts
from roomscout.base.record import Record
from roomscout.base.shots import Shot
from roomscout.data.questions import Question, saved
from roomscout.runs import RunError
from roomscout.runs.export import as_csv, exports_of
from roomscout.runs.hardware import HARDWARE_FILE, GpuSamples, Session
from roomscout.runs.journal import Journal
from roomscout.runs.locks import locked, open_own, unwritable
from roomscout.runs.prices import Price
from roomscout.runs.provenance import changed_versions, current_versions
from roomscout.runs.reader import BASELINES_FILE, MARKS_FILE, QUESTIONS_FILE, RunReader, journal_path, whole_lines
from roomscout.runs.recorded_benchmarks import record_of
from roomscout.runs.records import Baselines, RecordedMessage, Resumption, RunFacts, Turn, image_name
from roomscout.runs.summary import Summary
from roomscout.scoring.baselines import Guesses
from roomscout.scoring.scores import EpisodeId, Mark, ResultRow

log = logging.getLogger(__name__)

Value = TypeVar("Value")

JOURNALS = ("results.jsonl", MARKS_FILE, HARDWARE_FILE)  # beside the journals of turns
MOST_WRITES_AHEAD = 256  # bounds the images in memory when the disk is slower than the model


class RunWriter(Journal):
    """Writes one run folder, and holds its lock until closed. Opening cuts a torn end from each journal."""

    def __init__(self, folder: Path, resume_command: str | None = None):
        self.folder = folder
        self.resume_command = resume_command or f"roomscout resume {folder}"  # for people, in errors
        self.reader = RunReader(folder)
        self._broken: RunError | None = None
        self._added: list[Session] = []
        self._answered: dict[tuple[str, int], ResultRow] = {}  # the answers of requeued episodes
        self._lock = locked(folder / "run.lock", "start a new run")
        for owned in (folder, *folder.glob("q*")):  # later, a draft is one of this process
            sweep_drafts(owned)
        try:
            for journal in (*(folder / name for name in JOURNALS), *folder.glob("q*/turns.jsonl")):
                _cut_torn_end(journal)
            self._rows = {(row.id, row.sample): row for row in self.reader.recorded_rows}
        except RunError:
            self._lock.close()
            raise
        self._painters = ThreadPoolExecutor(2, thread_name_prefix="png-writer")
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="journal-writer")  # one: lines keep their order
        self._written: deque[Future[None]] = deque()
        self._turns = threading.Lock()  # questions may run on threads of their own

    def begin(self, facts: RunFacts, whole: Sequence[Question], guesses: Guesses | None) -> None:
        """Write the run.json, the questions of all parts, so that line n is question n also in the folder of a part,
        and, if they are a baseline, the most frequent answers."""
        self._replace(QUESTIONS_FILE, saved(whole))
        if guesses is not None:
            self._replace(BASELINES_FILE, json.dumps(Baselines(guesses).to_json(), indent=2))
        self.describe(facts)

    def mark(self, mark: Mark) -> None:
        """Append a mark to marks.jsonl, which the next export takes into account."""
        self._write_or_fail(_append, self.folder / MARKS_FILE, mark.to_json(), durable=True)

    def save(self, name: str, records: Iterable[Record]) -> None:
        """Replace MARKS_FILE or SIGHTS_FILE, which the next export takes into account."""
        self._replace(name, "".join(json.dumps(record.to_json()) + "\n" for record in records))

    def describe(self, facts: RunFacts) -> None:
        """Replace run.json."""
        self._replace("run.json", json.dumps(facts.to_json(), indent=2))

    def note_resumption(self, changed: dict[str, Any], revision: str | None = None, price: Price | None = None) -> None:
        """Record that the run is resumed, which settings `changed`, versions and price; warns of a changed version."""
        facts = self.reader.facts
        versions = current_versions(revision)
        others = changed_versions(facts.last_versions, versions)
        if others:
            log.warning("%s resumes with %s: its answers come from both versions", self.folder, ", ".join(others))
        facts = replace(facts, benchmark=record_of(facts.setting("benchmark")), price=price)
        latest = Resumption(at=now(), host=socket.gethostname(), changed=changed, **vars(versions))
        self.describe(replace(facts, resumed=(*facts.resumed, latest)))

    @property
    def rows(self) -> list[ResultRow]:
        """The result rows so far, in the order of their episodes; answers in free text with their judge's scores."""
        return self._scored(self._rows)

    def _scored(self, of: Mapping[tuple[str, int], ResultRow]) -> list[ResultRow]:
        rows = sorted(of.values(), key=attrgetter("episode"))
        marks = self.reader.marks
        return rows if marks is None else list(map(marks.scored, rows))

    def reopen(self, chosen: Callable[[ResultRow], bool]) -> int:
        """Requeue episodes with such results and return their number. Keeps their turns; a later result replaces such a
        one, but no failure replaces an answer."""
        again = {key: row for key, row in self._rows.items() if chosen(row)}
        for key in again:
            del self._rows[key]
        self._answered |= {key: row for key, row in again.items() if not row.failed}
        return len(again)

    def has_turns(self, episode: EpisodeId) -> bool:
        """Whether turns of an episode are recorded; reads alone."""
        return journal_path(self.folder, episode).exists()

    def turns_of(self, episode: EpisodeId) -> list[Turn]:
        """The turns of an episode in progress with images; drops those from the first without a complete image on,
        but leaves out its images if the last turn is there: nothing is to be decided again."""
        turns: list[Turn] = []
        records = self.reader.turns(episode)
        for index, record in enumerate(records):
            shots = tuple(Shot(shot.name, image) for shot in record.shots if (image := shot.load()) is not None)
            if len(shots) < len(record.shots) and records[-1].is_final:
                shots = ()
            elif len(shots) < len(record.shots) or record.turn != index:
                log.warning("%s: an image of turn %d is missing or damaged; repeating from this turn", episode, index)
                break
            turns.append(replace(record, shots=shots))
        if len(turns) < len(records):
            self._write_or_fail(_keep_lines, journal_path(self.folder, episode), len(turns))
        return turns

    def turn(self, episode: EpisodeId, turn: Turn, messages: Sequence[RecordedMessage]) -> None:
        """Queue the writing of a turn's images, line and conversation; raises RunError if an earlier write failed."""
        folder = self.folder / str(episode)
        drawn = self._painters.submit(_write_images, folder, turn)
        self._enqueue(_write_turn, folder, drawn, turn, messages)

    def draw(self, episode: EpisodeId, turn: Turn) -> None:
        """Write the images of a recorded turn again."""
        self._write_or_fail(_write_images, self.folder / str(episode), turn)

    def messages(self, episode: EpisodeId, messages: Sequence[RecordedMessage]) -> None:
        """Write an episode's conversation so far, as `turn` also does."""
        self._enqueue(_write_messages, self.folder / str(episode), messages)

    def result(self, row: ResultRow) -> None:
        """Write the result of a finished episode after all its turns."""
        self.results([row])

    def results(self, rows: Sequence[ResultRow]) -> None:
        """Write several results at once: waiting for the disk costs as much for all of them as for one."""
        people = self._people
        rows = [self._answered.get((row.id, row.sample), row) if row.failed else row for row in rows]
        rows = [replace(row, person=people.get(row.episode)) for row in rows]
        if rows:
            self._enqueue(_append, self.folder / "results.jsonl", *(row.to_json() for row in rows), durable=True)
        self._rows |= {(row.id, row.sample): row for row in rows}

    @cached_property
    def _people(self) -> dict[EpisodeId, str]:
        return self.reader.people

    def sample(self, samples: Mapping[str, Any]) -> None:
        """Append what a GPU did to hardware.jsonl; leaves a failure to the next write of something else."""
        with suppress(RunError, RuntimeError):  # the latter if a driver hung until this writer was closed
            self._enqueue(_append, self.folder / HARDWARE_FILE, GpuSamples.from_json(samples).to_json())

    def adopt(self, episode: EpisodeId, run: Path) -> bool:
        """Copy an episode's turns from another run, perhaps in progress; returns whether its images are hard links."""
        self.flush()

        def take(target: Path) -> bool:
            source = run / str(episode)
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            for name in ("turns.jsonl", "messages.json"):
                if (source / name).exists():
                    shutil.copyfile(source / name, target / name)
            _cut_torn_end(target / "turns.jsonl")
            # An image without its turn will be written again.
            names = [shot.path.name for turn in self.reader.turns(episode) for shot in turn.shots]
            linked = [_link_or_copy(source / name, target / name) for name in names if (source / name).exists()]
            return all(linked)

        return self._write_or_fail(take, self.folder / str(episode))

    def add_sessions(self, sessions: Sequence[Session]) -> None:
        """Include the figures of other processes in the next export."""
        self._added += sessions

    def flush(self) -> None:
        """Wait until everything is on disk; raises RunError if a write failed."""
        while self._written:
            self._written.popleft().result()

    def export(self, session: Session | None) -> Summary:
        """Rewrite results.json, results.csv and summary.json from all rows; returns the summary. `session` has the
        figures of this process, which follow those of earlier ones; None if it asked nothing."""
        self.flush()
        try:
            earlier = self.reader.sessions
        except RunError:
            path = self.folder / "summary.json"
            log.warning("%s is damaged and will be replaced; the figures of earlier sessions are lost", path)
            earlier = ()
        sessions = [*earlier, *self._added]
        if session is not None:
            sessions.append(session)
        self._added = []
        rows = self._scored(self._answered | self._rows)  # also answers whose images are drawn again
        records = [row.to_json() for row in rows]
        summary, columns = exports_of(self.reader, rows, sessions)
        self._replace("results.json", json.dumps(records, indent=2))
        self._replace("results.csv", as_csv([record | more for record, more in zip(records, columns, strict=True)]))
        self._replace("summary.json", json.dumps(summary.to_json(), indent=2))
        return summary

    def close(self) -> None:
        """Finish pending writes and release the folder's lock."""
        self._painters.shutdown()
        self._writer.shutdown()
        self._lock.close()

    def _enqueue(self, write: Callable[..., None], path: Path, *arguments: Any, **options: Any) -> None:
        """Queue a write behind all earlier ones; waits only while more than MOST_WRITES_AHEAD are pending."""
        with self._turns:
            self._written.append(self._writer.submit(self._write_or_fail, write, path, *arguments, **options))
            while self._written and (self._written[0].done() or len(self._written) > MOST_WRITES_AHEAD):
                self._written.popleft().result()

    def _replace(self, name: str, text: str) -> None:
        self._write_or_fail(replace_text, self.folder / name, text)

    def _write_or_fail(self, write: Callable[..., Value], path: Path, *arguments: Any, **options: Any) -> Value:
        """Write; RunError for an OSError, then always, since a journal must not continue behind a torn line."""
        if self._broken:
            raise self._broken
        try:
            return write(path, *arguments, **options)
        except OSError as error:
            begun = (self.folder / "run.json").exists()
            then = f"resume with {self.resume_command}" if begun else "start a new run"
            self._broken = unwritable(path, error, f"; all complete lines are kept: make room, then {then}")
            raise self._broken from error


def named_folder(log_root: Path, name: str, part: tuple[int, int] | None = None) -> Path:
    """The folder of a run with this name, or of its part (number, of); raises RunError if it exists."""
    folder = log_root / f"{name}{_of_part(part)}"
    if os.path.lexists(folder):
        fix = f", or continue it with roomscout resume {folder}" if (folder / "run.json").exists() else ""
        raise RunError(f"{folder} exists already: choose another name{fix}", setting="name")
    return folder


def new_run_folder(log_root: Path, batched: bool, part: tuple[int, int] | None = None, name: str | None = None) -> Path:
    """Create a run's folder: its `name`, else the time (waits for a free second), and its part. Raises RunError."""
    ending = ("_batched" if batched else "") + _of_part(part)
    try:
        log_root.mkdir(parents=True, exist_ok=True)
        if name is not None:
            folder = named_folder(log_root, name, part)
            folder.mkdir()
            return folder
        while True:
            folder = log_root / f"{datetime.now():%Y%m%d_%H%M%S}{ending}"
            try:
                folder.mkdir()
                return folder
            except FileExistsError:
                time.sleep(0.1)
    except OSError as error:
        why = "it is a file" if log_root.is_file() else error.strerror
        raise RunError(f"cannot make a folder in {log_root} ({why})", setting="log_root") from None


def _of_part(part: tuple[int, int] | None) -> str:
    return f"_shard{part[0]}of{part[1]}" if part else ""


def _cut_torn_end(journal: Path) -> None:
    try:
        with open(journal, "rb+", opener=open_own) as handle:
            content = handle.read()
            whole = sum(map(len, whole_lines(content)))
            if whole < len(content):
                handle.truncate(whole)
    except FileNotFoundError:
        return
    except OSError as error:
        raise RunError(f"{journal} cannot be read or truncated to its last complete line ({error.strerror})") from None


def _keep_lines(journal: Path, count: int) -> None:
    lines = journal.read_text(encoding="utf-8").split("\n")
    replace_text(journal, "".join(line + "\n" for line in lines[:count]))


def _link_or_copy(source: Path, target: Path) -> bool:
    """Hard-link `source` to `target`, or copy it if the file system cannot; returns whether it is a link."""
    try:
        target.hardlink_to(source)
        return True
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
            raise
    shutil.copyfile(source, target)
    return False


def now() -> str:
    """The time for run.json."""
    return datetime.now().astimezone().isoformat(timespec="milliseconds")


def _append(path: Path, *records: dict[str, Any], durable: bool = False) -> None:
    with open(path, "a", encoding="utf-8", opener=open_own) as handle:
        handle.writelines(json.dumps(record) + "\n" for record in records)
        handle.flush()
        if durable:
            os.fsync(handle.fileno())


def _write_images(folder: Path, turn: Turn) -> float:
    started = time.perf_counter()
    folder.mkdir(exist_ok=True)
    for shot in turn.shots:
        with open(folder / image_name(turn.turn, shot.name), "wb", opener=open_own) as handle:
            handle.write(shot.png)
    return round(time.perf_counter() - started, 4)


def _write_turn(folder: Path, drawn: Future[float], turn: Turn, messages: Sequence[RecordedMessage]) -> None:
    """Write a turn's line, once its image is on disk, and the conversation so far."""
    turn = replace(turn, seconds=replace(turn.seconds, write=drawn.result()))
    _append(folder / "turns.jsonl", turn.to_json())
    _write_messages(folder, messages)


def _write_messages(folder: Path, messages: Sequence[RecordedMessage]) -> None:
    replace_text(folder / "messages.json", json.dumps(messages, indent=2, ensure_ascii=False))
