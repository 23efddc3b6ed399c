"""Runs of the command that are stopped on the way, and what resumes them."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import COMMAND


def continued(log_root: Path, *flags: str) -> list[str]:
    """The flags that resume the newest run."""
    return ["--batch", "--continue", "recent", "--log-root", str(log_root), *flags]


def turns_on_disk(log_root: Path) -> int:
    """The number of turns that all runs have written."""
    return sum(path.read_bytes().count(b"\n") for path in log_root.glob("*/q*/turns.jsonl"))


def stop_after(flags: list[str], log_root: Path, turns: int, how: signal.Signals) -> subprocess.Popen[str]:
    """Start the command and send it a signal once this many turns are on disk."""
    command = [sys.executable, str(COMMAND), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    while turns_on_disk(log_root) < turns and process.poll() is None:
        time.sleep(0.002)
    process.send_signal(how)
    process.wait()
    return process
