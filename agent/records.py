"""Turns and results as JSON records, and back."""

from dataclasses import asdict
from typing import Any

from agent.actions import CameraAction, ParsedAction
from agent.backends import Reply
from agent.costs import MODEL_PARTS
from agent.state import QuestionState, Turn
from data.scoring import score_answer
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome

RESULT_COLUMNS = (
    "number", "id", "dataset", "scene_name", "question_type", "question", "ground_truth", "answer", "score",
    "status", "failed_part", "error", "turns", "parse_errors", "seconds",
)  # fmt: skip


def result_row(state: QuestionState) -> dict[str, Any]:
    """What results.jsonl, results.json and results.csv say of a finished question."""
    question, error = state.question, state.error
    truth = question.ground_truth
    score = None
    if question.kind.metric is not None and truth is not None:
        score = score_answer(question.question_type, state.answer, truth)
    return {
        "number": state.number,
        "id": question.id,
        "dataset": question.dataset,
        "scene_name": question.scene_name,
        "question_type": question.question_type,
        "question": question.question,
        "ground_truth": truth,
        "answer": state.answer,
        "score": score,
        "status": state.status.value,
        "failed_part": error.part if error else None,
        "error": error.message if error else None,
        "turns": state.turn,
        "parse_errors": sum(turn.parsed.error is not None for turn in state.turns),
        "seconds": round(state.elapsed_s, 3),
    }


def turn_to_dict(turn: Turn) -> dict[str, Any]:
    """A turn as JSON holds it; `turn_from_dict` gives an equal one back."""
    reply = asdict(turn.reply)
    seconds = {part: round(reply.pop(f"{part}_seconds"), 4) for part in MODEL_PARTS}
    return {
        "turn": turn.index,
        "pose": asdict(turn.pose),
        "action": asdict(turn.parsed.action),
        "clamped": turn.parsed.clamped,
        "parse_error": turn.parsed.error,
        "move": asdict(turn.move) if turn.move else None,
        "reply": reply,
        "batch": turn.batch,
        "seconds": {**seconds, "render": turn.render_s},
    }


def turn_from_dict(line: dict[str, Any]) -> Turn:
    """The turn that a line of turns.jsonl holds."""
    move, reply, seconds = line["move"], line["reply"], line["seconds"]
    model_seconds = {f"{part}_seconds": seconds[part] for part in MODEL_PARTS}
    return Turn(
        index=line["turn"],
        pose=CameraPose(**line["pose"]),
        reply=Reply(**{**reply, **model_seconds, "tokens": tuple(reply["tokens"])}),
        parsed=ParsedAction(CameraAction(**line["action"]), tuple(line["clamped"]), line["parse_error"]),
        move=MoveOutcome(**{**move, "pose": CameraPose(**move["pose"])}) if move else None,
        batch=tuple(line["batch"]),
        render_s=seconds["render"],
    )


def messages_to_list(state: QuestionState) -> list[dict[str, Any]]:
    """The conversation as sent; an image stands as the name of its file."""
    listed, images = [], 0
    for message in state.conversation.messages:
        entry: dict[str, Any] = {"role": message.role}
        if message.image is not None:
            entry["image"] = f"render_{images:02d}.png"
            images += 1
        listed.append({**entry, "text": message.text})
    return listed
