"""A turn of many questions: decide, apply the rules of the run, move, render and record."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import zip_longest
from threading import Event
from typing import Any

from roomscout.agent.actions.space import ActionSpaceError
from roomscout.agent.budget import Budget, EngineClock
from roomscout.agent.checks import Failures, checked, checked_maps, policy_errors
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.prefetch import Prefetcher
from roomscout.agent.state import QuestionState
from roomscout.base.interrupts import raise_if_interrupted
from roomscout.data.pictures import QuestionPictureError
from roomscout.data.question import AnswerKindError
from roomscout.data.scans import ScanNotFound
from roomscout.data.video_frames import VideoError, VideoNotFound
from roomscout.envs.actions import CameraAction
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.models import ModelError, OutOfMemory
from roomscout.rendering.renderers import RenderError
from roomscout.rendering.scene import SceneError
from roomscout.runs.beliefs import Belief
from roomscout.runs.journal import Journal
from roomscout.runs.records import EpisodeId, ForcedAnswer, Turn

log = logging.getLogger(__name__)

FAILED_PART: dict[type[Exception], str] = {
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

VIEW_THREADS = min(8, os.cpu_count() or 1)  # the number of views rendered in parallel


@dataclass(frozen=True)
class Run:
    """What all turns of a run share."""

    library: SceneLibrary | FilmLibrary  # the scans and their views, or the films
    policy: Policy  # who decides
    log: Journal  # where turns and results go
    pool: Executor  # the threads that render
    anytime: bool = False
    """Whether each turn that does not end its question also records what would be answered if it did."""
    probes: bool = False  # whether each turn also records where objects are believed to be
    turn_begins: Callable[[QuestionState], None] = lambda state: None
    """Called before each question of a batch takes a turn, again if the turn is taken again after an error."""
    turn_taken: Callable[[], None] = lambda: None
    """Called after each turn, also for those that a resumed question has taken before."""
    budget: Budget | None = None  # counts what turns cost; None without a price
    clock: EngineClock = field(default_factory=EngineClock)  # measures how long an engine waits that takes batches
    prefetcher: Prefetcher | None = None  # prepares the questions that begin next
    failures: Failures = field(default_factory=Failures)  # counts questions that fail in a row

    @property
    def is_spent(self) -> bool:
        """Whether no further turn begins, since the budget is spent."""
        return self.budget is not None and self.budget.is_spent

    def pay(self, decisions: Iterable[Decision | Belief]) -> None:
        """Count what replies cost, as soon as they are there; raises EngineLost if that is not known."""
        if self.budget is not None:
            for decision in decisions:
                self.budget.spend(decision.reply)


@contextmanager
def failing(state: QuestionState) -> Iterator[None]:
    """Fail the question if its scan, the renderer or the model raises an error inside this block."""
    try:
        yield
    except tuple(FAILED_PART) as error:
        raise_if_interrupted()
        part = next(part for kind, part in FAILED_PART.items() if isinstance(error, kind))
        state.fail(part, str(error))


def initialize_question_state(state: QuestionState, run: Run) -> None:
    """Place a question in its scene at view 0, and replay recorded turns; fails it without its scan or first view."""
    with failing(state):
        recorded = run.log.turns_of(state.episode)
        if recorded:
            _replay(state, run, recorded)
            return
        with run.clock.waiting_for_views():
            env = run.prefetcher.take(state) if run.prefetcher else None
            if env is None:
                state.reset(run.library)
            else:
                state.begin(env)
        run.policy.begin(state)


def _replay(state: QuestionState, run: Run, recorded: Sequence[Turn]) -> None:
    """Begin a question at its recorded first view, and take its recorded turns again; draws what they lack."""
    state.reset(run.library, recorded[0])
    run.policy.begin(state)
    for turn, following in zip_longest(recorded, recorded[1:]):
        if not turn.shots:
            run.log.draw(state.episode, replace(turn, shots=state.seen()["shots"]))
        shots = following.shots if following else ()
        after = None if turn.move is None else state.environment.resume(turn.move, shots)
        state.record(turn, after)
        run.turn_taken()
    run.policy.recall(state)
    messages = state.recorded_messages()
    if messages or not (state.rules.at_once or state.rules.video):  # one message of everything is not built again
        run.log.messages(state.episode, messages)


def run_batched_turn(states: Sequence[QuestionState], run: Run) -> None:
    """Take one turn of all these questions, each on a thread once it is decided, while a policy that `decides_each` is
    busy with others. Raises the errors of DECIDING (including OutOfMemory), with such a policy perhaps after some have
    advanced, and PolicyError for any other of the policy; a RenderError fails only its own question."""
    for state in states:
        run.turn_begins(state)
    asking = [state for state in states if state.asks]
    early = run.policy.decides_each and not (run.anytime or run.probes) and len(asking) == len(states)
    batch = _Batch(run, tuple(state.question.id for state in states))
    try:
        with run.clock.call(), policy_errors(run.policy, "decide", asking):
            batch.waited = {} if run.policy.concurrent else run.clock.waited
            if early:
                run.policy.decide_each(asking, lambda index, decide: batch.decided_early(asking[index], decide))
            else:
                decisions = run.policy.decide(asking) if asking else []
        if not early:
            decisions = checked(decisions, run.policy, "decide", asking)
            run.pay(decisions)
            batch.decided(states, decisions)
    finally:
        batch.wait()


@dataclass
class _Batch:
    """The turns of questions that were decided together: each moves, renders and records on a thread."""

    run: Run
    ids: tuple[str, ...]
    waited: Mapping[str, float] = field(default_factory=dict)
    pending: list[Future[None]] = field(default_factory=list)

    def decided(self, states: Sequence[QuestionState], decisions: Sequence[Decision]) -> None:
        """Begin the turns of all questions, with the decisions of those that were asked."""
        run = self.run
        of_asked = iter(decisions)
        wanted = [next(of_asked) if state.asks else Decision(CameraAction()) for state in states]
        applied = [state.apply_rules(decision) for state, decision in zip(states, wanted, strict=True)]
        ruled = checked(applied, run.policy, "decide", states, final=False)
        answers = forced_answers(states, ruled, run)
        maps = believed_maps(states, run)
        for state, decision, answer, belief in zip(states, ruled, answers, maps, strict=True):
            self._begin(state, partial(replace, decision), answer, belief)

    def decided_early(self, state: QuestionState, decide: Callable[[], Decision]) -> None:
        """Begin the turn of one question, whose decision is made on its thread."""

        def ruled() -> Decision:
            with policy_errors(self.run.policy, "decide", [state]):
                decision = decide()
            self.run.pay([decision])
            return checked([state.apply_rules(decision)], self.run.policy, "decide", [state], final=False)[0]

        self._begin(state, ruled)

    def _begin(self, state: QuestionState, decide: Callable[[], Decision], *beside: Any) -> None:
        self.pending.append(self.run.pool.submit(copy_context().run, self._take, state, decide, *beside))

    def _take(
        self,
        state: QuestionState,
        decide: Callable[[], Decision],
        answer: ForcedAnswer | None = None,
        belief: Belief | None = None,
    ) -> None:
        """Take and record one question's turn, and prepare the next; fails the question as `failing` does."""
        run = self.run
        with failing(state):
            turn = state.take_turn(decide(), self.ids, answer, belief and state.scored(belief))
            scan = run.library.scan_file(state.question) if turn.turn == 0 else None
            recorded = replace(turn, scan=scan, seconds=replace(turn.seconds, **self.waited))
            run.log.turn(state.episode, recorded, state.recorded_messages())
            run.turn_taken()
            run.failures.turn_taken()
            log_turn(state, turn)
            if not (state.is_final or run.policy.concurrent) and state.asks:
                run.policy.prepare(state)

    def wait(self) -> None:
        """Wait for all turns that have begun; raises the first error."""
        with self.run.clock.waiting_for_views():
            wait(self.pending)
        for future in self.pending:
            future.result()


