"""The turns of a question: begin, decide, move, render, record."""

import logging
import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from threading import Event, Lock
from typing import Any

from roomscout.agent.actions.space import ActionSpaceError
from roomscout.agent.policies import Decision, Policy, PolicyError
from roomscout.agent.state import QuestionState
from roomscout.base.loading import raised
from roomscout.base.text import counted
from roomscout.data.pictures import QuestionPictureError
from roomscout.data.question import AnswerKindError
from roomscout.data.scans import ScanNotFound
from roomscout.data.video_frames import VideoError, VideoNotFound
from roomscout.envs.actions import ALL_LIMITS, CameraAction
from roomscout.envs.environment import ExplorationEnv
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.models import ModelError, Reply
from roomscout.rendering.renderers import RenderError
from roomscout.rendering.scene import SceneError
from roomscout.runs import RunError
from roomscout.runs.costs import of_answer
from roomscout.runs.journal import Journal
from roomscout.runs.prices import Price
from roomscout.runs.records import EpisodeId, ForcedAnswer, ScanRecord, Turn

log = logging.getLogger(__name__)

FAILED_PART = {
    VideoNotFound: "video",
    VideoError: "video",
    QuestionPictureError: "picture",
    ScanNotFound: "scan",
    SceneError: "scene",
    RenderError: "render",
    ModelError: "model",
    AnswerKindError: "answer kind",
    ActionSpaceError: "action space",
}
"""The part named in a failed row, by error. Only these errors fail a question; all others stop the run."""

DECIDING = (ModelError, AnswerKindError, ActionSpaceError)
"""The errors of a decision that fail only their question."""

VIEW_THREADS = min(8, os.cpu_count() or 1)
"""The number of views rendered in parallel."""
POLICY_CALLERS = (__name__, "contextlib")
"""The modules of the frames between the loop and a policy's own code."""


class Budget:
    """How much of an amount the answers of a run have spent; several threads may spend at once."""

    def __init__(
        self,
        price: Price,
        amount: float = math.inf,
        taken: Mapping[EpisodeId, Sequence[Turn]] | None = None,
        done: Collection[EpisodeId] = (),
    ):
        """`taken` are the turns of earlier processes of the run, and `done` those of its answers that they finished."""
        self.amount = amount
        self._price = price
        self._lock = Lock()
        self._of = {episode: self._cost(turns) for episode, turns in (taken or {}).items()}
        self._waiting = self._of.keys() - done
        self.spent = sum(self._of.values())

    def spend(self, episode: EpisodeId, turn: Turn) -> None:
        """Count a finished turn, with the answer that was asked for as if it were the last. Raises RunError if a reply
        comes without the number of its tokens, and there is an amount to keep to."""
        replies = [turn.reply, *([turn.forced.reply] if turn.forced else [])]
        if self.amount < math.inf and any(reply.text and not reply.prompt_tokens for reply in replies):
            raise RunError(
                "the budget cannot be kept: the server does not say how many tokens it read for a reply (usage); use "
                "one that does, or resume without a budget"
            )
        with self._lock:
            cost = self._cost([turn])
            self._waiting.discard(episode)
            self._of[episode] = self._of.get(episode, 0.0) + cost
            self.spent += cost

    @property
    def is_spent(self) -> bool:
        """Whether the amount is reached."""
        return self.spent >= self.amount

    def room(self, in_progress: Collection[EpisodeId]) -> int | None:
        """How many more questions may begin, where one in progress takes the mean cost of the finished ones, so that
        the amount is exceeded by at most one question; None for any number."""
        if self.amount == math.inf:
            return None
        unfinished = [self._of[episode] for episode in self._waiting.union(in_progress) if episode in self._of]
        if not (finished := len(self._of) - len(unfinished)):
            return 0 if in_progress else 1
        mean = max((self.spent - sum(unfinished)) / finished, 1e-12)  # a price may be 0
        reserved = sum(max(0.0, mean - self._of.get(episode, 0.0)) for episode in in_progress)
        return max(int((self.amount - self.spent - reserved) / mean), 0 if in_progress else 1)

    def _cost(self, turns: Sequence[Turn]) -> float:
        return of_answer(turns, self._price).money or 0.0


