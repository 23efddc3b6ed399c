"""Who goes next: cohorts of questions, first in lockstep batches, then one question at a time."""

from collections import deque
from collections.abc import Iterable

from agent.state import QuestionState


class Scheduler:
    """Hands out batches of questions; knows nothing of models, prompts or files.

    A cohort of `batch_size` questions does its turns below `max_batched_turns` in lockstep, then its later turns
    one question at a time; then the next cohort begins. A batch holds questions at the same turn only, so that no
    question of a cohort gets ahead of another in the batched phase, whatever turn each was resumed from.
    """

    def __init__(self, questions: Iterable[QuestionState], batch_size: int, max_batched_turns: int):
        self.batch_size = batch_size
        self.max_batched_turns = max_batched_turns
        self._waiting = deque(questions)
        self._cohort: list[QuestionState] = []

    def next_cohort(self) -> list[QuestionState]:
        """The next questions to begin with, at most `batch_size`; empty when none is left."""
        self._cohort = [self._waiting.popleft() for _ in range(min(self.batch_size, len(self._waiting)))]
        return list(self._cohort)

    def next_batch(self) -> list[QuestionState]:
        """The questions of this cohort that share the next batched turn; empty when that phase is over."""
        due = [state for state in self._cohort if not state.is_final and state.turn < self.max_batched_turns]
        turn = min((state.turn for state in due), default=0)
        return [state for state in due if state.turn == turn][: self.batch_size]

    def unfinished(self) -> list[QuestionState]:
        """The questions of this cohort that go on alone once its batched turns are done, in order."""
        return [state for state in self._cohort if not state.is_final]

    def shrink(self, failed_batch: int) -> int:
        """Halve the batch size after a batch of `failed_batch` did not fit; returns the new size, at least 1."""
        self.batch_size = max(1, failed_batch // 2)
        return self.batch_size
