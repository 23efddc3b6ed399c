"""How long an engine that takes batches waits between two calls, and for what."""

import time
from collections.abc import Iterator
from contextlib import contextmanager


class EngineClock:
    """Measures the seconds between calls, from its creation on, and which of them are spent on views; for one thread.

    `waited` has those before the last call, as `TurnSeconds` names them.
    """

    def __init__(self) -> None:
        self._since, self._views = time.perf_counter(), 0.0
        self.waited: dict[str, float] = {}

    @contextmanager
    def waiting_for_views(self) -> Iterator[None]:
        """Count the time inside this block as waiting for views."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._views += time.perf_counter() - started

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let the engine work inside this block."""
        waited = time.perf_counter() - self._since
        views, self._views = min(self._views, waited), 0.0
        self.waited = {"wait_views": round(views, 4), "wait_other": round(waited - views, 4)}
        try:
            yield
        finally:
            self._since = time.perf_counter()
