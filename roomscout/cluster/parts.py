"""What a worker does: it answers a part of a run, whose questions it may take from a queue, on whichever machine it is.
A part is an ordinary run with a folder. Losing a worker costs only its current turn: another one resumes the folder."""

import errno
import gc
import math
import secrets
import shutil
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.loop import main_vsi_bench_loop
from roomscout.agent.opening import Opened, open_run, taken_over
from roomscout.agent.session import Queue
from roomscout.agent.spec import RecordSpec, RunSpec
from roomscout.base.grouping import grouped
from roomscout.data.parts import Part
from roomscout.data.questions import Question
from roomscout.edge.dividing import plan_part
from roomscout.runs import RunError, RunInUse
from roomscout.runs.reader import RunReader, find_part

POLL_S = 1.0
VISIBLE_WITHIN_S = 10.0  # how long a network file system may take to show a new file on another machine
UNLOCKED_WITHIN_S = 180.0
"""How long a part may stay locked by a lost worker. NFS releases the locks of a dead machine after some 90 seconds."""
MOST_QUESTIONS = 8
QUEUE_FOLDER = "queue"  # the folder of the queue, beside the folders of the parts


def resolve(values: Mapping[str, Any], probe: Path) -> RecordSpec:
    """What run.json says of a run with these settings, "auto" as resolved on this machine; raises `plan`'s errors."""
    require_visible(probe)
    return plan_part(values, None).record


class _Kept:
    """What the last run has opened: the next one uses the same model and scans again, as in the cells of a study."""

    spec: RunSpec | None = None
    opened: Opened | None = None

    def opened_for(self, spec: RunSpec) -> Opened:
        """What a run needs, opened as far as it is not there."""
        taken = None
        if self.spec is not None and self.opened is not None:
            taken = taken_over(self.spec, self.opened, spec)
            if taken is None:
                self.opened.close()
                self.opened = None
                gc.collect()  # before another model takes the memory
        self.opened = taken or open_run(spec)
        self.spec = spec
        return self.opened


_kept = _Kept()


def answer(values: Mapping[str, Any], probe: Path, retry_failed: bool) -> int:
    """Begin or resume the part that the settings name, once no lost worker holds its lock, with questions from the
    queue of its run; returns the status and raises the errors of `plan` and `main_vsi_bench_loop`."""
    require_visible(probe)
    part = Part.parse(values["shard"])
    root = Path(values["log_root"])
    deadline = time.monotonic() + UNLOCKED_WITHIN_S
    while True:
        try:
            with lines_kept_for_log():
                folder = find_part(root, *part)
                spec = plan_part(values, folder, retry_failed)
                chunks = ChunkQueue(root / QUEUE_FOLDER, spec.questions.here, part.of)
                reader = RunReader(folder) if folder else None
                rows = [row for row in reader.rows if not reader.lacks_images(row)] if reader else []
                done = {(row.id, row.sample) for row in rows if not row.failed}
                samples = range(1, spec.questions.samples + 1)
                taken = chunks.taken_by(part.number)
                pending = [question for question in taken if {(question.id, n) for n in samples} - done]
                first = pending or chunks.take(part.number, spec.schedule.batch_size)
                if not first:
                    return 0
                queue = Queue(first, partial(chunks.take, part.number))
                opened = _kept.opened_for(spec)
                return main_vsi_bench_loop(spec, show_progress=False, opened=opened, queue=queue).status
        except RunInUse:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def require_visible(probe: Path, within_s: float = VISIBLE_WITHIN_S) -> None:
    """Raise RunError if this machine does not see a new file within `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not probe.exists():
        if time.monotonic() > deadline:
            where = f"{socket.gethostname()}, where a worker runs"
            why = f"{probe.parent} is not the same folder on {where}: use a file system that all machines share"
            raise RunError(why, setting="log_root")
        time.sleep(POLL_S)


CALLS: dict[str, Callable[..., Any]] = {"resolve": resolve, "answer": answer}  # what a worker can be asked to do


def chunks_of(questions: Sequence[Question]) -> list[list[Question]]:
    """The next MOST_QUESTIONS of each scene, scene by scene, scenes in order of first appearance."""
    scenes = grouped((question.scene, question) for question in questions)
    return [scene[at : at + MOST_QUESTIONS] for scene in scenes.values() for at in range(0, len(scene), MOST_QUESTIONS)]


class ChunkQueue:
    """The chunks of a run's questions, shared by its `workers` through a `folder`, perhaps of a network file system.

    A worker takes a chunk by renaming a folder of its own to the chunk's number, which succeeds for one alone. It holds
    a file with the number of the worker's part: whoever resumes the part goes on with what it has taken."""

    def __init__(self, folder: Path, questions: Sequence[Question], workers: int) -> None:
        self._folder = folder
        self._chunks = chunks_of(questions)
        self._workers = workers

    def taken_by(self, part: int) -> list[Question]:
        """The questions that this part has taken before."""
        return [question for number in self._taken(part) for question in self._chunks[number]]

    def take(self, part: int, most: int) -> list[Question]:
        """Take the next chunks for this part: `most` questions or a few more, but no more than its share of what is
        left. Empty once nothing is; raises RunError if the folder cannot be written."""
        taken = set(self._taken("*"))
        questions = list[Question]()
        free = [number for number in range(len(self._chunks)) if number not in taken]
        share = math.ceil(len(free) / self._workers)
        for number in free:
            if len(questions) >= most or share == 0:
                break
            if self.claim(number, part):
                questions += self._chunks[number]
                share -= 1
        return questions

    def claim(self, number: int, part: int) -> bool:
        """Take one chunk; False if another part has."""
        draft = self._folder / f".{number}.{part}.{secrets.token_hex(8)}"  # of this process: a lost one may yet live
        try:
            draft.mkdir(parents=True, exist_ok=True)
            (draft / str(part)).touch()
            draft.rename(self._folder / str(number))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise RunError(f"{self._folder} cannot be written ({error.strerror})") from None
            shutil.rmtree(draft, ignore_errors=True)
        return (self._folder / str(number) / str(part)).exists()

    def give_back(self, part: int) -> None:
        """Let others take what this part has taken."""
        for number in self._taken(part):
            shutil.rmtree(self._folder / str(number))

    def _taken(self, part: int | str) -> list[int]:
        return sorted(int(path.parent.name) for path in self._folder.glob(f"[0-9]*/{part}"))
