"""Code in which the exception of an interrupt gets lost, or becomes another error."""

import ctypes
import os
import signal
import sqlite3
import weakref
from collections.abc import Callable

from roomscout.models import ModelError


def send(how: signal.Signals) -> None:
    """Interrupt this process, which handles it before this returns."""
    os.kill(os.getpid(), how)
    for _ in range(3):
        pass


class Sending:
    """Interrupts this process when it is collected."""

    def __init__(self, how: signal.Signals):
        self.how = how

    def __del__(self) -> None:
        """Send it where Python drops exceptions."""
        send(self.how)


def in_del(how: signal.Signals) -> None:
    """Python writes the exception to stderr and goes on."""
    Sending(how)


def in_weak_reference(how: signal.Signals) -> None:
    """The same of the callback of a weak reference."""

    class Gone:
        pass

    gone = Gone()
    kept = weakref.ref(gone, lambda _: send(how))
    del gone
    assert kept() is None


def in_native_callback(how: signal.Signals) -> None:
    """The same of a function that C calls."""
    ctypes.CFUNCTYPE(None)(lambda: send(how))()


def as_error_of_library(how: signal.Signals) -> None:
    """SQLite makes an error of its own of the exception."""
    with sqlite3.connect(":memory:") as database:
        database.create_function("send", 0, lambda: send(how))
        database.execute("select send()")


def as_error_of_model(how: signal.Signals) -> None:
    """Would fail a question if it were none of an interrupt."""
    try:
        send(how)
    except KeyboardInterrupt:
        raise ModelError("CUDA error: interrupted") from None


def plainly(how: signal.Signals) -> None:
    """Nothing gets lost."""
    send(how)


LOSSES: tuple[Callable[[signal.Signals], None], ...] = (
    in_del, in_weak_reference, in_native_callback, as_error_of_library, as_error_of_model, plainly,
)  # fmt: skip
