"""Processes of this package that a watchdog ends when this process closes them or dies."""

import logging
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing import Pipe

from roomscout.base.processes import environment
from roomscout.models import watchdog

log = logging.getLogger(__name__)

END_WITHIN_S = 10.0  # how long the watchdog may take to end what is left, before it is killed


class WatchedProcess:
    """`python -m MODULE FD ARGUMENTS`, where FD is its end of `connection`, with further environment variables. Its
    watchdog also ends what it has started. In a session of its own, no Ctrl-C of the terminal reaches it."""

    def __init__(self, module: str, *arguments: str, **variables: str):
        self.connection, theirs = Pipe()
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        command = [sys.executable, "-m", module, str(theirs.fileno()), *arguments]
        self._process = subprocess.Popen(
            [sys.executable, "-S", watchdog.__file__, *command],
            pass_fds=[theirs.fileno()],
            env=environment() | variables,
            stdin=subprocess.PIPE,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,
        )
        theirs.close()

    def how_it_ended(self) -> str:
        """The signal or exit status of a process that has ended."""
        status = self._process.wait()
        number = -status if status < 0 else status - 128
        return signal.Signals(number).name if number in set(signal.Signals) else f"exit status {status}"

    def last_line(self) -> str:
        """The last line that it printed, behind a colon; logs all that it printed."""
        self._output.seek(0)
        output = self._output.read().decode(errors="replace").strip()
        log.debug("output of a process that ended:\n%s", output)
        return f": {output.splitlines()[-1].strip()}" if output else ""

    def stop(self) -> None:
        """Have the watchdog end the process, which has some seconds to clean up."""
        assert self._process.stdin is not None
        self._process.stdin.close()

    def close(self, alone_s: float = 0) -> None:
        """End the process, which may first do so itself within `alone_s` seconds of the end of its connection."""
        self.connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(alone_s)
        self.stop()
        try:
            self._process.wait(END_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()