class EngineClock:
    """Measures how long an engine has `waited` before its last call, for views and else; for one thread."""

    def __init__(self) -> None:
        self._since = time.perf_counter()
        self._views = 0.0
        self.waited: dict[str, float] = {}

    @contextmanager
    def waiting_for_views(self) -> Iterator[None]:
        """Count the time inside this block as waiting for views."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._views += time.perf_counter() - started

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let the engine work inside this block."""
        waited = time.perf_counter() - self._since
        views = min(self._views, waited)
        self._views = 0.0
        self.waited = {"wait_views": round(views, 4), "wait_other": round(waited - views, 4)}
        try:
            yield
        finally:
            self._since = time.perf_counter()


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
        if self._journal.turns_of(state.episode):
            return None
        done = [each for each in list(self._opened.values()) if each.done() and not each.cancelled()]
        scenes = {id(env.scene): env.scene for each in done if not each.exception() and (env := each.result())}
        if scenes and sum(scene.nbytes for scene in scenes.values()) >= library.cache_bytes:
            return None
        return state.opened(library)


@dataclass(frozen=True)
class Run:
    """Shared by all turns: the scans, the policy, the journal, and a thread pool for rendering. With `anytime`, each
    turn that does not end its question also records what would be answered if it did. `turn_begins` is called before
    each question of a batch takes a turn, again if the turn is taken again after an error. `turn_taken` is called after
    each turn, also for those that a resumed question has taken before. `budget` counts what turns cost; None without a
    price. `clock` measures how long an engine waits that takes batches. `prefetcher` prepares the questions that begin
    next."""

    library: SceneLibrary | FilmLibrary
    policy: Policy
    log: Journal
    pool: Executor
    anytime: bool = False
    turn_begins: Callable[[QuestionState], None] = lambda state: None
    turn_taken: Callable[[], None] = lambda: None
    budget: Budget | None = None
    clock: EngineClock = field(default_factory=EngineClock)
    prefetcher: Prefetcher | None = None


@contextmanager
def failing(state: QuestionState) -> Iterator[None]:
    """Fail the question if its scan, the renderer or the model raises an error inside this block."""
    try:
        yield
    except tuple(FAILED_PART) as error:
        part = next(part for kind, part in FAILED_PART.items() if isinstance(error, kind))
        state.fail(part, str(error))


def initialize_question_state(state: QuestionState, run: Run) -> None:
    """Place the question in its scene at view 0, and replay the recorded turns, if any. Fails the question if its scan
    cannot be loaded or its first view cannot be rendered."""
    with failing(state):
        recorded = run.log.turns_of(state.episode)
        if not recorded:
            with run.clock.waiting_for_views():
                env = run.prefetcher.take(state) if run.prefetcher else None
                if env is None:
                    state.reset(run.library)
                else:
                    state.begin(env)
            run.policy.begin(state)
            return
        state.reset(run.library, recorded[0])
        run.policy.begin(state)
        for turn, following in zip_longest(recorded, recorded[1:]):
            shots = following.shots if following else ()
            state.record(turn, None if turn.move is None else state.environment.resume(turn.move, shots))
            run.turn_taken()
        run.policy.recall(state)
        at_once = state.rules.at_once or state.rules.video is not None
        if (
            said := state.recorded_messages()
        ) or not at_once:  # the one message of all views or frames is not built again
            run.log.messages(state.episode, said)


