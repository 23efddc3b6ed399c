"""What SIGINT (Ctrl-C) and SIGTERM (job schedulers) do to a block of code.

Outside these blocks, the command lets both raise KeyboardInterrupt in the main thread.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt only at the end of the block, which an interrupt would break.

    For imports and starts of native libraries. If the block raises an error, the interrupt is dropped.
    """
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
    before = {each: signal.getsignal(each) for each in INTERRUPTS if signal.getsignal(each) != signal.SIG_IGN}
    try:
        for each in before:
            signal.signal(each, handler)
        yield
    finally:
        for each, former in before.items():
            signal.signal(each, former)
