"""Processes that a watchdog ends with this one, such as the workers of --gpus: one for each GPU, or so many on the CPU.

    python -m roomscout.cluster.processes FD

is a worker. FD is its end of a `multiprocessing.Pipe`, on which it receives names of calls of `parts` with their
arguments, one after the other. It sends the value or the error of each call.
"""

import logging
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Any

from roomscout.base.interrupts import deferred_interrupts, raise_at_interrupts
from roomscout.base.processes import environment
from roomscout.base.text import counted
from roomscout.cluster.parts import CALLS, POLL_S
from roomscout.edge.types import ALL_GPUS
from roomscout.models import watchdog
from roomscout.models.gpus import visible_gpus
from roomscout.runs import RunError

log = logging.getLogger(__name__)

END_WITHIN_S = 10.0  # how long the watchdog may take to end what is left, before it is killed
DIED = 3  # the status of a call whose worker died: that of a run that an unexpected error stopped


class WatchedProcess:
    """`python -m MODULE FD ARGUMENTS`, where FD is its end of `connection`, with further environment variables. Its
    watchdog also ends what it has started. In a session of its own, no Ctrl-C of the terminal reaches it."""

    def __init__(self, module: str, *arguments: str, **variables: str):
        self.connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        command = [sys.executable, "-m", module, str(theirs.fileno()), *arguments]
        self._process = subprocess.Popen(
            [sys.executable, "-S", watchdog.__file__, *command],
            pass_fds=[theirs.fileno()],
            env=environment() | variables,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        theirs.close()

    def last_line(self) -> str:
        """The last line that it printed, behind a colon; logs all that it printed."""
        self._output.seek(0)
        output = self._output.read().decode(errors="replace").strip()
        log.debug("output of a process that ended:\n%s", output)
        return f": {output.splitlines()[-1].strip()}" if output else ""

    def stop(self) -> None:
        """Have the watchdog end the process, which has some seconds to clean up."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self, alone_s: float = 0) -> None:
        """End the process, which may first do so itself within `alone_s` seconds of the end of its connection."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(alone_s)
        self.stop()
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()


class Worker(WatchedProcess):
    """A process that makes calls, with `gpus` as its CUDA_VISIBLE_DEVICES unless that is None."""

    def __init__(self, gpus: str | None, threads: int):
        self.gpus = gpus
        visible = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        threads_here = os.environ.get("OMP_NUM_THREADS", str(threads))
        super().__init__("roomscout.cluster.processes", OMP_NUM_THREADS=threads_here, **visible)
        self.is_alive = True

    def outcome(self) -> Any:
        """The value of the call that was sent, the error that it raised, or DIED, which is logged."""
        with suppress(EOFError, ConnectionResetError):
            return self.connection.recv()
        self.is_alive = False
        where = "the CPU" if self.gpus is None else f"GPU {self.gpus}"
        status = self._process.wait()
        number = -status if status < 0 else status - 128
        how = signal.Signals(number).name if number in set(signal.Signals) else f"exit status {status}"
        log.error("The worker on %s died (%s)%s", where, how, self.last_line())
        return DIED


class Processes:
    """Workers on this machine, as many as `devices`, which are the GPUs of each. They stay from call to call."""

    def __init__(self, devices: Sequence[str | None]):
        self._threads = max(1, len(os.sched_getaffinity(0)) // len(devices))
        self._idle = [Worker(gpus, self._threads) for gpus in devices]
        self._busy = dict[Any, Worker]()
        self.workers = len(devices)

    def outcomes(self, call: str, arguments: Mapping[Any, tuple[Any, ...]]) -> Iterator[dict[Any, Any]]:
        """Make a call for each key; yields values and errors by key, also each POLL_S meanwhile."""
        waiting = list(arguments)
        while waiting or self._busy:
            while waiting and self._idle:
                key = waiting.pop(0)
                worker = self._idle.pop(0)
                self._busy[key] = worker
                with suppress(BrokenPipeError):  # it died: `outcome` says so
                    worker.connection.send((call, arguments[key]))
            wait([worker.connection for worker in self._busy.values()], POLL_S)
            done = {key: worker for key, worker in self._busy.items() if worker.connection.poll()}
            yield {key: worker.outcome() for key, worker in done.items()}
            for key, worker in done.items():
                del self._busy[key]
                if not worker.is_alive:
                    worker.close()
                    worker = Worker(worker.gpus, self._threads)
                self._idle.insert(0, worker)

    def close(self) -> None:
        """End all workers; finished turns are on disk."""
        workers = [*self._idle, *self._busy.values()]
        with deferred_interrupts():
            for worker in workers:
                worker.stop()
            for worker in workers:
                worker.close()


def devices_of(gpus: Sequence[str], device: str, gpus_each: int) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each worker of --gpus, None on a CPU; numbers are PyTorch's. Raises RunError."""
    if device == "cpu":
        if ALL_GPUS in gpus:
            raise RunError("on the CPU, say how many processes by as many numbers, such as 0,1", setting="gpus")
        return [None] * len(gpus)
    visible = visible_gpus()
    if not visible:
        raise RunError("PyTorch sees no GPU; leave it out, or add --device cpu for processes on a CPU", setting="gpus")
    chosen = visible if ALL_GPUS in gpus else [_visible(gpu, visible) for gpu in gpus]
    if len(set(chosen)) < len(chosen):
        raise RunError("a GPU is named twice, by its number and its UUID: leave one out", setting="gpus")
    if len(chosen) % gpus_each:
        why = f"each process takes {gpus_each} GPUs (--tensor-parallel-size), which {len(chosen)} is not a multiple of"
        raise RunError(why, setting="gpus")
    return [",".join(chosen[first : first + gpus_each]) for first in range(0, len(chosen), gpus_each)]


def _visible(gpu: str, visible: Sequence[str]) -> str:
    if gpu.isdecimal() and int(gpu) < len(visible):
        return visible[int(gpu)]
    if not gpu.isdecimal() and (gpu in visible or "CUDA_VISIBLE_DEVICES" not in os.environ):
        return gpu
    mask = ", of those in CUDA_VISIBLE_DEVICES" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
    raise RunError(f"there is no GPU {gpu}: this process sees {counted(len(visible), 'GPU')}{mask}", setting="gpus")


def main(connection: Connection) -> None:
    """Make the calls that `connection` has, and send their values or errors."""
    raise_at_interrupts()
    with suppress(EOFError, KeyboardInterrupt):
        while True:
            call, arguments = connection.recv()
            try:
                outcome = CALLS[call](*arguments)
            except Exception as error:  # noqa: BLE001 (raised again in the command)
                error.add_note(traceback.format_exc())
                outcome = error
            connection.send(outcome)
            del outcome  # an error keeps what its call had loaded


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
