"""What a Ray worker does, on whichever machine of the cluster it runs."""

import logging
import socket
import time
from contextlib import ExitStack
from pathlib import Path

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


def require_visible(probe: Path, within_s: float = VISIBLE_WITHIN_S) -> None:
    """Raise RunError if this machine does not see a new file below --log-root within `within_s` seconds."""
    deadline = time.monotonic() + within_s
    while not probe.exists():
        if time.monotonic() > deadline:
            raise RunError(
                f"--log-root {probe.parent} is not the same folder on {socket.gethostname()}, where a worker runs: "
                "use a file system that all machines of the cluster share"
            )
        time.sleep(POLL_S)


def resolved(config: RunConfig, probe: Path) -> RunConfig:
    """`config` with each "auto" resolved on this machine; raises the errors of `main_vsi_bench_loop`."""
    require_visible(probe)
    with ExitStack() as stack:
        return resolve(prepared(config), run_prompts(config), stack).config


def answer_part(config: RunConfig, probe: Path) -> int:
    """Begin or resume the part that `config` names; returns the status and raises the errors of `main_vsi_bench_loop`.

    Waits while a lost worker still holds the lock of the part's folder.
    """
    require_visible(probe)
    part = Part.parse(str(config.cluster.shard))
    deadline = time.monotonic() + UNLOCKED_WITHIN_S
    while True:
        try:
            return main_vsi_bench_loop(config, find_part(config.output.log_root, part.number, part.of)).status
        except RunInUse as error:
            if time.monotonic() > deadline:
                raise
            log.info("Waiting: %s", error)
            time.sleep(POLL_S)
