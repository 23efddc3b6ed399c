"""`VectorEnv`: many episodes at once, with their views drawn in parallel."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Self

from roomscout.agent.turns import FAILED_PART, VIEW_THREADS
from roomscout.data.questions import Question
from roomscout.models import Reply
from roomscout.training.environment import EnvError, Message, RoomEnv, Step


class VectorEnv:
    """`n` environments of `RoomEnv` with common scans and renderer; a scan's or view's error ends its own episode."""

    def __init__(self, n: int, *arguments: Any, **settings: Any) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise EnvError(f"n takes the number of environments, 1 or more, got {n!r}")
        first = RoomEnv(*arguments, **settings)
        self.envs = [first, *(first.another() for _ in range(1, n))]
        self.failures: list[str | None] = [None] * n
        """Why the episode of an environment could not begin, None if it did."""
        self._pool = ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="view")

    def __len__(self) -> int:
        return len(self.envs)

    def reset(
        self,
        questions: Sequence[Question | str | int | None] | None = None,
        seeds: Sequence[int | None] | None = None,
        only: Sequence[int] | None = None,
    ) -> list[list[Message]]:
        """Begin episodes, in all or in `only` these environments, with `questions` and `seeds` as for `RoomEnv.reset`;
        returns the first messages, [] with `failures` for one that cannot. Raises EnvError or QuestionError."""
        where = list(range(len(self.envs))) if only is None else list(only)
        chosen, drawn = self._each(questions, where, "questions"), self._each(seeds, where, "seeds")
        asked = [
            self.envs[place]._world.draw(seed) if question is None else question
            for place, question, seed in zip(where, chosen, drawn, strict=True)
        ]
        return self._map(self._begin, where, asked)

    def step(self, replies: Sequence[str | Reply | None] | Mapping[int, str | Reply]) -> list[Step]:
        """Take a turn in each environment that has a reply: a list, with None for none, or replies by position. The
        Step of an environment without a reply has no messages and no reward. Raises EnvError as `RoomEnv.step`."""
        given = [replies.get(place) for place in range(len(self))] if isinstance(replies, Mapping) else replies
        where = list(range(len(self.envs)))
        return self._map(self._step, where, self._each(given, where, "replies"))

    def close(self) -> None:
        """End all episodes and the renderer."""
        self._pool.shutdown()
        for env in self.envs:
            env.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _begin(self, place: int, question: Question | str | int) -> list[Message]:
        self.failures[place] = None
        try:
            return self.envs[place].reset(question)
        except tuple(FAILED_PART) as error:
            self.failures[place] = str(error)
            return []

    def _step(self, place: int, reply: str | Reply | None) -> Step:
        if reply is not None:
            return self.envs[place].step(reply)
        began = self.failures[place] is None
        return Step([], 0.0, not began or self.envs[place].state.is_final, {})

    def _map(self, call: Callable[[int, Any], Any], where: Sequence[int], values: Sequence[Any]) -> list[Any]:
        pending = [self._pool.submit(copy_context().run, call, *each) for each in zip(where, values, strict=True)]
        return [future.result() for future in pending]

    @staticmethod
    def _each(values: Sequence[Any] | None, where: Sequence[int], name: str) -> Sequence[Any]:
        """One value for each environment; raises EnvError."""
        if values is None:
            return [None] * len(where)
        if isinstance(values, str) or len(values) != len(where):
            raise EnvError(f"{name} takes a list with one entry for each of {len(where)} environments")
        return values
