"""What SIGINT (Ctrl-C) and SIGTERM (job schedulers) do: an interrupt is kept, and raised until it is acted on."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
REPEATED_S = 3.0  # interrupts within this time after one belong to it: people and job schedulers often send two
AGAIN_S = 0.25  # after which an interrupt is raised again if nothing is left of it


@dataclass
class _Kept:
    """The last interrupt. Its exception alone may get lost: Python drops what `__del__` and the callbacks of weak
    references raise, and compiled libraries what their callbacks raise, or they make another error of it."""

    at: float = -math.inf  # when it came, by time.monotonic()
    is_pending: bool = False  # whether nobody has acted on it


_kept = _Kept()


def raise_at_interrupts() -> None:
    """Let SIGINT, unless it is ignored, and SIGTERM raise KeyboardInterrupt; for REPEATED_S, ignore those that follow.
    A second one would interrupt what the first one makes a program do, such as saving its results. If the exception is
    dropped on its way, it is raised again, by SIGALRM, until somebody has acted on it."""
    acted_on_interrupt()
    _kept.at = -math.inf
    for number in (signal.SIGTERM, signal.SIGALRM):
        signal.signal(number, _keep)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _keep)


def is_interrupted() -> bool:
    """Whether nobody has acted on an interrupt, whose exception may have been dropped."""
    return _kept.is_pending


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt if nobody has acted on an interrupt."""
    if _kept.is_pending:
        raise KeyboardInterrupt


@contextmanager
def interrupts_first() -> Iterator[None]:
    """Raise KeyboardInterrupt in place of an error that follows an interrupt: a library may have made it of one."""
    try:
        yield
    except Exception:
        raise_if_interrupted()
        raise


def acted_on_interrupt() -> None:
    """Keep an interrupt no longer: what it asks for is done, or begins."""
    if _kept.is_pending:
        _kept.is_pending = False
        signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Let interrupts take effect only at the end of the block, which they would break, also if that raises an error."""
    caught: list[int] = []
    try:
        with _handled_by(lambda number, _: caught.append(number)):
            yield
    finally:
        if caught:  # an interrupt before the alarm of an earlier one
            signal.raise_signal(min(caught, key=lambda number: number not in INTERRUPTS))


@contextmanager
def ignored_interrupts() -> Iterator[None]:
    """Ignore interrupts inside the block, which acts on one; people and job schedulers often send two."""
    with _handled_by(signal.SIG_IGN):
        acted_on_interrupt()
        yield


@contextmanager
def undone_on_failure(undo: Callable[[], object]) -> Iterator[None]:
    """Call `undo` if the block raises an error or is interrupted, which then goes on."""
    with ExitStack() as stack:
        stack.callback(undo)
        yield
        stack.pop_all()


def _keep(number: int, frame: FrameType | None) -> None:
    """The handler of interrupts, and of the alarm that raises a kept one again."""
    now = time.monotonic()
    if number in INTERRUPTS and now - _kept.at >= REPEATED_S:
        _kept.at = now
        _kept.is_pending = True
        signal.setitimer(signal.ITIMER_REAL, AGAIN_S, AGAIN_S)
    elif not _kept.is_pending or _is_on_its_way():
        return
    raise KeyboardInterrupt


def _is_on_its_way() -> bool:
    """Whether what is running handles a KeyboardInterrupt, as a `finally` does, or an error that followed one."""
    error = sys.exception()
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__context__
    return False


@contextmanager
def _handled_by(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Replace the handlers of interrupts, except those that are ignored already, as by nohup or an outer block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread is interrupted, and only it may set signal handlers
        return
    with ExitStack() as stack:
        for number in (*INTERRUPTS, signal.SIGALRM):
            former = signal.getsignal(number)
            if former is _keep or (former != signal.SIG_IGN and number in INTERRUPTS):
                stack.callback(signal.signal, number, former)  # also if that of another raises
                signal.signal(number, handler)
        yield
