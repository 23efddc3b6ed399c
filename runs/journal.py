"""The interface through which the loop records turns and results, and its in-memory implementation."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from runs.records import ResultRow, TurnRecord


@dataclass(frozen=True)
class SeenTurn:
    """A finished turn and its view, (H, W, 3) uint8."""

    turn: TurnRecord
    view: np.ndarray


class Journal(Protocol):
    """Records turns and results as they finish. Identifies questions by number, from 1.

    `runs.writer.RunWriter` writes them to a run folder, `MemoryJournal` keeps them in memory.
    """

    @property
    def rows(self) -> list[ResultRow]:
        """The result rows so far, by question number."""

    def is_done(self, question_id: str) -> bool:
        """Whether this question has a result."""

    def turns_of(self, number: int) -> list[SeenTurn]:
        """The finished turns of a question."""

    def turn(
        self,
        number: int,
        turn: TurnRecord,
        view: np.ndarray,
        png: Callable[[], bytes],
        messages: Sequence[dict[str, str]],
    ) -> None:
        """Record a finished turn, its view (H, W, 3) uint8 with its PNG encoder, and the conversation so far."""

    def messages(self, number: int, messages: Sequence[dict[str, str]]) -> None:
        """Record a question's conversation so far."""

    def result(self, row: ResultRow) -> None:
        """Record the result of a finished question."""


class MemoryJournal:
    """Keeps turns, views and results in memory, but not conversations."""

    def __init__(self) -> None:
        self._rows: dict[str, ResultRow] = {}
        self._turns: dict[int, list[SeenTurn]] = {}

    @property
    def rows(self) -> list[ResultRow]:
        """The result rows so far, by question number."""
        return sorted(self._rows.values(), key=lambda row: row.number)

    def is_done(self, question_id: str) -> bool:
        """Whether this question has a result."""
        return question_id in self._rows

    def turns_of(self, number: int) -> list[SeenTurn]:
        """The finished turns of a question."""
        return list(self._turns.get(number, ()))

    def turn(
        self,
        number: int,
        turn: TurnRecord,
        view: np.ndarray,
        png: Callable[[], bytes],
        messages: Sequence[dict[str, str]],
    ) -> None:
        """Keep a finished turn and its view."""
        self._turns.setdefault(number, []).append(SeenTurn(turn, view))

    def messages(self, number: int, messages: Sequence[dict[str, str]]) -> None:
        """Does nothing."""

    def result(self, row: ResultRow) -> None:
        """Keep the result of a finished question."""
        self._rows[row.id] = row
