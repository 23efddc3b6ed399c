"""The interface through which the loop records turns and results, and its in-memory implementation."""

from collections.abc import Callable, Sequence
from typing import Protocol

from runs.records import ResultRow, Turn


class Journal(Protocol):
    """Records turns and results as they finish. Identifies questions by number, from 1.

    `runs.writer.RunWriter` writes them to a run folder, `MemoryJournal` keeps them in memory.
    """

    @property
    def rows(self) -> list[ResultRow]:
        """The result rows so far, by question number."""

    def is_done(self, question_id: str) -> bool:
        """Whether this question has a result."""

    def turns_of(self, number: int) -> list[Turn]:
        """The finished turns of a question in progress, with their views in memory."""

    def turn(
        self,
        number: int,
        turn: Turn,
        png: Callable[[], bytes],
        messages: Sequence[dict[str, str]],
    ) -> None:
        """Record a finished turn, its view, which `png` encodes, and the conversation so far."""

    def messages(self, number: int, messages: Sequence[dict[str, str]]) -> None:
        """Record a question's conversation so far."""

    def result(self, row: ResultRow) -> None:
        """Record the result of a finished question."""


class MemoryJournal:
    """Keeps turns, views, conversations and results in memory."""

    def __init__(self) -> None:
        self._rows: dict[str, ResultRow] = {}
        self._turns: dict[int, list[Turn]] = {}
        self._conversations: dict[int, Sequence[dict[str, str]]] = {}

    @property
    def rows(self) -> list[ResultRow]:
        """The result rows so far, by question number."""
        return sorted(self._rows.values(), key=lambda row: row.number)

    def is_done(self, question_id: str) -> bool:
        """Whether this question has a result."""
        return question_id in self._rows

    def turns_of(self, number: int) -> list[Turn]:
        """The finished turns of a question in progress, with their views in memory."""
        return list(self._turns.get(number, ()))

    def conversation_of(self, number: int) -> Sequence[dict[str, str]]:
        """The conversation of a question so far; empty without a model."""
        return self._conversations.get(number, ())

    def turn(
        self,
        number: int,
        turn: Turn,
        png: Callable[[], bytes],
        messages: Sequence[dict[str, str]],
    ) -> None:
        """Keep a finished turn, its view and the conversation so far."""
        self._turns.setdefault(number, []).append(turn)
        self._conversations[number] = messages

    def messages(self, number: int, messages: Sequence[dict[str, str]]) -> None:
        """Keep a question's conversation so far."""
        self._conversations[number] = messages

    def result(self, row: ResultRow) -> None:
        """Keep the result of a finished question."""
        self._rows[row.id] = row
