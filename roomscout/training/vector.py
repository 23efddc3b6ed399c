"""`VectorEnv`: many episodes at once, with their views drawn in parallel."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Self

from roomscout.agent.turns import FAILED_PART, VIEW_THREADS
from roomscout.data.questions import Question
from roomscout.models import Reply
from roomscout.training.environment import EnvError, Message, RoomEnv, Step, is_whole


class VectorEnv:
    """`n` environments of `RoomEnv` with common scans and renderer; a scan's or view's error ends its own episode."""

    def __init__(self, n: int, *arguments: Any, **settings: Any) -> None:
        if isinstance(n, bool) or not isinstance(n, int) or n < 1:
            raise EnvError(f"n takes the number of environments, 1 or more, got {n!r}")
        first = RoomEnv(*arguments, **settings)
        self.envs = [first, *(first.another() for _ in range(1, n))]
        self.failures: list[str | None] = [None] * n  # why the episode of an environment could not begin
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
        where = list(range(len(self))) if only is None else self._places(only, "only")
        chosen = self._each(questions, where, "questions")
        drawn = self._each(seeds, where, "seeds")
        world = self.envs[0]._world
        which = [world.draw(seed) if q is None else q for q, seed in zip(chosen, drawn, strict=True)]
        questions_here = [world.known(question) for question in which]  # all are checked before any begins
        return self._map(self._begin, where, questions_here)

    def step(self, replies: Sequence[str | Reply | None] | Mapping[int, str | Reply]) -> list[Step]:
        """Take a turn in each environment that has a reply: a list, with None for none, or replies by position. A Step
        without a reply has no messages and no reward. Raises EnvError as `RoomEnv.step`, before any episode moves."""
        where = list(range(len(self)))
        if isinstance(replies, Mapping):
            self._places(replies, "replies")
            by_place: Sequence[str | Reply | None] = [replies.get(place) for place in where]
        else:
            replies = () if replies is None else replies  # as many as environments, not none at all
            by_place = self._each(replies, where, "replies")
        for place, reply in enumerate(by_place):
            if reply is not None and self.failures[place] is None:
                self.envs[place].require_can_take(reply)
            elif reply is not None:
                raise EnvError(f"the episode of environment {place} could not begin ({self.failures[place]})")
        return self._map(self._step, where, by_place)

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
        rows = zip(where, values, strict=True)
        pending = [self._pool.submit(copy_context().run, call, place, value) for place, value in rows]
        return [future.result() for future in pending]

    def _places(self, values: object, name: str) -> list[int]:
        """Different positions of environments; raises EnvError."""
        places: list[Any] = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
        for place in places:
            if not is_whole(place) or not 0 <= place < len(self):
                raise EnvError(f"{name} takes positions from 0 to {len(self) - 1}, got {place!r}")
        if len(set(places)) < len(places):
            raise EnvError(f"{name} has the same position twice: {places}")
        return places

    @staticmethod
    def _each(values: Sequence[Any] | None, where: Sequence[int], name: str) -> Sequence[Any]:
        """One value for each environment; raises EnvError."""
        if values is None:
            return [None] * len(where)
        if isinstance(values, str) or not isinstance(values, Sequence) or len(values) != len(where):
            raise EnvError(f"{name} takes a list with one entry for each of {len(where)} environments")
        return values
