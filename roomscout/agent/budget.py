"""What a run may cost: the price of its model, what --plan expects, and the budget that stops it."""

import logging
from collections.abc import Iterable
from threading import Lock

from roomscout.runs.costs import of_answer
from roomscout.runs.prices import Price
from roomscout.runs.records import Turn

log = logging.getLogger(__name__)


class Budget:
    """How much of an amount the turns of a run have spent; several threads may spend at once."""

    def __init__(self, amount: float, price: Price, taken: Iterable[Turn] = ()):
        """`taken` are the turns of earlier processes of the run."""
        self.amount, self._price, self._lock = amount, price, Lock()
        self.spent = sum(self._cost(turn) for turn in taken)

    def spend(self, turn: Turn) -> None:
        """Count a finished turn, with the answer that was asked for as if it were the last."""
        with self._lock:
            self.spent += self._cost(turn)

    @property
    def is_spent(self) -> bool:
        """Whether the amount is reached."""
        return self.spent >= self.amount

    def _cost(self, turn: Turn) -> float:
        return of_answer([turn], self._price).money or 0.0
