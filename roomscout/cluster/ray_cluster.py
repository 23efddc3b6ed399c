"""A Ray cluster as the command sees it: how many workers it holds, calls on them, and whether it is still alive."""

import importlib.util
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from multiprocessing import Pipe
from typing import Any, Self

from roomscout.agent.config import ConfigError, RunConfig
from roomscout.base.interrupts import ignored_interrupts
from roomscout.base.processes import environment
from roomscout.cluster.ray_worker import POLL_S, Result
from roomscout.models import watchdog
from roomscout.runs import RunError

log = logging.getLogger(__name__)

CONNECT_WITHIN_S = 10.0
START_WITHIN_S = 100.0
"""How long Ray may take to start or join a cluster. Some 5 seconds are usual."""
NO_NODE_FOR_S = 45.0
"""How long a cluster may be without a live node for a worker.

Ray takes up to 65 seconds to declare a node dead. Together this stays below two minutes.
"""
DISCONNECT_WITHIN_S = 5.0
"""How long Ray may take to disconnect before its processes are ended."""
END_WITHIN_S = 10.0


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

    def fit_on(self, node: Mapping[str, Any]) -> bool:
        """Whether a node, as Ray lists it, is alive and large enough for a worker."""
        has = node["Resources"]
        return node["Alive"] and has.get("CPU", 0) >= self.cpus and has.get("GPU", 0) >= self.gpus


class Cluster:
    """The cluster at --ray-address, or one that is started on this machine for the duration of a `with` block.

    Ray runs in a process of its own (see `ray_driver`), so nothing here waits for Ray without a limit.
    All workers end with the block. A cluster on this machine ends even if this process is killed. Entering the block
    raises ConfigError or ClusterError; the methods raise ClusterLost once no node could hold a worker for
    `no_node_for_s` seconds, or as soon as Ray's process has ended.
    """

    def __init__(self, config: RunConfig, no_node_for_s: float = NO_NODE_FOR_S):
        self._config, self._no_node_for_s = config, no_node_for_s
        self._numbers = count()

    def __enter__(self) -> Self:
        address = self._config.cluster.ray_address
        if address is None:
            log.info("RAY: starting a cluster on this machine")
        else:
            require_listening(address)
        self._launch()
        try:
            self.replicas = replicas_of(self._connected(), self._config)
        except BaseException:  # also on an interrupt, so that Ray's processes end before this one
            self._close()
            raise
        self._node_seen = time.monotonic()
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def start(self, method: str, *arguments: Any) -> int:
        """Call a method of a new `Worker`, which waits for free resources; returns the call's number."""
        call = next(self._numbers)
        try:
            self._connection.send((call, self.replicas.cpus, self.replicas.gpus, method, arguments))
        except OSError:
            raise self._ended() from None
        return call

    def results(self) -> list[Result]:
        """The outcomes of calls that have ended since the last time; waits half a second for the first."""
        results = []
        for message in self._messages(POLL_S):
            if isinstance(message, Result):
                results.append(message)
            elif any(map(self.replicas.fit_on, message)):
                self._node_seen = time.monotonic()
        if not results and time.monotonic() - self._node_seen > self._no_node_for_s:
            raise ClusterLost(
                f"the Ray cluster has had no live node that can hold a worker for {self._no_node_for_s:.0f} seconds"
            )
        return results

    def result(self, call: int) -> Result:
        """The outcome of the only call that is in progress."""
        while not (results := self.results()):
            pass
        (result,) = results
        assert result.call == call
        return result

    def _launch(self) -> None:
        address, replicas = self._config.cluster.ray_address, self._config.cluster.replicas
        cpus = max(os.cpu_count() or 1, 1 if replicas == "auto" else replicas)
        driver = [sys.executable, "-P", "-m", "roomscout.cluster.ray_driver"]
        self._connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        with theirs:
            # The watchdog ends all of Ray's processes on this machine. In its new session, no Ctrl-C reaches them.
            self._process = subprocess.Popen(
                [sys.executable, "-S", watchdog.__file__, *driver, str(theirs.fileno()), address or "", str(cpus)],
                pass_fds=[theirs.fileno()],
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=self._output,
                stderr=self._output,
                start_new_session=True,
            )

    def _connected(self) -> list[Mapping[str, Any]]:
        """Wait for the connection; returns the nodes."""
        try:
            messages = self._messages(START_WITHIN_S)
            problem = f"it took more than {START_WITHIN_S:.0f} seconds" if not messages else messages[0]
        except ClusterLost as error:
            problem = str(error)
        if not isinstance(problem, str):
            return problem
        address = self._config.cluster.ray_address
        if address is None:
            raise ClusterError(
                f"--ray: Ray could not start a cluster on this machine ({problem}): free memory and /tmp, and check "
                "the package with `ray start --head`"
            )
        raise ConfigError(
            f"--ray-address {address}: cannot join a Ray cluster there ({problem}); check that Ray and Python have the "
            "cluster's versions, and if it uses token authentication, export RAY_AUTH_MODE=token and copy its "
            "~/.ray/auth_token to this machine"
        )

    def _messages(self, within_s: float) -> list[Any]:
        """All messages that have arrived; waits `within_s` seconds for the first."""
        messages: list[Any] = []
        try:
            while self._connection.poll(0.0 if messages else within_s):
                messages.append(self._connection.recv())
        except (EOFError, OSError):
            if not messages:
                raise self._ended() from None
        return messages

    def _ended(self) -> ClusterLost:
        """The error of a Ray process that has ended; quotes the last line that it printed."""
        self._output.seek(0)
        lines = self._output.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        log.debug("output of Ray's process:\n%s", "\n".join(lines))
        return ClusterLost("Ray ended unexpectedly" + (f": {last}" if last else ""))

    def _close(self) -> None:
        with ignored_interrupts():
            self._connection.close()  # has Ray disconnect
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(DISCONNECT_WITHIN_S)
            assert self._process.stdin is not None
            self._process.stdin.close()  # has the watchdog end what is left
            try:
                self._process.wait(END_WITHIN_S)
            except subprocess.TimeoutExpired:
                os.killpg(self._process.pid, signal.SIGKILL)
                self._process.wait()
            self._output.close()


