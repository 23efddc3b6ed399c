"""What the answers of a run cost, and how long its engine waits."""

import math
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain
from threading import Lock

from roomscout.models import EngineLost, Reply
from roomscout.runs.prices import Price
from roomscout.runs.records import Turn


class Budget:
    """How much of an amount the replies of a run have spent; several threads may spend at once."""

    def __init__(self, price: Price, amount: float = math.inf, taken: Iterable[Turn] = ()):
        """`taken` are the turns of earlier processes of the run."""
        self.amount = amount
        self._price = price
        self._lock = Lock()
        self.spent = sum(map(self._cost, chain.from_iterable(turn.replies for turn in taken)))

    def spend(self, reply: Reply) -> None:
        """Count a reply. Raises EngineLost if it comes without the numbers of its tokens."""
        wrote = reply.generated_tokens > 0 or not reply.text
        was_asked = reply.seconds > 0
        if was_asked and not (reply.prompt_tokens > 0 and wrote):
            raise EngineLost(
                "the cost of a reply is not known: its engine does not say how many tokens it read and how many it "
                "wrote (usage); use one that does, or begin a run without prices"
            )
        with self._lock:
            self.spent += self._cost(reply)

    @property
    def is_spent(self) -> bool:
        """Whether the amount is reached, so that no further turn begins."""
        return self.spent >= self.amount

    def _cost(self, reply: Reply) -> float:
        reused = reply.reused_tokens
        return self._price.of(reply.prompt_tokens - reused, reused, reply.generated_tokens)


class EngineClock:
    """Measures how long an engine has `waited` before its last call, for views and else; for one thread."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._views = 0.0
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
        views = min(self._views, waited)
        self._views = 0.0
        self.waited = {"wait_views": round(views, 4), "wait_other": round(waited - views, 4)}
        try:
            yield
        finally:
            self._since = time.perf_counter()
