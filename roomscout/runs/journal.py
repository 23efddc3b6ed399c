"""How the loop records turns and results, and a journal in memory."""

from collections.abc import Sequence
from typing import Protocol

from roomscout.runs.records import EpisodeId, RecordedMessage, ResultRow, Turn


class Journal(Protocol):
    """Records turns and results as they finish: `RunWriter` in a run folder, `MemoryJournal` in memory."""

    _rows: dict[tuple[str, int], ResultRow]  # the last of each answer

    @property
    def rows(self) -> list[ResultRow]:
        """The result rows so far, in the order of their episodes."""
        return sorted(self._rows.values(), key=lambda row: row.episode)

    def is_done(self, question_id: str, sample: int = 1) -> bool:
        """Whether this question has this answer's result."""
        return (question_id, sample) in self._rows

    def has_turns(self, episode: EpisodeId) -> bool:
        """Whether turns of an episode are recorded, which may lack images. Any thread may ask at any time."""

    def turns_of(self, episode: EpisodeId) -> list[Turn]:
        """The finished turns of an episode in progress, with their images in memory; those of an episode that only
        lacks its result may have none."""

    def turn(self, episode: EpisodeId, turn: Turn, messages: Sequence[RecordedMessage]) -> None:
        """Record a finished turn, its images and the conversation so far."""

    def draw(self, episode: EpisodeId, turn: Turn) -> None:
        """Record the images of a turn again, which was recorded before and has lost them."""
        return None

    def messages(self, episode: EpisodeId, messages: Sequence[RecordedMessage]) -> None:
        """Record an episode's conversation so far."""

    def result(self, row: ResultRow) -> None:
        """Record the result of a finished episode."""


def pending_samples(journal: Journal, question_id: str, samples: int) -> list[int]:
    """Which of a question's `samples` answers have no result yet, counted from 1."""
    return [sample for sample in range(1, samples + 1) if not journal.is_done(question_id, sample)]


class MemoryJournal(Journal):
    """Keeps turns, views, conversations and results in memory."""

    def __init__(self) -> None:
        self._rows = {}
        self._turns: dict[EpisodeId, list[Turn]] = {}
        self._conversations: dict[EpisodeId, Sequence[RecordedMessage]] = {}

    def has_turns(self, episode: EpisodeId) -> bool:
        """Whether turns of an episode are recorded."""
        return episode in self._turns

    def turns_of(self, episode: EpisodeId) -> list[Turn]:
        """The finished turns of an episode in progress, with their images in memory."""
        return list(self._turns.get(episode, ()))

    def conversation_of(self, episode: EpisodeId) -> Sequence[RecordedMessage]:
        """The conversation of an episode so far; empty without a model."""
        return self._conversations.get(episode, ())

    def turn(self, episode: EpisodeId, turn: Turn, messages: Sequence[RecordedMessage]) -> None:
        """Keep a finished turn, its images and the conversation so far."""
        self._turns.setdefault(episode, []).append(turn)
        self._conversations[episode] = messages

    def messages(self, episode: EpisodeId, messages: Sequence[RecordedMessage]) -> None:
        """Keep an episode's conversation so far."""
        self._conversations[episode] = messages

    def result(self, row: ResultRow) -> None:
        """Keep the result of a finished episode."""
        self._rows[row.id, row.sample] = row