def _beside(states: Sequence[QuestionState], run: Run, ask: Callable[..., Any], unread: Callable[[str], Any]) -> Any:
    """What a policy's method `ask` returns for questions beside their conversations. An error of the model costs no
    question: each is asked alone then, and `unread` says why one has no reply."""
    try:
        with run.clock.call(), policy_errors(run.policy, ask.__name__, states):
            return ask(states)
    except OutOfMemory:
        raise
    except ModelError as error:
        if len(states) == 1:
            return [unread(str(error))]
    return [reply for state in states for reply in _beside([state], run, ask, unread)]


def forced_answers(
    states: Sequence[QuestionState], decisions: Sequence[Decision], run: Run
) -> list[ForcedAnswer | None]:
    """What each question would be answered if this turn were its last (the setting anytime); None for one that ends."""
    continuing = [
        state
        for state, decision in zip(states, decisions, strict=True)
        if run.anytime and not state.ends_with(decision.action)
    ]
    if not continuing:
        return [None] * len(states)
    replies = _beside(continuing, run, run.policy.answer_now, lambda why: Decision(CameraAction(), error=why))
    replies = checked(replies, run.policy, "answer_now", continuing, final=True)
    run.pay(replies)
    batch = tuple(state.question.id for state in continuing)
    answers: dict[EpisodeId, ForcedAnswer] = {}
    for state, decision in zip(continuing, replies, strict=True):
        unread = decision.error is not None
        answer = None if unread else state.as_scored(decision.action.answer, state.observation.pose)
        answers[state.episode] = ForcedAnswer(answer, state.question.score(answer), decision.reply, batch)
    return [answers.get(state.episode) for state in states]


def believed_maps(states: Sequence[QuestionState], run: Run) -> list[Belief | None]:
    """Where objects are believed to be after the view of this turn (the setting probe); None for who is not asked."""
    asking = [state for state in states if run.probes and state.asks]
    if not asking:
        return [None] * len(states)
    maps = _beside(asking, run, run.policy.map_now, lambda why: Belief(error=why))
    maps = checked_maps(maps, run.policy, asking)
    run.pay(maps)
    batch = tuple(state.question.id for state in asking)
    by_episode = {state.episode: replace(belief, batch=batch) for state, belief in zip(asking, maps, strict=True)}
    return [by_episode.get(state.episode) for state in states]


def log_turn(state: QuestionState, turn: Turn) -> None:
    """Log a turn's reply, if there is one, and its action with what came of it, such as "forward 1 m; moved 0.30 m"."""
    said = turn.reply.text.strip().split("\n")
    form = "[%s] turn %d said: %s" + "\n    %s" * (len(said) - 1) + "\n  -> %s"  # each line is an argument
    if said == [""]:
        said = []
        form = "[%s] turn %d: %s"
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
    if turn.belief is not None:
        happened.append(f"believes: {turn.belief.in_words}")
    log.debug(form, state.label, turn.turn, *said, "; ".join(filter(None, happened)))


def complete_question_sequentially(state: QuestionState, run: Run, stop: Event | None = None) -> None:
    """Take all remaining turns of a question, each as a batch of one, until `stop` is set or the budget is spent."""
    with failing(state):
        while not (state.is_final or run.is_spent or (stop and stop.is_set())):
            run_batched_turn([state], run)
