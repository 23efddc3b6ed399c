"""The workers of --gpus: processes on this machine, one for each GPU or so many on its CPU, that answer parts of a run.

    python -m roomscout.cluster.gpus FD

is one of them. FD is its end of a `multiprocessing.Pipe`, on which it receives a class, of which it makes an object,
then names of methods with their arguments. It sends the value or the error of each call.
"""

import logging
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any

from roomscout.agent.config import ConfigError
from roomscout.base.interrupts import ignored_interrupts, raise_at_interrupts
from roomscout.base.text import counted
from roomscout.base.wording import named
from roomscout.cluster.ray_cluster import POLL_S, REUSABLE, Replicas
from roomscout.cluster.watched import WatchedProcess
from roomscout.models.gpus import visible_gpus
from roomscout.runs.setting_types import ALL_GPUS

log = logging.getLogger(__name__)

DIED = 3
"""The status of a call whose worker died: that of a run that an unexpected error stopped."""


class Worker(WatchedProcess):
    """A process with an object of this `kind`, and with `gpus` as its CUDA_VISIBLE_DEVICES unless that is None."""

    def __init__(self, gpus: str | None, threads: int, kind: type):
        self.gpus = gpus
        visible = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        threads_here = os.environ.get("OMP_NUM_THREADS", str(threads))
        super().__init__("roomscout.cluster.gpus", OMP_NUM_THREADS=threads_here, **visible)
        self.call(kind)

    def call(self, *message: Any) -> None:
        """Send the worker its class, or a method and its arguments."""
        with suppress(BrokenPipeError):  # it died: `outcome` says so
            self.connection.send(message)

    def outcome(self) -> Any:
        """The value of the call, the error that it raised, or DIED, which is logged; only once `connection` has it."""
        with suppress(EOFError, ConnectionResetError):
            return self.connection.recv()
        where = "the CPU" if self.gpus is None else f"GPU {self.gpus}"
        log.error("The worker on %s died (%s)%s", where, self.how_it_ended(), self.last_line())
        return DIED


class GpuWorkers:
    """Workers on this machine that answer parts as those of a `Cluster` do; `devices` are the `gpus` of each."""

    def __init__(self, devices: Sequence[str | None]):
        self._free = list(devices)
        self._busy: dict[Any, Worker] = {}
        self._idle: list[Worker] = []
        cores = len(os.sched_getaffinity(0)) // len(devices)
        self.replicas = Replicas(len(devices), 0, max(1, cores))

    def outcomes(self, kind: type, method: str, arguments: Mapping[Any, tuple[Any, ...]]) -> Iterator[dict[Any, Any]]:
        """Call a method of a free worker for each key; yields values and errors by key, also each POLL_S meanwhile."""
        waiting = list(arguments)
        while waiting or self._busy:
            while waiting and (self._idle or self._free):
                key = waiting.pop(0)
                idle = self._idle.pop() if self._idle else Worker(self._free.pop(0), self.replicas.cpus, kind)
                idle.call(method, arguments[key])
                self._busy[key] = idle
            wait([worker.connection for worker in self._busy.values()], POLL_S)
            done = {key: worker for key, worker in self._busy.items() if worker.connection.poll()}
            ended = {key: worker.outcome() for key, worker in done.items()}
            for key, worker in done.items():
                del self._busy[key]
                if len(waiting) > len(self._idle) and ended[key] in REUSABLE:
                    self._idle.append(worker)
                else:
                    self._end([worker])
                    self._free.append(worker.gpus)
            yield ended

    def close(self) -> None:
        """End all workers; finished turns are on disk."""
        with ignored_interrupts():
            self._end([*self._busy.values(), *self._idle])

    @staticmethod
    def _end(workers: Sequence[Worker]) -> None:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.close()


@contextmanager
def gpu_workers(gpus: Sequence[str], device: str, gpus_each: int) -> Iterator[GpuWorkers]:
    """The workers of --gpus, which end with the block; raises ConfigError."""
    workers = GpuWorkers(devices_of(gpus, device, gpus_each))
    try:
        yield workers
    finally:
        workers.close()


def devices_of(gpus: Sequence[str], device: str, gpus_each: int) -> list[str | None]:
    """CUDA_VISIBLE_DEVICES of each worker of --gpus, None on a CPU.

    Numbers count the GPUs that this process sees, as PyTorch does. Raises ConfigError for too few, and for one twice.
    """
    asked = named(gpus=",".join(gpus))
    if device == "cpu":
        if ALL_GPUS in gpus:
            raise ConfigError(
                f"{asked} with {named(device='cpu')}: say how many processes by as many numbers, such as "
                f"{named(gpus='0,1')}"
            )
        return [None] * len(gpus)
    visible = visible_gpus()
    if not visible:
        raise ConfigError(
            f"{asked}: PyTorch sees no GPU on this machine; leave it out, or add {named(device='cpu')} for processes "
            "on the CPU"
        )
    chosen = visible if ALL_GPUS in gpus else [_visible(gpu, visible, asked) for gpu in gpus]
    if len(set(chosen)) < len(chosen):
        raise ConfigError(f"{asked} names a GPU twice, by its number and its UUID: leave one out")
    if len(chosen) % gpus_each:
        raise ConfigError(
            f"{asked}: each process takes {gpus_each} GPUs with {named(tensor_parallel_size=gpus_each)}, and "
            f"{len(chosen)} cannot be divided among them: name a multiple"
        )
    return [",".join(chosen[first : first + gpus_each]) for first in range(0, len(chosen), gpus_each)]


def _visible(gpu: str, visible: Sequence[str], asked: str) -> str:
    """The name of one GPU of --gpus in CUDA_VISIBLE_DEVICES; raises ConfigError if this process does not see it."""
    if gpu.isdecimal() and int(gpu) < len(visible):
        return visible[int(gpu)]
    if not gpu.isdecimal() and (gpu in visible or "CUDA_VISIBLE_DEVICES" not in os.environ):
        return gpu
    mask = ", of those in CUDA_VISIBLE_DEVICES" if "CUDA_VISIBLE_DEVICES" in os.environ else ""
    raise ConfigError(f"{asked}: there is no GPU {gpu}: this process sees {counted(len(visible), 'GPU')}{mask}")


def main(connection: Connection) -> None:
    """Make the calls that `connection` has, and send their values or errors."""
    raise_at_interrupts()
    try:
        (kind,) = connection.recv()
        worker = kind()
        while True:
            method, arguments = connection.recv()
            try:
                outcome = getattr(worker, method)(*arguments)
            except Exception as error:  # noqa: BLE001 (raised again in the command)
                error.add_note(traceback.format_exc())
                outcome = error
            connection.send(outcome)
    except (EOFError, KeyboardInterrupt):
        return


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
