"""A Ray cluster as the command sees it: how many workers it holds, calls on them, and whether it is still alive."""

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Literal

from roomscout.base.interrupts import deferred_interrupts
from roomscout.cluster.processes import WatchedProcess
from roomscout.runs import RunError

log = logging.getLogger(__name__)

CONNECT_WITHIN_S = 10.0
START_WITHIN_S = 100.0  # how long Ray may take to start or join a cluster: usually some 5 seconds
NO_NODE_FOR_S = 45.0  # how long no live node may hold a worker; Ray takes up to 65 more to declare a node dead
DISCONNECT_WITHIN_S = 5.0  # how long Ray may take to disconnect before its processes are ended


class ClusterError(RunError):
    """Ray cannot start a cluster on this machine, or a cluster has lost its workers."""


class ClusterLost(ClusterError):
    """A cluster that worked has no live node for a worker, or no longer answers."""


@dataclass(frozen=True)
class Replicas:
    """The number of concurrent workers, and the resources that Ray reserves for each."""

    count: int
    gpus: int
    cpus: int


class Cluster:
    """A connected cluster; its methods raise ClusterLost once no live node can hold a worker, or Ray has ended."""

    def __init__(self, process: WatchedProcess, replicas: Replicas, no_node_for_s: float):
        self._process = process
        self._replicas = replicas
        self._no_node_for_s = no_node_for_s
        self.workers = replicas.count

    def outcomes(self, call: str, arguments: Mapping[Any, tuple[Any, ...]]) -> Iterator[dict[Any, Any]]:
        """Make a call of `parts` on a worker for each key; yields values and errors as calls end, and once a second."""
        with suppress(OSError):  # it ended: `message` says so
            self._process.connection.send((call, arguments, self._replicas))
        left = len(arguments)
        while left:
            done = message(self._process, self._no_node_for_s)
            if done is None:
                limit = f"{self._no_node_for_s:.0f} seconds"
                raise ClusterLost(f"the Ray cluster has had no live node that can hold a worker for {limit}")
            left -= len(done)
            yield done


def message(process: WatchedProcess, within_s: float) -> Any:
    """The next message of Ray's process, None after so many seconds; raises ClusterLost, with its last line."""
    try:
        return process.connection.recv() if process.connection.poll(within_s) else None
    except (EOFError, OSError):
        raise ClusterLost(f"Ray ended unexpectedly{process.last_line()}") from None


@contextmanager
def ray_cluster(replicas: int | Literal["auto"], gpus_each: int, no_node_for_s: float) -> Iterator[Cluster]:
    """The cluster that RAY_ADDRESS names, or one that is started on this machine for the duration of the `with` block.
    Ray runs in a process of its own (see `ray_driver`), so nothing here waits for Ray without a limit: without a live
    node for a worker, for `no_node_for_s` seconds. All workers end with the block. A cluster on this machine ends even
    if this process is killed. Raises RunError: ClusterError if Ray cannot start or join it."""
    address = os.environ.get("RAY_ADDRESS", "")
    if not address:
        log.info("RAY: starting a cluster on this machine")
    elif address != "auto":
        require_listening(address)
    fewest = 1 if replicas == "auto" else replicas
    cpus = max(os.cpu_count() or 1, fewest)
    process = WatchedProcess("roomscout.cluster.ray_driver", address, str(cpus))
    try:
        try:
            nodes = message(process, START_WITHIN_S) or f"it took more than {START_WITHIN_S:.0f} seconds"
        except ClusterLost as error:
            nodes = str(error)
        if isinstance(nodes, str):
            where = f"join the Ray cluster at {address}" if address else "start a cluster on this machine"
            why = f"Ray could not {where} ({nodes}); check the package with `ray start --head`"
            raise ClusterError(why, setting="ray")
        yield Cluster(process, replicas_of(nodes, replicas, gpus_each), no_node_for_s)
    finally:
        with deferred_interrupts():
            process.close(DISCONNECT_WITHIN_S)


def replicas_of(nodes: Sequence[Mapping[str, Any]], replicas: int | Literal["auto"], gpus_each: int) -> Replicas:
    """By default as many replicas as the cluster's GPUs allow, or one per machine if no GPU is needed or available. A
    replica has `gpus_each` GPUs of one machine if the cluster has GPUs. Raises RunError if there are too few."""
    machines = [node["Resources"] for node in nodes if node["Alive"]]
    cpus = [int(machine.get("CPU", 0)) for machine in machines]
    gpus = [int(machine.get("GPU", 0)) for machine in machines]
    wanted = None if replicas == "auto" else replicas
    if any(gpus) and gpus_each:
        fitting = [number // gpus_each for number in gpus]
        count = wanted or sum(fitting)
        if not 0 < count <= sum(fitting):
            there = " + ".join(str(number) for number in gpus if number)
            needs = f"each of {replicas} needs {gpus_each} on the same machine (--tensor-parallel-size)"
            raise RunError(f"the cluster has {there} GPUs, and {needs}", setting="replicas")
        shares = [cores // places for cores, places in zip(cpus, fitting, strict=True) if places]
        return Replicas(count, gpus_each, max(1, min(shares)))
    count = wanted or sum(cores > 0 for cores in cpus)
    shares = [share for share in range(1, max(cpus) + 1) if sum(cores // share for cores in cpus) >= count]
    if not shares:
        raise RunError(f"the cluster has {sum(cpus)} CPU cores, and each of {count} needs one", setting="replicas")
    return Replicas(count, 0, max(shares))


def require_listening(address: str) -> None:
    """Raise RunError unless a server listens at HOST:PORT; Ray would wait many minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_WITHIN_S).close()
    except (OSError, ValueError) as error:
        fix = "start one with ray start --head, and give its HOST:PORT"
        why = f"no Ray cluster can be reached at RAY_ADDRESS {address} ({error}): {fix}"
        raise RunError(why, setting="ray") from None
