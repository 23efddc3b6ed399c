"""Schedules questions: in cohorts, first in lockstep and then a few at a time, or in one batch that is kept full."""

import math
from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import InitVar, dataclass
from itertools import islice

from roomscout.agent.state import QuestionState


@dataclass
class Scheduler:
    """Selects the questions of each batch. Knows nothing of models, prompts or files.

    A cohort of `batch_size` questions takes its turns below `max_batched_turns` in lockstep, then its later turns
    `concurrency` questions at a time (None: all that fit in a batch). Then the next cohort begins. In the batched phase
    all questions of a batch are at the same turn: after a resume, those that are behind catch up first.

    With `concurrency` None the last cohort does not wait: its questions take the places that the cohort before it
    leaves, at mixed turns. A few left over after whole cohorts would otherwise cost as many calls as a whole one.

    With `refill` there are no cohorts and no second phase. A waiting question replaces each finished one, so the batch
    stays full while questions wait, and its questions are at different turns. In both modes a question's turns are in
    order, and questions begin in the given order.

    With lanes (`Policy.lane`), a question begins only once fewer of its lane are in progress than the lane takes; those
    of other lanes overtake it.

    `more` gives further questions, of which so many can begin now, where others take from the same queue; none once
    nothing is left. It is asked when the waiting ones are too few.

    A batch that ran out of memory limits batches at its latest turn and at later ones, where conversations are as long
    or longer. Questions at earlier turns, such as those of the next cohort, still fill a batch.
    """

    questions: InitVar[Iterable[QuestionState]]  # those that wait, in the order in which they begin
    batch_size: int  # the most questions of a batch
    max_batched_turns: float  # how many turns a cohort takes in lockstep
    refill: bool = False  # whether a waiting question replaces each finished one
    concurrency: int | None = None  # how many questions take their later turns together; None for a whole batch
    lane: Callable[[QuestionState], tuple[Hashable, int] | None] = lambda state: None  # see `Policy.lane`
    more: Callable[[int], Iterable[QuestionState]] | None = None  # gives further questions, at most so many

    def __post_init__(self, questions: Iterable[QuestionState]) -> None:
        self._waiting = deque(questions)
        self._begun = list[QuestionState]()
        self._limits = dict[int, int]()
        self._cohort, self._last_joined = 0, False

    def admit(self) -> list[QuestionState]:
        """Admit the next cohort once the last is finished; with refill, and of the last cohort, one per free place."""
        self._begun = self.begun
        is_last = self.more is None and len(self._waiting) <= self.batch_size
        joins = self.refill or (self.concurrency is None and is_last)
        places = self._most(self._begun) - len(self._begun) if joins or not self._begun else 0
        if self.more is not None and (missing := places - len(self._waiting)) > 0:
            found = list(self.more(missing))
            self._waiting.extend(found)
            self.more = self.more if found else None
        admitted = list[QuestionState]()
        overtaken = list[QuestionState]()
        busy = Counter(map(self.lane, self._begun))
        while self._waiting and len(admitted) < places:
            state = self._waiting.popleft()
            lane = self.lane(state)
            (admitted if lane is None or busy[lane] < lane[1] else overtaken).append(state)
            busy[lane] += 1
        self._waiting.extendleft(reversed(overtaken))
        self._cohort += bool(admitted) and not self._last_joined
        self._last_joined |= bool(admitted and self._begun)
        self._begun += admitted
        return admitted

    @property
    def begun(self) -> list[QuestionState]:
        """The unfinished questions of the cohort."""
        return [state for state in self._begun if not state.is_final]

    @property
    def cohort(self) -> tuple[int, int] | None:
        """Which cohort this is, from 1, and of how many if all are as large as the next one; None with `refill`."""
        later = 0 if self._last_joined else math.ceil(len(self._waiting) / self._most([]))
        return None if self.refill else (self._cohort, self._cohort + later)

    @property
    def has_work(self) -> bool:
        """Whether any question is waiting or in progress."""
        return bool(self._waiting) or bool(self.begun) or self.more is not None

    def upcoming(self) -> list[QuestionState]:
        """The questions to be admitted next, at most one batch."""
        return list(islice(self._waiting, self.batch_size))

    def next_batch(self) -> list[QuestionState]:
        """The questions of the next turn; after the cohort's batched phase its first few, none once all are final."""
        begun = self.begun
        due = [state for state in begun if state.turn < self.max_batched_turns]
        if self._last_joined:
            due = begun
        elif not due:
            due = begun[: self.concurrency]
        elif not self.refill:
            turn = min(state.turn for state in due)
            due = [state for state in due if state.turn == turn]
        return self._fitting(due[: self.batch_size])

    def shrink(self, failed: Sequence[QuestionState]) -> int:
        """Halve batches as long as `failed`, which ran out of memory, or longer; returns the new size, at least 1."""
        size = max(1, len(failed) // 2)
        self._limits[max(state.turn for state in failed)] = size
        return size

    def _most(self, states: Sequence[QuestionState]) -> int:
        """The largest batch for conversations as long as the longest of these."""
        turn = max((state.turn for state in states), default=0)
        return min([self.batch_size, *(size for failed_at, size in self._limits.items() if failed_at <= turn)])

    def _fitting(self, states: list[QuestionState]) -> list[QuestionState]:
        """The most of these states, from the first, that are not more than `_most`."""
        while len(states) > self._most(states):
            states = states[:-1]
        return states
