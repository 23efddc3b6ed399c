"""The process that talks to Ray for `roomscout.cluster.ray_cluster`; the only module that imports ray.

    python -m roomscout.cluster.ray_driver FD ADDRESS CPUS

Ray's native code takes over SIGTERM, and exits or hangs its process when a cluster dies. The command must survive that
to save its run, so Ray has this process to itself. FD is one end of a `multiprocessing.Pipe`; the end of file stops
this process. An empty ADDRESS starts a cluster on this machine with so many CPU cores.

Sends Ray's list of the cluster's nodes, or a sentence if it cannot connect. Then receives (name of a call of `parts`,
arguments by key, `Replicas`), and makes the calls on actors, which keep their GPUs and what they have loaded; Ray
starts a lost one elsewhere, and repeats its call. Sends the values or errors of ended calls by key, and none of them
once a second while a live node could hold a worker.
"""

import logging
import sys
from itertools import cycle
from multiprocessing.connection import Connection
from typing import Any

from roomscout import IMPORTED_FROM
from roomscout.cluster.parts import CALLS, POLL_S
from roomscout.cluster.ray_cluster import ClusterError

OBJECT_STORE_BYTES = 100_000_000  # Ray's shared memory here, which carries only settings and statuses
MOST_LOSSES = 3  # how often a call may lose its worker before it fails; a part that kills its workers would never end


def main(connection: Connection, address: str, cpus: int) -> None:
    """Connect to the cluster, and serve calls until the other end of the connection is closed."""
    # Workers look for modules in the folder of this file name, if it is on this process's path.
    sys.argv[0] = str(IMPORTED_FROM / "ray_driver")
    options = {"log_to_driver": False, "logging_level": logging.ERROR}
    if not address:
        options |= {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    try:
        import ray

        ray.init(address or "local", **options)
    except Exception as error:
        connection.send(" ".join(str(error).split()) or type(error).__name__)
        raise
    try:
        connection.send(ray.nodes())
        pool = dict[Any, Any]()
        while True:
            serve(ray, connection, pool)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        ray.shutdown()


class Worker:
    """What runs on a node: makes the calls that it is given, one after the other."""

    def begin(self) -> None:
        """Nothing: that this has ended shows that it has found a place."""

    def make(self, call: str, arguments: tuple[Any, ...]) -> Any:
        """The value of a call of `parts`."""
        return CALLS[call](*arguments)


def serve(ray: Any, connection: Connection, pool: dict[Any, Any]) -> None:
    """Carry out a request on the actors of `pool`, with references to their begin; raises EOFError at the end."""
    call, arguments, replicas = connection.recv()
    limits = {"max_restarts": -1, "max_task_retries": MOST_LOSSES}
    worker = ray.remote(num_cpus=replicas.cpus, num_gpus=replicas.gpus, **limits)(Worker)
    for _ in range(min(replicas.count, len(arguments)) - len(pool)):
        actor = worker.remote()
        pool[actor] = actor.begin.remote()
    ping = ray.remote(num_cpus=0)(lambda: None)
    calls = zip(cycle(pool), arguments.items(), strict=False)
    busy = {actor.make.remote(call, values): (key, actor) for actor, (key, values) in calls}
    most_nodes = 0
    while busy:
        done, _ = ray.wait(list(busy), timeout=POLL_S)
        outcomes = {busy.pop(reference)[0]: outcome(ray, reference) for reference in done}
        if any(isinstance(value, ClusterError) for value in outcomes.values()):
            ray.get(ping.remote())  # raises if Ray has ended on this machine, where no worker can be called
        if connection.poll():  # nothing is sent while calls are in progress
            raise EOFError
        alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        most_nodes = max(most_nodes, len(alive))
        begun = ray.wait(list(pool.values()), num_returns=len(pool), timeout=0)[0]
        if busy and (len(begun) < len(pool) or len(alive) < most_nodes):  # some actor may need the place of an idle one
            for actor in pool.keys() - {actor for _, actor in busy.values()}:
                ray.kill(actor)
                del pool[actor]
        if outcomes or any(has.get("CPU", 0) >= replicas.cpus and has.get("GPU", 0) >= replicas.gpus for has in alive):
            connection.send(outcomes)


def outcome(ray: Any, reference: Any) -> Any:
    """The value of a finished call, or the error that it raised, with its traceback there as a note."""
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        error.cause.add_note(str(error))
        return error.cause
    except ray.exceptions.RayError as error:
        why = " ".join(str(error).split())
        return ClusterError(f"its worker was lost more than {MOST_LOSSES} times ({why})")


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])), sys.argv[2], int(sys.argv[3]))
