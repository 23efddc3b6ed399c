"""Begins the environments of questions before their turn comes."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context

from roomscout.agent.state import QuestionState
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.runs.journal import Journal
from roomscout.runs.records import EpisodeId


class Prefetcher:
    """Environments of questions that have not begun, made on one thread, so that turns keep the threads for views.
    Makes no more once their scans fill the library's cache, and none with recorded turns; videos are decoded ahead."""

    def __init__(self, library: SceneLibrary | FilmLibrary, journal: Journal) -> None:
        self._library = library
        self._journal = journal
        self._opened: dict[EpisodeId, Future[ExplorationEnv | None]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="first-views")

    def prepare(self, states: Sequence[QuestionState]) -> None:
        """Make the environments of these questions, which begin next, in the background."""
        library = self._library
        if isinstance(library, FilmLibrary):
            library.load_ahead(state.question for state in states)
            return
        for state in states:
            if state.episode not in self._opened:
                self._opened[state.episode] = self._thread.submit(copy_context().run, self._open, state, library)

    def take(self, state: QuestionState) -> ExplorationEnv | None:
        """The environment of a question that begins now; None if it is still to be made. Raises what `reset` raises."""
        future = self._opened.pop(state.episode, None)
        return None if future is None or future.cancel() else future.result()

    def close(self) -> None:
        """Make no more; waits for the one that is being made."""
        self._thread.shutdown(cancel_futures=True)

    def _open(self, state: QuestionState, library: SceneLibrary) -> ExplorationEnv | None:
        if self._journal.has_turns(state.episode):
            return None
        finished = [future for future in list(self._opened.values()) if future.done() and not future.cancelled()]
        environments = [future.result() for future in finished if not future.exception()]
        scenes = {id(env.scene): env.scene for env in environments if env is not None}
        if scenes and sum(scene.nbytes for scene in scenes.values()) >= library.cache_bytes:
            return None
        return state.opened(library)
