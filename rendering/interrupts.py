"""Protects code that an interrupt would break, such as imports and starts of native libraries."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def deferred_interrupts() -> Iterator[None]:
    """Raises KeyboardInterrupt for SIGINT and SIGTERM only at the end of the block."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    caught: list[int] = []
    interrupts = (signal.SIGINT, signal.SIGTERM)
    previous = {each: signal.signal(each, lambda number, _: caught.append(number)) for each in interrupts}
    try:
        yield
    finally:
        for each, handler in previous.items():
            signal.signal(each, handler)
    if caught:
        raise KeyboardInterrupt
