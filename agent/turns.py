"""How a question takes its turns: begin, decide, move, look, record."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from threading import Event

from agent.policies import Decision, Policy, PolicyError
from agent.policies.replies import ParsedAction
from agent.records import journaled_turns, messages_of, record_turn
from agent.state import QuestionState, Turn
from data.scans import ScanNotFound
from envs.actions import CameraAction
from envs.environment import ExplorationEnv, Observation
from envs.library import SceneLibrary
from models import ModelError
from rendering.renderers import RenderError
from rendering.scene import SceneError
from runs.journal import Journal

log = logging.getLogger(__name__)

FAILED_PART = {ScanNotFound: "scan", SceneError: "scene", RenderError: "render", ModelError: "model"}
"""Which part of a run an error belongs to; only these end a question instead of the run."""

QUESTIONS_NAMED = 3
"""How many questions of a batch an error of the policy names."""


@dataclass(frozen=True)
class Run:
    """What every turn needs: the scans, who decides, what records it, and threads to draw views in."""

    library: SceneLibrary
    policy: Policy
    log: Journal
    pool: Executor


@contextmanager
def failing(state: QuestionState) -> Iterator[None]:
    """Turn an error of the scan, the renderer or the model into a failed question."""
    try:
        yield
    except tuple(FAILED_PART) as error:
        part = next(part for kind, part in FAILED_PART.items() if isinstance(error, kind))
        state.fail(part, str(error))


def initialize_question_state(state: QuestionState, run: Run) -> None:
    """Put the question into its scan at view 0, the best of four headings; then repeat the turns on disk, if any.

    An interrupted question resumes after its last whole turn. Fails the question where its scan or its first view is
    not available.
    """
    with failing(state):
        env, journal = ExplorationEnv(run.library, state.steps), journaled_turns(run.log, state.number)
        if not journal:
            env.reset(state.question)
            state.begin(env)
            return
        env.reset_at(run.library.scene_of(state.question), journal[0].turn.pose, journal[0].view)
        state.begin(env)
        views = [entry.view for entry in journal[1:]]
        for entry, view in zip_longest((entry.turn for entry in journal), views):
            state.record(entry, None if entry.move is None else env.resume(entry.move, view))
        run.policy.recall(state)
        run.log.messages(state.number, messages_of(state))


def run_batched_turn(states: Sequence[QuestionState], run: Run) -> None:
    """One turn of all these questions: one decision each, then every camera moves and looks, side by side.

    Raises ModelError (OutOfMemory among them) with no question advanced; the same turn can then be taken again.
    PolicyError for any other error of the policy. An error of one question's renderer fails that question alone.
    """
    decisions = decide(run.policy, states)
    batch = tuple(state.question.id for state in states)
    sights = [run.pool.submit(act, state, decision) for state, decision in zip(states, decisions, strict=True)]
    for state, decision, sight in zip(states, decisions, sights, strict=True):
        with failing(state):
            after, render_s = sight.result()
            turn = finish_turn(state, decision, after, batch, render_s)
            record_turn(run.log, state, run.library)
            done = f"{decision.error}; {in_words(decision.action)}" if decision.error else in_words(decision.action)
            log.debug("[%s] turn %d said: %s\n  -> %s", state.label, turn.index, decision.reply.text.strip(), done)


def decide(policy: Policy, states: Sequence[QuestionState]) -> list[Decision]:
    """One decision per question; raises ModelError, and PolicyError for any other error of the policy."""
    shown = ", ".join(f"{state.label} (id {state.question.id})" for state in states[:QUESTIONS_NAMED])
    where = f"{type(policy).__name__}.decide, asked about {shown}"
    if more := len(states[QUESTIONS_NAMED:]):
        where += f" and {more} more"
    try:
        decisions = policy.decide(states)
    except ModelError:
        raise
    except Exception as error:
        raise PolicyError(f"{where}, raised {type(error).__name__}: {error}") from error
    if len(decisions) != len(states):
        raise PolicyError(f"{where}, returned {len(decisions)} decisions for {len(states)} questions")
    return decisions


def complete_question_sequentially(state: QuestionState, run: Run, stop: Event | None = None) -> None:
    """All turns that a question has left, alone: the same turn as in a batch, with a batch of one.

    Ends early, after a whole turn, once `stop` is set.
    """
    with failing(state):
        while not state.is_final and not (stop and stop.is_set()):
            run_batched_turn([state], run)


def act(state: QuestionState, decision: Decision) -> tuple[Observation | None, float]:
    """Carry out a decision: what the camera sees afterwards and the seconds it took; raises RenderError.

    A decision that ends the question moves nothing and shows nothing.
    """
    if state.ends_with(decision.action):
        return None, 0.0
    assert state.env is not None, "an active question has an environment"
    started = time.perf_counter()
    after = state.env.step(decision.action)
    return after, round(time.perf_counter() - started, 4)


def finish_turn(
    state: QuestionState, decision: Decision, after: Observation | None, batch: tuple[str, ...], render_s: float
) -> Turn:
    """Record the turn that is due: what was decided in a batch of these questions, and what it led to."""
    parsed = ParsedAction(decision.action, decision.clamped, decision.error)
    move = None if after is None else after.move
    turn = Turn(state.turn, state.observation.pose, decision.reply, parsed, move, batch, render_s)
    state.record(turn, after)
    return turn


def in_words(action: CameraAction) -> str:
    """An action as a person says it, such as "left 30°, forward 1 m"."""
    if action.done:
        return f"answers {action.answer}"
    parts = [
        (action.rotation_angle_degrees, "left", "right", "°"),
        (action.forward_meters, "forward", "back", " m"),
        (action.left_meters, "step left", "step right", " m"),
        (action.z_delta_meters, "up", "down", " m"),
    ]
    moves = [f"{plus if value > 0 else minus} {abs(value):g}{unit}" for value, plus, minus, unit in parts if value]
    return ", ".join(moves) or "stays"
