"""How a question takes its turns: begin, ask, read the reply, move, look, record."""

import logging
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from agent.actions import CameraAction, ParsedAction, parse_action
from agent.backends import Backend, ModelError, Reply
from agent.prompts import system_message, turn_message
from agent.run_log import RunLog
from agent.state import QuestionState, Turn
from agent.world import World
from data.scans import ScanNotFound
from rendering.motion import MoveOutcome
from rendering.renderers import RenderError
from rendering.scene import SceneError

log = logging.getLogger(__name__)

FAILED_PART = {ScanNotFound: "scan", SceneError: "scene", RenderError: "render", ModelError: "model"}
"""Which part of a run an error belongs to; only these end a question instead of the run."""


@dataclass(frozen=True)
class Run:
    """What every turn needs: where cameras are, who replies, what writes it down, and threads to draw views in."""

    world: World
    backend: Backend
    log: RunLog
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
    """Load the question's scan and take view 0, the best of four headings; then repeat the turns on disk, if any.

    A question that was interrupted goes on from its last whole turn. Fails the question where its scan or its
    first view cannot be had.
    """
    with failing(state):
        scene = run.world.scene_of(state.question)
        journal = run.log.turns_of(state.number)
        if journal:
            pose, view = journal[0].turn.pose, journal[0].view
        else:
            first = run.world.first_view(state.question)
            pose, view = first.pose, first.image
        state.open(scene, pose, view, system_message(state.question))
        for index, entry in enumerate(journal):
            state.ask(turn_message(state))
            if entry.turn.move is None:
                state.record(entry.turn, None)
            elif index + 1 < len(journal):
                state.record(entry.turn, journal[index + 1].view)
            else:
                state.record(entry.turn, run.world.view(scene, entry.turn.move.pose))
        if journal:
            run.log.messages(state)


def run_batched_turn(states: Sequence[QuestionState], run: Run) -> None:
    """One turn of all these questions: one generate() call, then every camera moves and looks, side by side.

    Raises ModelError (OutOfMemory among them) with no question advanced; the same turn can then be taken again.
    An error of one question's renderer fails that question alone.
    """
    for state in states:
        state.ask(turn_message(state))
    replies = run.backend.generate([state.conversation for state in states])
    batch = tuple(state.question.id for state in states)
    parsed = [read(reply, state) for state, reply in zip(states, replies, strict=True)]
    sights = [run.pool.submit(act, state, action, run.world) for state, action in zip(states, parsed, strict=True)]
    for state, reply, action, sight in zip(states, replies, parsed, sights, strict=True):
        with failing(state):
            move, view, render_s = sight.result()
            state.record(Turn(state.turn, state.where, reply, action, move, batch, render_s), view)
            run.log.turn(state)
            done = f"{action.error}; {in_words(action.action)}" if action.error else in_words(action.action)
            log.debug("[%s] turn %d said: %s\n  -> %s", state.label, state.turn - 1, reply.text.strip(), done)


def read(reply: Reply, state: QuestionState) -> ParsedAction:
    """The action that a reply stands for; one that cannot be read because it was cut off is told so."""
    parsed = parse_action(reply.text, state.question, state.is_last_turn)
    if parsed.error is None or reply.finish_reason != "length":
        return parsed
    cut = f"it was cut off after {len(reply.tokens)} tokens, so think less and end with the object"
    return replace(parsed, error=f"{parsed.error}; {cut}")


def complete_question_sequentially(state: QuestionState, run: Run) -> None:
    """All turns that a question has left, alone: the same turn as in a batch, with a batch of one."""
    with failing(state):
        while not state.is_final:
            run_batched_turn([state], run)


def act(
    state: QuestionState, parsed: ParsedAction, world: World
) -> tuple[MoveOutcome | None, np.ndarray | None, float]:
    """Carry out an action: where the camera ended, what it sees there and the seconds it took; raises RenderError.

    A reply that ends the question moves nothing and shows nothing. Changes no state, so that a batch can do it side
    by side.
    """
    if state.ends_with(parsed):
        return None, None, 0.0
    assert state.scene is not None, "an active question has a scene"
    started = time.perf_counter()
    move = world.move(state.scene, state.where, parsed.action)
    view = world.view(state.scene, move.pose)
    return move, view, round(time.perf_counter() - started, 4)


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
