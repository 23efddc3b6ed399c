"""What a Ray worker does, on whichever machine of the cluster it runs."""

import logging
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from roomscout.agent.config import RunConfig
from roomscout.agent.evaluation import main_vsi_bench_loop
from roomscout.agent.policies.prompts import run_prompts
from roomscout.agent.prepared import prepared
from roomscout.agent.startup import resolve
from roomscout.data.parts import Part
from roomscout.runs import RunError, RunInUse
from roomscout.runs.reader import find_part

log = logging.getLogger(__name__)

POLL_S = 0.5
VISIBLE_WITHIN_S = 10.0
"""How long a network file system may take to show a new file on another machine."""
UNLOCKED_WITHIN_S = 180.0
"""How long a part may stay locked by a lost worker. NFS releases the locks of a dead machine after some 90 seconds."""


class Result(NamedTuple):
    """The outcome of a call of a worker: the value that it returned, the error that it raised, or why it was lost."""

    call: int
    value: Any = None
    error: Exception | None = None
    lost: str | None = None


class SharedFolderProbe(NamedTuple):
    """A file below --log-root that every worker must see, and its content."""

    path: Path
    content: str

    def require_visible(self, within_s: float = VISIBLE_WITHIN_S) -> None:
        """Raise RunError if this machine does not see the file within `within_s` seconds."""
        deadline = time.monotonic() + within_s
        while True:
            try:
                if self.path.read_text(encoding="utf-8") == self.content:
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                break
            time.sleep(POLL_S)
        raise RunError(
            f"--log-root {self.path.parent} is not the same folder on {socket.gethostname()}, where a worker runs: "
            "use a file system that all machines of the cluster share"
        )


@contextmanager
def shared_folder_probe(log_root: Path) -> Iterator[SharedFolderProbe]:
    """A file below `log_root` that exists inside this block; raises RunError if it cannot be written."""
    content = uuid.uuid4().hex
    probe = SharedFolderProbe(log_root / f".visible_{content}", content)
    try:
        log_root.mkdir(parents=True, exist_ok=True)
        probe.path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise RunError(f"--log-root {log_root}: cannot write there ({error.strerror})") from None
    try:
        yield probe
    finally:
        probe.path.unlink(missing_ok=True)


class Worker:
    """The actor. Its process takes one call and then ends, which frees all its memory."""

    def resolve(self, config: RunConfig, probe: SharedFolderProbe) -> RunConfig:
        """`config` with each "auto" resolved on this machine; raises the errors of `main_vsi_bench_loop`."""
        probe.require_visible()
        with ExitStack() as stack:
            return resolve(prepared(config), run_prompts(config), stack).config

    def answer(self, config: RunConfig, probe: SharedFolderProbe) -> int:
        """Begin or resume the part that `config` names; returns the status and raises the errors of
        `main_vsi_bench_loop`.

        Waits while a lost worker still holds the lock of the part's folder.
        """
        probe.require_visible()
        shard, log_root = config.cluster.shard, config.output.log_root
        assert shard is not None
        part = Part.parse(shard)
        deadline = time.monotonic() + UNLOCKED_WITHIN_S
        while True:
            try:
                return main_vsi_bench_loop(config, find_part(log_root, part.number, part.of)).status
            except RunInUse as error:
                if time.monotonic() > deadline:
                    raise
                log.info("Waiting: %s", error)
                time.sleep(POLL_S)
