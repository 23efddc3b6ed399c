"""Locks that keep two processes from writing one folder, and files that are opened only if they are not links."""

import errno
import fcntl
import io
import os
import socket
from datetime import datetime
from pathlib import Path

from roomscout.runs import RunError, RunInUse


def locked(path: Path, instead: str, wait: bool = False) -> io.TextIOWrapper:
    """Lock a folder by a file in it, which names the holder, until that is closed or this process ends. Raises
    RunInUse, which says what to do `instead`, unless this is to `wait`; RunError if it cannot be taken."""
    folder = path.parent
    try:
        handle = os.fdopen(open_own(str(path), os.O_RDWR | os.O_APPEND | os.O_CREAT), "a+", encoding="utf-8")
    except OSError as error:
        raise unwritable(folder, error, f"; fix that, or {instead}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        handle.seek(0)
        holder = handle.read().strip() or "another process"
        handle.close()
        raise RunInUse(f"{folder} is being written by {holder}; wait for it, or {instead}") from None
    except OSError as error:
        handle.close()
        raise RunError(
            f"{folder} cannot be locked ({error.strerror}): its file system does not support locks, so two processes "
            "could write to it at once; use another folder, or mount it with locks (Lustre: -o flock)"
        ) from None
    try:
        handle.truncate(0)
        handle.write(f"process {os.getpid()} on {socket.gethostname()}, since {datetime.now():%Y-%m-%d %H:%M:%S}\n")
        handle.flush()
    except OSError as error:
        raise unwritable(folder, error, "; make room, then run the same command again") from None
    return handle


def unwritable(path: Path, error: OSError, what_to_do: str) -> RunError:
    """The error of a file or folder that cannot be written."""
    why = "it is a link" if error.errno == errno.ELOOP else error.strerror or error
    return RunError(f"{path} cannot be written ({why}){what_to_do}")


def open_own(path: str, flags: int) -> int:
    """Open a file of a run folder, which may be somebody else's, unless it is a link to another file."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)
