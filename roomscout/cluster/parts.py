"""What a worker does: it answers a part of a run, on whichever machine it is. A part is an ordinary run with a folder.
Losing a worker costs only its current turn: another one resumes the folder."""

import gc
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.loop import main_vsi_bench_loop
from roomscout.agent.opening import Opened, open_run, taken_over
from roomscout.agent.session import Queue
from roomscout.agent.spec import RecordSpec, RunSpec
from roomscout.cluster.chunks import QUEUE_FOLDER, ChunkQueue
from roomscout.data.parts import Part
from roomscout.edge.dividing import plan_part
from roomscout.runs import RunError, RunInUse
from roomscout.runs.reader import RunReader, find_part

POLL_S = 1.0
VISIBLE_WITHIN_S = 10.0  # how long a network file system may take to show a new file on another machine
UNLOCKED_WITHIN_S = 180.0
"""How long a part may stay locked by a lost worker. NFS releases the locks of a dead machine after some 90 seconds."""


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
                done = {(row.id, row.sample) for row in RunReader(folder).rows if not row.failed} if folder else set()
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
