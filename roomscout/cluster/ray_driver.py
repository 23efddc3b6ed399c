"""The process that talks to Ray for `roomscout.cluster.ray_cluster.Cluster`; the only module that imports ray.

    python -m roomscout.cluster.ray_driver FD ADDRESS CPUS

Ray's native code takes over SIGTERM, and exits or hangs its process when a cluster dies. The command must survive that
to save its run, so Ray has this process to itself. FD is one end of a `multiprocessing.Pipe`; the end of file stops
this process. An empty ADDRESS starts a cluster on this machine with so many CPU cores.

Receives (call, CPU cores, GPUs, method, arguments) and calls the method on a new worker. Sends Ray's list of the
cluster's nodes when connected and twice a second from then on, and a `Result` for each call. Sends a sentence instead
if it cannot connect.
"""

import logging
import sys
from multiprocessing.connection import Connection
from typing import Any

from roomscout import IMPORTED_FROM
from roomscout.cluster.ray_worker import POLL_S, Result, Worker

OBJECT_STORE_BYTES = 100_000_000
"""Ray's shared memory on this machine. It carries only settings and exit statuses."""


def main(connection: Connection, address: str, cpus: int) -> None:
    """Connect to the cluster, and serve calls until the other end of the connection is closed."""
    try:
        import ray

        connect(ray, address, cpus)
    except Exception as error:  # noqa: BLE001 (Ray raises bare ones, too; the command quotes whichever it is)
        connection.send(one_line(error) or type(error).__name__)
        return
    try:
        serve(ray, connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        ray.shutdown()


def connect(ray: Any, address: str, cpus: int) -> None:
    """Start a cluster on this machine, or join the one at `address`."""
    # Workers look for modules in the folder of this file name, if it is on this process's path.
    sys.argv[0] = str(IMPORTED_FROM / "ray_driver")
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address:
        ray.init(address=address, **quiet)
        return
    ray.init(
        address="local",
        num_cpus=cpus,
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        **quiet,
    )


def serve(ray: Any, connection: Connection) -> None:
    """Call workers as requested; raises EOFError when the other end is closed."""
    calls: dict[Any, tuple[int, Any]] = {}
    while True:
        connection.send(ray.nodes())
        if calls:
            done, _ = ray.wait(list(calls), timeout=POLL_S)
            for reference in done:
                call, worker = calls.pop(reference)
                connection.send(result_of(ray, call, reference))
                ray.kill(worker)
        while connection.poll(0.0 if calls else POLL_S):
            call, cpus, gpus, method, arguments = connection.recv()
            # Without restarts by Ray, which would hide that a worker was lost, and why.
            worker = ray.remote(Worker).options(num_cpus=cpus, num_gpus=gpus, max_restarts=0).remote()
            calls[getattr(worker, method).remote(*arguments)] = call, worker


def result_of(ray: Any, call: int, reference: Any) -> Result:
    """The outcome of a finished call."""
    try:
        return Result(call, ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        return Result(call, error=error.cause)
    except ray.exceptions.RayError as error:
        return Result(call, lost=one_line(error))


def one_line(error: Exception) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split())


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
