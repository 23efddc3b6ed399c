"""Converts turns, results and conversations to the records of a run folder, and turns back."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np

from agent.policies.replies import ParsedAction
from agent.state import QuestionState, Turn
from envs.actions import CameraAction
from envs.library import SceneLibrary
from models import Reply
from models.conversation import Message
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome
from runs.journal import Journal
from runs.reader import image_name
from runs.records import (
    ActionRecord,
    MoveRecord,
    PoseRecord,
    ReplyRecord,
    ResultRow,
    ScanRecord,
    TurnRecord,
    TurnSeconds,
)


@dataclass(frozen=True)
class JournaledTurn:
    """A turn read from a journal, with its view."""

    turn: Turn
    view: np.ndarray


def result_row(state: QuestionState) -> ResultRow:
    """The result of a finished question, scored if it has a ground truth."""
    question, error = state.question, state.error
    return ResultRow(
        number=state.number,
        id=question.id,
        dataset=question.dataset,
        scene_name=question.scene_name,
        question_type=question.question_type,
        question=question.question,
        ground_truth=question.ground_truth,
        answer=state.answer,
        score=question.score(state.answer),
        status=state.status.value,
        failed_part=error.part if error else None,
        error=error.message if error else None,
        turns=state.turn,
        parse_errors=sum(turn.parsed.error is not None for turn in state.turns),
        seconds=round(state.elapsed_s, 3),
    )


def turn_record(turn: Turn) -> TurnRecord:
    """A turn as a record; `turn_of` is the inverse."""
    reply, move = turn.reply, turn.move
    return TurnRecord(
        turn=turn.index,
        pose=PoseRecord(**asdict(turn.pose)),
        action=ActionRecord(**asdict(turn.parsed.action)),
        clamped=turn.parsed.clamped,
        parse_error=turn.parsed.error,
        move=MoveRecord(**{**asdict(move), "pose": PoseRecord(**asdict(move.pose))}) if move else None,
        reply=ReplyRecord(
            text=reply.text,
            tokens=reply.tokens,
            prompt_tokens=reply.prompt_tokens,
            reused_tokens=reply.reused_tokens,
            generated_tokens=reply.generated_tokens,
            finish_reason=reply.finish_reason,
            seconds=reply.seconds,
            images_encoded=reply.images_encoded,
            retries=reply.retries,
            dropped=reply.dropped,
        ),
        batch=turn.batch,
        seconds=TurnSeconds(
            preprocess=round(reply.preprocess_seconds, 4),
            prefill=round(reply.prefill_seconds, 4),
            decode=round(reply.decode_seconds, 4),
            render=turn.render_s,
        ),
    )


def turn_of(record: TurnRecord) -> Turn:
    """A record as a turn."""
    move, seconds = record.move, record.seconds
    reply = Reply(
        **asdict(record.reply),
        preprocess_seconds=seconds.preprocess,
        prefill_seconds=seconds.prefill,
        decode_seconds=seconds.decode,
    )
    return Turn(
        index=record.turn,
        pose=CameraPose(**asdict(record.pose)),
        reply=reply,
        parsed=ParsedAction(CameraAction(**asdict(record.action)), record.clamped, record.parse_error),
        move=MoveOutcome(**{**asdict(move), "pose": CameraPose(**asdict(move.pose))}) if move else None,
        batch=record.batch,
        render_s=seconds.render,
    )


def journaled_turns(journal: Journal, number: int) -> list[JournaledTurn]:
    """The complete turns of a question in progress with their views."""
    return [JournaledTurn(turn_of(seen.turn), seen.view) for seen in journal.turns_of(number)]


def record_turn(journal: Journal, state: QuestionState, library: SceneLibrary) -> None:
    """Record a question's last turn, and with turn 0 its scan; raises the errors of `journal.turn`."""
    turn = state.turns[-1]
    record = turn_record(turn)
    if turn.index == 0:
        scan = ScanRecord(str(library.scan_of(state.question)), library.sha256_of(state.question))
        record = replace(record, scan=scan)
    view = state.observations[turn.index].view
    journal.turn(state.number, record, view, png_of(state, turn.index), messages_of(state))


def png_of(state: QuestionState, turn: int) -> Callable[[], bytes]:
    """A function that encodes a turn's view as a PNG; reuses the PNG sent to a server, if any."""
    shown = [message for message in state.conversation.messages if message.image is not None]
    message = shown[turn] if shown else Message("user", "", state.observations[turn].view)
    return lambda: message.png


def messages_of(state: QuestionState) -> list[dict[str, str]]:
    """The conversation as sent, with file names in place of images."""
    listed, images = [], 0
    for message in state.conversation.messages:
        entry: dict[str, str] = {"role": message.role}
        if message.image is not None:
            entry["image"] = image_name(images)
            images += 1
        listed.append({**entry, "text": message.text})
    return listed
