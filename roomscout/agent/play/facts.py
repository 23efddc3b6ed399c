"""What the page of people says of a turn, as facts: its words file makes sentences of them."""

from typing import Any

from roomscout.agent.policies.messages import told_boxes
from roomscout.agent.state import QuestionState
from roomscout.base.text import escaped_text
from roomscout.data.answers import KIND_NAMES
from roomscout.envs.actions import ALL_LIMITS, MOVE_LIMIT_M, ROTATION_LIMIT_DEG, CameraMove
from roomscout.rendering.modalities.modality import SCAN_ORIGIN
from roomscout.runs.records import Turn


def facts_of(state: QuestionState) -> dict[str, Any]:
    """What is known of a turn beside its images. None of it depends on the ground truth, or says which scan it is."""
    question = state.question
    rules = state.rules
    left = state.steps - state.turn
    return {
        "key": f"{state.episode}-{state.turn}",
        "turn": state.turn,
        "last": state.is_last_turn,
        "moves_left": left,
        "question": escaped_text(question.question),
        "watching": rules.mover is not None,
        "limits": {"turn": ROTATION_LIMIT_DEG, "way": MOVE_LIMIT_M},
        "outcome": _outcome(state.turns[-1]) if state.turns else None,
        "where": _where(state),
        "objects": _objects(state),
        "answer": _answer(state)
        | {"in_moves": left if rules.mover else min(max(rules.min_turns - state.turn, 0), left)},
    }


def parts_of(move: CameraMove) -> list[dict[str, Any]]:
    """The turns and ways of a move in their order: the `way` is a number of ALL_LIMITS, with its side and amount."""
    return [
        {"way": way, "side": "plus" if getattr(single, way) > 0 else "minus", "amount": abs(getattr(single, way))}
        for single in move.singles
        for way in ALL_LIMITS
        if getattr(single, way)
    ]


def _answer(state: QuestionState) -> dict[str, Any]:
    """What the answer is: its kind, its options by their values, and for kinds of others the form of one."""
    question = state.question
    kind = question.kind
    form = ""
    if kind.name not in KIND_NAMES:
        with question.kind_code("form"):
            form = kind.form(question.letters)
    options = [(letter, f"{letter}. {escaped_text(question.text_of(letter))}") for letter in question.letters]
    here = kind.judges_camera
    return {"kind": kind.name, "here": here, "unit": kind.unit, "form": escaped_text(form), "options": options}


def _outcome(turn: Turn) -> dict[str, Any]:
    """What the last move did: degrees to the left, metres, and what stopped it; what was measured, metres or None."""
    move = turn.move
    assert move is not None, "a turn that did not end the question has a move"
    return {
        "turned_deg": turn.turned_deg,
        "pitch_deg": None if move.pose.pitch_deg == turn.pose.pitch_deg else move.pose.pitch_deg,
        "moved_m": move.moved_m,
        "asked_m": move.requested_m,
        "stopped": "blocked" if move.blocked else "edge" if move.clipped else "",
        "limited": bool(turn.clamped),
        "measured_m": [use.metres for use in turn.uses],
    }


def _where(state: QuestionState) -> dict[str, Any]:
    """The camera's pose and the room's extent as far as the run tells them, in metres ahead of the start and to its
    left, or in the scan's coordinates if answers are places there."""
    observation = state.observation
    told = state.rules.tell
    in_scan = state.question.kind.in_scan_coordinates
    pose = observation.pose if in_scan else observation.start.relative(observation.pose)
    extent = observation.extent if in_scan else observation.extent_from_start
    place: dict[str, Any] = {"in_scan": in_scan}
    if "pose" in told:
        place["pose"] = [pose.x_m, pose.y_m, observation.pose.z_m - extent.floor_z_m, pose.heading_deg]
        place["floor_m"] = extent.floor_z_m
    if "extent" in told:
        place["extent"] = [*extent.x_m, *extent.y_m]
    return place


def _objects(state: QuestionState) -> dict[str, Any] | None:
    """The boxes told in this turn, all of them in the last of a run that shows everything at once; None if none are."""
    if not state.rules.boxes or (state.rules.boxes == "boxes" and state.turn and not state.rules.at_once):
        return None
    observation = state.observation
    in_scan = state.question.kind.in_scan_coordinates
    first = 0 if state.rules.at_once else observation.told_before
    origin = SCAN_ORIGIN if in_scan else observation.start
    boxes = told_boxes(observation, origin, first)
    listed = [box | {"name": escaped_text(box["name"])} for box in boxes]
    return {"new": state.rules.boxes == "boxes-seen" and state.turn > 0, "boxes": listed, "in_scan": in_scan}
