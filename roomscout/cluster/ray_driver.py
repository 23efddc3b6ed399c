"""The process that talks to Ray for `roomscout.cluster.ray_cluster`; the only module that imports ray.

    python -m roomscout.cluster.ray_driver FD ADDRESS CPUS

Ray's native code takes over SIGTERM, and exits or hangs its process when a cluster dies. The command must survive that
to save its run, so Ray has this process to itself. FD is one end of a `multiprocessing.Pipe`; the end of file stops
this process. An empty ADDRESS starts a cluster on this machine with so many CPU cores.

Sends Ray's list of the cluster's nodes, or a sentence if it cannot connect. Then receives (function, arguments by key,
`Replicas`), and calls the function on a worker for each key; Ray retries the calls of lost workers. Sends the values or
errors of ended calls by key, and none of them once a second while a live node could hold a worker.
"""

import logging
import os
import sys
from multiprocessing.connection import Connection
from typing import Any

from roomscout import IMPORTED_FROM
from roomscout.cluster.ray_cluster import POLL_S, ClusterError

OBJECT_STORE_BYTES = 100_000_000
"""Ray's shared memory on this machine. It carries only settings and exit statuses."""
MOST_LOSSES = 3
"""How often a call may lose its worker before it fails; a part that kills its workers would never end."""


def main(connection: Connection, address: str, cpus: int) -> None:
    """Connect to the cluster, and serve calls until the other end of the connection is closed."""
    # Workers look for modules in the folder of this file name, if it is on this process's path.
    sys.argv[0] = str(IMPORTED_FROM / "ray_driver")
    # Ray would retry without end when memory is short.
    os.environ["RAY_task_oom_retries"] = str(MOST_LOSSES)  # noqa: SIM112 (Ray's name)
    here = {} if address else {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    try:
        import ray

        ray.init(address or "local", log_to_driver=False, logging_level=logging.ERROR, **here)
    except Exception as error:
        connection.send(one_line(error) or type(error).__name__)
        raise
    try:
        connection.send(ray.nodes())
        while True:
            serve(ray, connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        ray.shutdown()


def serve(ray: Any, connection: Connection) -> None:
    """Carry out one request; raises EOFError when the other end is closed."""
    function, arguments, replicas = connection.recv()
    # Each process takes one call and then ends, which frees all its memory.
    options = {"num_cpus": replicas.cpus, "num_gpus": replicas.gpus, "max_calls": 1, "max_retries": MOST_LOSSES}
    task, waiting = ray.remote(**options)(function), list(arguments)
    busy: dict[Any, Any] = {}
    while waiting or busy:
        while waiting and len(busy) < replicas.count:
            key = waiting.pop(0)
            busy[task.remote(*arguments[key])] = key
        done, _ = ray.wait(list(busy), timeout=POLL_S)
        ended = {busy.pop(reference): outcome(ray, reference) for reference in done}
        if connection.poll():  # nothing is sent while calls are in progress
            raise EOFError
        if ended or any(map(replicas.fit_on, ray.nodes())):
            connection.send(ended)


def outcome(ray: Any, reference: Any) -> Any:
    """The value of a finished call, or the error that it raised, with its traceback there as a note."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        error.cause.add_note(str(error))
        return error.cause
    except ray.exceptions.LocalRayletDiedError:
        raise  # without Ray on this machine, no other worker can be called
    except ray.exceptions.RayError as error:
        return ClusterError(f"its worker was lost {1 + MOST_LOSSES} times ({one_line(error)})")


def one_line(error: Exception) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split())


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
