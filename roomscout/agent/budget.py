"""What a run may cost: the price of its model, what --plan expects, and the budget that stops it."""

import logging
from collections.abc import Iterable
from pathlib import Path
from threading import Lock

from roomscout.agent.config import ConfigError, RunConfig
from roomscout.agent.timing import (
    ConversationSize,
    expected_run_shape,
    longest_run_shape,
    repeated_tokens,
    sent_tokens,
)
from roomscout.base.wording import named
from roomscout.runs.costs import of_answer
from roomscout.runs.prices import Price, in_money, read_price
from roomscout.runs.reader import RunReader
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


def price_of(config: RunConfig, folder: Path | None) -> Price | None:
    """The price of a run's model by --prices; None without it.

    A run that resumes in its `folder` reads the file again, and keeps the price that it has if the file is gone. Raises
    ConfigError.
    """
    path = config.output.prices
    recorded = RunReader(folder).facts.price if folder is not None else None
    if path is None or (recorded is not None and not path.exists()):
        return recorded
    try:
        return read_price(path, config.model.model)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def cost_lines(config: RunConfig, episodes: int, size: ConversationSize, price: Price | None) -> list[str]:
    """What --plan expects a run of so many answers to cost, and how far its budget goes; nothing without a price."""
    if price is None:
        return []
    anytime, amounts = config.controls.anytime, []
    for shape in (expected_run_shape(size), longest_run_shape(size)):
        (read, written), repeated = sent_tokens(size, shape, anytime), repeated_tokens(size, shape, anytime)
        for cached in (0, repeated):
            amounts.append(episodes * price.of(read - cached, cached, written))
    expected, with_cache, most, most_with_cache = map(in_money, amounts)
    lines = [
        f"Cost: about {expected}, at most {most}; if a cache serves all that repeats, about {with_cache}, at most "
        f"{most_with_cache}"
    ]
    if (budget := config.output.budget) is None or not amounts[0]:
        return lines
    reached = int(episodes * budget / amounts[0])
    far = "more than the cost expected" if reached >= episodes else f"about {reached:,} of {episodes:,} answers"
    return [*lines, f"{named(budget=budget)}: {far}"]