def run_batched_turn(states: Sequence[QuestionState], run: Run) -> None:
    """Take one turn of all these questions, each on a thread once it is decided, while a policy that `decides_each` is
    busy with others. Raises the errors of DECIDING (including OutOfMemory), with such a policy perhaps after some have
    advanced, and PolicyError for any other of the policy; a RenderError fails only its own question."""
    for state in states:
        run.turn_begins(state)
    asked = [state for state in states if state.asks]
    batch = tuple(state.question.id for state in states)
    pending = list[Future[None]]()
    early = run.policy.decides_each and not run.anytime and len(asked) == len(states)

    def go_on(state: QuestionState, decide: Callable[[], Decision], forced: ForcedAnswer | None = None) -> None:
        pending.append(run.pool.submit(copy_context().run, take_turn, state, decide, run, batch, forced, waited))

    try:
        with run.clock.call(), policy_errors(run.policy, "decide", asked):
            waited = {} if run.policy.concurrent else run.clock.waited
            if early:
                run.policy.decide_each(
                    asked, lambda at, decide: go_on(asked[at], partial(ruled, asked[at], decide, run))
                )
            else:
                found = run.policy.decide(asked) if asked else []
        if not early:
            of_asked = iter(checked(found, run.policy, "decide", asked))
            made = [next(of_asked) if state.asks else Decision(CameraAction()) for state in states]
            applied = [state.apply_rules(decision) for state, decision in zip(states, made, strict=True)]
            decisions = checked(applied, run.policy, "decide", states, final=False)
            for state, decision, forced in zip(states, decisions, forced_answers(states, decisions, run), strict=True):
                go_on(state, partial(replace, decision), forced)
    finally:
        with run.clock.waiting_for_views():
            wait(pending)
        for future in pending:
            future.result()


def ruled(state: QuestionState, decide: Callable[[], Decision], run: Run) -> Decision:
    """One question's decision under the rules of the run; raises the errors of DECIDING, and PolicyError."""
    with policy_errors(run.policy, "decide", [state]):
        decision = decide()
    return checked([state.apply_rules(decision)], run.policy, "decide", [state], final=False)[0]


def take_turn(
    state: QuestionState,
    decide: Callable[[], Decision],
    run: Run,
    batch: tuple[str, ...],
    forced: ForcedAnswer | None,
    waited: Mapping[str, float],
) -> None:
    """Take and record one question's turn, and prepare the next; fails the question as `failing` does."""
    with failing(state):
        turn = state.take_turn(decide(), batch, forced)
        record_turn(state, run, waited)
        run.turn_taken()
        if run.budget is not None:
            run.budget.spend(state.episode, turn)
        log_turn(state, turn)
        if not (state.is_final or run.policy.concurrent) and state.asks:
            run.policy.prepare(state)


def record_turn(state: QuestionState, run: Run, waited: Mapping[str, float]) -> None:
    """Record a question's last turn, with what the engine `waited` before it, and with turn 0 its scan file, if any."""
    turn = state.turns[-1]
    turn = replace(turn, seconds=replace(turn.seconds, **waited))
    if turn.turn == 0 and (file := run.library.scan_file(state.question)) is not None:
        turn = replace(turn, scan=ScanRecord(str(file.path), file.sha256, **state.question.frame.columns))
    run.log.turn(state.episode, turn, state.recorded_messages())


def forced_answers(
    states: Sequence[QuestionState], decisions: Sequence[Decision], run: Run
) -> list[ForcedAnswer | None]:
    """What each question would be answered if this turn were its last (--anytime); None for one that ends."""
    continuing = [
        state for state, each in zip(states, decisions, strict=True) if run.anytime and not state.ends_with(each.action)
    ]
    if not continuing:
        return [None] * len(states)
    with run.clock.call(), policy_errors(run.policy, "answer_now", continuing):
        found = run.policy.answer_now(continuing)
    found = checked(found, run.policy, "answer_now", continuing, final=True)
    batch = tuple(state.question.id for state in continuing)
    answers: dict[EpisodeId, ForcedAnswer] = {}
    for state, each in zip(continuing, found, strict=True):
        answer = state.as_scored(each.action.answer, state.observation.pose) if each.error is None else None
        answers[state.episode] = ForcedAnswer(answer, state.question.score(answer), each.reply, batch)
    return [answers.get(state.episode) for state in states]


