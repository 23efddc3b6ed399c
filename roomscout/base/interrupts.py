"""What SIGINT (Ctrl-C) and SIGTERM (job schedulers) do to a block of code; elsewhere see `raise_at_interrupts`."""

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
REPEATED_S = 3.0  # interrupts within this time after one belong to it: people and job schedulers often send two


def raise_at_interrupts() -> Callable[[], bool]:
    """Let SIGINT, unless it is ignored, and SIGTERM raise KeyboardInterrupt; for REPEATED_S, ignore those that follow.
    A second one would interrupt what the first one makes a program do, such as saving its results. Returns a function
    that tells whether one was raised: compiled libraries may turn it into an error of their own."""
    raised_at = -math.inf

    def raise_once(number: int, frame: FrameType | None) -> None:
        nonlocal raised_at
        if time.monotonic() - raised_at >= REPEATED_S:
            raised_at = time.monotonic()
            raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, raise_once)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raise_once)
    return lambda: raised_at > -math.inf


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt only at the end of the block, which it would break; dropped if that raises an error."""
    caught: list[int] = []
    with _handled_by(lambda number, _: caught.append(number)):
        yield
    if caught:
        raise KeyboardInterrupt


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Ignore interrupts inside the block, which ends a run; people and job schedulers often send two."""
    with _handled_by(signal.SIG_IGN):
        yield


@contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block raises an error or is interrupted, which then goes on."""
    with ExitStack() as stack:
        stack.callback(undo)
        yield
        stack.pop_all()


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Replace the handlers of interrupts, except those that are ignored already, as by nohup or an outer block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted, and only it may set signal handlers
        return
    before = {number: signal.getsignal(number) for number in INTERRUPTS if signal.getsignal(number) != signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, handler)
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
