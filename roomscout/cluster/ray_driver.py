"""The process that talks to Ray for `roomscout.cluster.ray_cluster`; the only module that imports ray.

    python -m roomscout.cluster.ray_driver FD ADDRESS CPUS

Ray's native code takes over SIGTERM, and exits or hangs its process when a cluster dies. The command must survive that
to save its run, so Ray has this process to itself. FD is one end of a `multiprocessing.Pipe`; the end of file stops
this process. An empty ADDRESS starts a cluster on this machine with so many CPU cores.

Sends Ray's list of the cluster's nodes, or a sentence if it cannot connect. Then receives (class of a worker, name of
its method, arguments by key, `Replicas`), and calls the method of a free worker for each key, in their order; another
worker takes the call of a lost one. Sends the values or errors of ended calls by key, and none of them once a second
while a live node could hold a worker.
"""

import logging
import sys
from collections import Counter
from multiprocessing.connection import Connection
from typing import Any

from roomscout import IMPORTED_FROM
from roomscout.cluster.ray_cluster import POLL_S, REUSABLE, ClusterError

OBJECT_STORE_BYTES = 100_000_000
"""Ray's shared memory on this machine. It carries only settings and exit statuses."""
MOST_LOSSES = 3
"""How often a call may lose its worker before it fails; a part that kills its workers would never end."""


def main(connection: Connection, address: str, cpus: int) -> None:
    """Connect to the cluster, and serve calls until the other end of the connection is closed."""
    # Workers look for modules in the folder of this file name, if it is on this process's path.
    sys.argv[0] = str(IMPORTED_FROM / "ray_driver")
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
    kind, method, arguments, replicas = connection.recv()
    new_worker = ray.remote(num_cpus=replicas.cpus, num_gpus=replicas.gpus)(kind).remote
    here, lost = ray.remote(num_cpus=0)(lambda: None), Counter[Any]()
    waiting, free = list(arguments), list[Any]()
    busy: dict[Any, tuple[Any, Any]] = {}
    while waiting or busy:
        while waiting and len(busy) < replicas.count:
            key, worker = waiting.pop(0), free.pop() if free else new_worker()
            busy[getattr(worker, method).remote(*arguments[key])] = key, worker
        done, _ = ray.wait(list(busy), timeout=POLL_S)
        ended = {}
        for reference in done:
            key, worker = busy.pop(reference)
            value = outcome(ray, reference)
            if isinstance(value, ray.exceptions.RayError):
                ray.get(here.remote())  # raises if Ray has ended on this machine, where no worker can be called
                ray.kill(worker)
                lost[key] += 1
                if lost[key] <= MOST_LOSSES:
                    waiting.insert(0, key)
                    continue
                value = ClusterError(f"its worker was lost {lost[key]} times ({one_line(value)})")
            ended[key] = value
            if len(waiting) > len(free) and value in REUSABLE:
                free.append(worker)
            del worker  # Ray ends workers that are not referenced
        if connection.poll():  # nothing is sent while calls are in progress
            raise EOFError
        if ended or any(map(replicas.fit_on, ray.nodes())):
            connection.send(ended)


def outcome(ray: Any, reference: Any) -> Any:
    """The value of a finished call, the error that it raised, with its traceback there as a note, or Ray's error."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        error.cause.add_note(str(error))
        return error.cause
    except ray.exceptions.RayError as error:
        return error


def one_line(error: Exception) -> str:
    """An error's message without line breaks."""
    return " ".join(str(error).split())


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