def log_turn(state: QuestionState, turn: Turn) -> None:
    """Log a turn's reply, if there is one, and its action with what came of it, such as "forward 1 m; moved 0.30 m"."""
    said = turn.reply.text.strip().split("\n")
    form = "[%s] turn %d said: %s" + "\n    %s" * (len(said) - 1) + "\n  -> %s"  # each line is an argument
    if said == [""]:
        said, form = [], "[%s] turn %d: %s"
    ended_without_answer = turn.is_final and not turn.action.done
    happened = [
        turn.parse_error,
        turn.uses_in_words,
        None if turn.requested is None else f"asked for: {turn.requested.in_words}",
        "no turns left" if ended_without_answer else turn.action.in_words,
        turn.camera_in_words if turn.stopped else None,
    ]
    if turn.forced is not None:
        happened.append(f"if it were the last turn: {turn.forced.answer or 'no answer'}")
    log.debug(form, state.label, turn.turn, *said, "; ".join(filter(None, happened)))


@contextmanager
def policy_errors(policy: Policy, method: str, states: Sequence[QuestionState]) -> Iterator[None]:
    """Raise PolicyError, which names the policy's method and the questions, for any error but those of DECIDING."""
    try:
        yield
    except DECIDING:
        raise
    except Exception as error:
        where = source_of_decisions(policy, method, states)
        raise PolicyError(f"{where}, raised {raised(error)}") from error


def checked(
    found: Any, policy: Policy, method: str, states: Sequence[QuestionState], final: bool | None = None
) -> list[Decision]:
    """What a policy's method returned, if it is a valid decision for each question; else raises PolicyError. Answers
    are checked if `final` is not None: if False, only those that end their question."""
    if not isinstance(found, list | tuple) or len(found) != len(states):
        wrong = f"{_shown(found)} instead of a list with a Decision for each of {counted(len(states), 'question')}"
    else:
        reasons = [(_why_not(each, state, final), state.label) for each, state in zip(found, states, strict=True)]
        wrong = next((f"{why} for {label}" for why, label in reasons if why), "")
    if wrong:
        raise PolicyError(f"{source_of_decisions(policy, method, states)}, returned {wrong}")
    return list(found)


def _why_not(decision: object, state: QuestionState, final: bool | None) -> str:
    """What a policy returned instead of a valid Decision, in words; empty for a valid one."""
    if not isinstance(decision, Decision):
        return f"{_shown(decision)} instead of a Decision"
    for name, kind in _TYPES.items():
        if not isinstance(value := attrgetter(name)(decision), kind):
            return f"a Decision whose {name} is {_shown(value)} instead of {getattr(kind, '__name__', kind)}"
    action = decision.action
    question = state.question
    if final is None:
        return ""
    if action.answer is None:
        return "an action that is done without an answer" if action.done else ""
    if (final or state.ends_with(action)) and question.parse_answer(action.answer) is None:
        return f"an action of which {question.why_invalid(repr(action.answer))}"
    return ""


_TYPES: dict[str, Any] = {
    "action": CameraAction,
    "reply": Reply,
    **{f"action.{name}": int | float for name in ALL_LIMITS},
    "action.answer": str | None,
    "action.done": bool,
}
"""The types that run folders hold; numpy's float32 or bool, for example, cannot be written as JSON."""


def _shown(value: object) -> str:
    return "None" if value is None else f"{repr(value)[:80]} ({type(value).__name__})"


def source_of_decisions(policy: Policy, method: str, states: Sequence[QuestionState]) -> str:
    """The method that was called and the first questions of its batch, for error messages."""
    shown = ", ".join(f"{state.label} (id {state.question.id})" for state in states[:3])
    more = len(states[3:])
    return f"{type(policy).__name__}.{method}, asked about {shown}{f' and {more} more' if more else ''}"


def complete_question_sequentially(state: QuestionState, run: Run, stop: Event | None = None) -> None:
    """Take all remaining turns of a question, each as a batch of one, until `stop` is set."""
    with failing(state):
        while not state.is_final and not (stop and stop.is_set()):
            run_batched_turn([state], run)
