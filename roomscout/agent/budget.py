"""What the answers of a run cost, and how long its engine waits."""

import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock

from roomscout.runs import RunError
from roomscout.runs.costs import of_answer
from roomscout.runs.prices import Price
from roomscout.runs.records import EpisodeId, Turn


class Budget:
    """How much of an amount the answers of a run have spent; several threads may spend at once."""

    def __init__(
        self,
        price: Price,
        amount: float = math.inf,
        taken: Mapping[EpisodeId, Sequence[Turn]] | None = None,
        done: Collection[EpisodeId] = (),
    ):
        """`taken` are the turns of earlier processes of the run, and `done` those of its answers that they finished."""
        self.amount = amount
        self._price = price
        self._lock = Lock()
        self._of = {episode: self._cost(turns) for episode, turns in (taken or {}).items()}
        self._waiting = self._of.keys() - done
        self.spent = sum(self._of.values())

    def spend(self, episode: EpisodeId, turn: Turn) -> None:
        """Count a finished turn, with the answer that was asked for as if it were the last. Raises RunError if a reply
        comes without the number of its tokens, and there is an amount to keep to."""
        replies = [turn.reply, *([turn.forced.reply] if turn.forced else [])]
        if self.amount < math.inf and any(reply.text and not reply.prompt_tokens for reply in replies):
            raise RunError(
                "the budget cannot be kept: the server does not say how many tokens it read for a reply (usage); use "
                "one that does, or resume without a budget"
            )
        with self._lock:
            cost = self._cost([turn])
            self._waiting.discard(episode)
            self._of[episode] = self._of.get(episode, 0.0) + cost
            self.spent += cost

    @property
    def is_spent(self) -> bool:
        """Whether the amount is reached."""
        return self.spent >= self.amount

    def room(self, in_progress: Collection[EpisodeId]) -> int | None:
        """How many more questions may begin, where one in progress takes the mean cost of the finished ones, so that
        the amount is exceeded by at most one question; None for any number."""
        if self.amount == math.inf:
            return None
        unfinished = [self._of[episode] for episode in self._waiting.union(in_progress) if episode in self._of]
        finished = len(self._of) - len(unfinished)
        least = 0 if in_progress else 1
        if not finished:
            return least
        mean = max((self.spent - sum(unfinished)) / finished, 1e-12)  # a price may be 0
        reserved = sum(max(0.0, mean - self._of.get(episode, 0.0)) for episode in in_progress)
        return max(int((self.amount - self.spent - reserved) / mean), least)

    def _cost(self, turns: Sequence[Turn]) -> float:
        return of_answer(turns, self._price).money or 0.0


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
