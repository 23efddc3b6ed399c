"""Commands whose workers answer parts of a run, and the processes that they start."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from conftest import COMMAND


def begun_parts(run: Path) -> list[Path]:
    """Folders of the parts of a run that have finished a turn."""
    return sorted({path.parents[1] for path in run.glob("parts/*/q*/turns.jsonl")})


def worker_of(part: Path) -> int:
    """The process that writes a part."""
    found = re.match(r"process (\d+) on", (part / "run.lock").read_text())
    assert found is not None
    return int(found[1])


def first_part_with(turns: int, process: subprocess.Popen[str], log_root: Path) -> Path:
    """Wait until a part has so many turns; the other parts may not have begun."""
    while process.poll() is None:
        for run in log_root.glob("*_batched"):
            for part in begun_parts(run):
                if turns_in(part) >= turns:
                    return part
        time.sleep(0.01)
    raise AssertionError(f"ended too early: {process.communicate()}")


def turns_in(part: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in part.glob("q*/turns.jsonl"))


def started(command: list[str], log_root: Path) -> subprocess.Popen[str]:
    """Start a command; its processes are marked by their log root."""
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=COMMAND.parent,
        env={**os.environ, "TEST_LOG_ROOT": str(log_root)},
    )


def kill_all(pids: list[int]) -> None:
    assert pids
    for each in pids:
        os.kill(each, signal.SIGKILL)


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds; the process must not end before."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def processes_of(log_root: Path, name: str = "") -> list[int]:
    """The processes of a started command, of whatever session, whose command line contains `name`."""
    mark, found = f"TEST_LOG_ROOT={log_root}\0".encode(), []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes() and name.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:  # it has ended
            continue
    return [each for each in found if alive(each)]