def replicas_of(nodes: Sequence[Mapping[str, Any]], config: RunConfig) -> Replicas:
    """By default as many replicas as the cluster's GPUs allow, or one per machine if no GPU is needed or available.

    A replica has one GPU, or --tensor-parallel-size GPUs of one machine. Raises ConfigError if the cluster has too few
    resources.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    cpus = [int(each.get("CPU", 0)) for each in resources]
    gpus = [int(each.get("GPU", 0)) for each in resources]
    replicas, model = config.cluster.replicas, config.model
    wanted = None if replicas == "auto" else replicas
    if any(gpus) and model.device != "cpu" and model.loads_weights:
        size = config.vllm.tensor_parallel_size
        fitting = [each // size for each in gpus]
        count = wanted or sum(fitting)
        if not 0 < count <= sum(fitting):
            needs = "one" if size == 1 else f"{size} on the same machine (--tensor-parallel-size)"
            machines = " + ".join(str(each) for each in gpus if each)
            raise ConfigError(f"--replicas {replicas}: the cluster has {machines} GPUs, and each replica needs {needs}")
        return Replicas(count, size, max(1, min(c // f for c, f in zip(cpus, fitting, strict=True) if f)))
    count = wanted or sum(each > 0 for each in cpus)
    shares = [share for share in range(1, max(cpus) + 1) if sum(each // share for each in cpus) >= count]
    if not shares:
        raise ConfigError(
            f"--replicas {count}: the cluster has {sum(cpus)} CPU cores, and each replica needs at least one"
        )
    return Replicas(count, 0, max(shares))


def require_ray() -> None:
    """Raise ConfigError, with the command that installs it, without the package ray."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(
            '--ray needs the package ray: pip install "roomscout[ray]", or in a checkout pip install -e ".[ray]"'
        )


def require_listening(address: str) -> None:
    """Raise ConfigError unless a server listens at HOST:PORT; Ray would wait many minutes. Does not check "auto"."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), CONNECT_WITHIN_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--ray-address {address}: no Ray cluster can be reached there ({error}): start one with ray start --head, "
            "and give its HOST:PORT"
        ) from None
