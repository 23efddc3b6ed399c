"""Who goes next: cohorts of questions, first in lockstep batches, then a few at a time; or one batch kept full."""

from collections import deque
from collections.abc import Iterable, Sequence

from agent.state import QuestionState


class Scheduler:
    """Hands out batches of questions; knows nothing of models, prompts or files.

    A cohort of `batch_size` questions does its turns below `max_batched_turns` in lockstep, then its later turns
    `concurrency` questions at a time (None: as many as the batch holds); then the next cohort begins. A batch holds
    questions at the same turn only, so that no question of a cohort gets ahead of another in the batched phase,
    whatever turn each was resumed from.

    With `refill` there are no cohorts and no second phase: a waiting question takes the place of one that has ended,
    so a batch is full to the end and holds questions at different turns. Either way a question's own turns are taken
    in order, and questions begin in the order in which they wait.
    """

    def __init__(
        self,
        questions: Iterable[QuestionState],
        batch_size: int,
        max_batched_turns: float,
        refill: bool = False,
        concurrency: int | None = None,
    ):
        self.batch_size = batch_size
        self.max_batched_turns = max_batched_turns
        self.refill = refill
        self.concurrency = concurrency
        self._waiting = deque(questions)
        self._begun: list[QuestionState] = []

    def admit(self) -> list[QuestionState]:
        """The waiting questions that may begin now: a cohort when the last one is over; with refill, one per place."""
        self._begun = self.begun
        places = self.batch_size - len(self._begun) if self.refill or not self._begun else 0
        admitted = [self._waiting.popleft() for _ in range(min(max(places, 0), len(self._waiting)))]
        self._begun += admitted
        return admitted

    @property
    def begun(self) -> list[QuestionState]:
        """The questions of the cohort that are not finished."""
        return [state for state in self._begun if not state.is_final]

    @property
    def has_work(self) -> bool:
        """Whether any question is waiting or not finished."""
        return bool(self._waiting) or bool(self.begun)

    def upcoming(self) -> list[QuestionState]:
        """The questions that will be admitted next, at most a batch of them."""
        return [self._waiting[i] for i in range(min(self.batch_size, len(self._waiting)))]

    def next_batch(self) -> list[QuestionState]:
        """The questions that share the next batched turn; empty when that phase is over for this cohort."""
        due = [state for state in self.begun if state.turn < self.max_batched_turns]
        if not self.refill:
            turn = min((state.turn for state in due), default=0)
            due = [state for state in due if state.turn == turn]
        return due[: self.batch_size]

    def next_few(self) -> list[QuestionState]:
        """The questions that continue together after their cohort's batched turns: the first `at_a_time`."""
        return self.begun[: self.at_a_time]

    @property
    def at_a_time(self) -> int:
        """How many questions continue together after the batched turns."""
        return min(self.concurrency or self.batch_size, self.batch_size)

    def shrink(self, failed: Sequence[QuestionState]) -> int:
        """Halve the batches of the phase whose batch `failed` did not fit; returns their new size, at least 1.

        The second phase's conversations are longer, so that what does not fit there says nothing about the first.
        """
        size = max(1, len(failed) // 2)
        if any(state.turn < self.max_batched_turns for state in failed):
            self.batch_size = size
        else:
            self.concurrency = size
        return size
