"""Runs a server for a parent process and stops all of its processes when the parent exits.

    python watchdog.py COMMAND...

Standard input is a pipe that ends when the parent closes it or dies, even by SIGKILL. The watchdog also watches the
parent's process id, because children that the parent forked may keep the pipe open. It leads its own session, so Ctrl-C
in a terminal does not reach the server. Exits with the server's status. Uses only the standard library."""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

POLL_S = 0.5
GRACE_S = 5.0  # how long the server may take to exit after SIGTERM, before SIGKILL
PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> int:
    """Run the server until it or the parent exits; returns the server's status as `Popen.returncode` defines it."""
    parent = os.getppid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the SIGTERM below reaches the whole group
    libc = ctypes.CDLL(None)
    server = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        close_fds=False,  # the parent may pass the server a pipe
        # If the watchdog itself is killed, the server's first process is killed with it; the parent kills the rest.
        preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL),
    )
    while server.poll() is None and os.getppid() == parent and not select.select([0], [], [], POLL_S)[0]:
        pass
    if server.poll() is None:
        os.killpg(0, signal.SIGTERM)
        end = time.monotonic() + GRACE_S
        while server.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
    while others := session_members():
        for process in others:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        server.poll()  # reaps a killed server, which else stays a member
        time.sleep(0.05)
    return server.wait()


def session_members() -> list[int]:
    """The other processes of this session."""
    session = os.getsid(0)
    members = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            try:
                # After the name in parentheses: state, parent, group, session.
                state, _, _, its_session = (entry / "stat").read_bytes().rpartition(b")")[2].decode().split()[:4]
            except OSError:  # it has exited
                continue
            if int(its_session) == session and state not in "ZX":
                members.append(int(entry.name))
    return members


if __name__ == "__main__":
    status = main(sys.argv[1:])
    code = status if status >= 0 else 128 - status
    sys.exit(code)
