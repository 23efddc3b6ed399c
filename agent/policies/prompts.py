"""The wording of all prompts, as pure functions of a question, an observation and the previous turn.

The shipped explorer was trained on exactly this wording; any edit costs accuracy.
"""

from agent.state import Turn
from data.questions import Question
from envs.actions import HEIGHT_LIMIT_M, MOVE_LIMIT_M, ROTATION_LIMIT_DEG
from envs.environment import Observation
from models.conversation import Message

ADVICE = {
    "counting": "To count, look in every direction first, remember where each object stood, and count none twice.",
    "distance": "To measure a distance, see both objects, from close by if you can; the camera's own positions are "
    "given in metres and are a ruler.",
    "size": "To measure an object, see all of it, from more than one side if you can; the camera's own positions are "
    "given in metres and are a ruler.",
    "room_size": "To measure the room, find its walls in every direction; the room's extent along x and y is given, but "
    "not every room fills the rectangle.",
    "nearest": "To compare distances, find every object that is named and note where it stands.",
    "direction": "For directions, find all objects that are named, note where each stands on the floor plan, then "
    "imagine standing at the first and facing the second; your own heading does not matter.",
    "route": "For a route, find all places that are named, note where each stands on the floor plan, then walk the "
    "route in your mind and keep track of which way you face.",
    "order": "For an order of appearance, note what each view shows, in the order of the views.",
    "open": "Look around until you have seen what the question needs.",
}
"""Advice for each family of question types."""


def answer_form(question: Question) -> str:
    """The form of a valid "answer" to this question."""
    if question.is_choice:
        return "the letter of one option, " + " or ".join(f'"{letter}"' for letter in question.letters)
    if question.is_numeric:
        return "one plain number, such as 3" if question.unit == "objects" else f"one plain number in {question.unit}"
    return "a short text"


def system_message(question: Question) -> Message:
    """The first message of a conversation: the available actions and the reply format."""
    return Message("system", _system_text(question))


def opening_text(question: Question) -> str:
    """All text before the first reply, except the camera's pose and the remaining moves."""
    return _system_text(question) + _question_text(question)


def turn_message(question: Question, observation: Observation, previous: Turn | None) -> Message:
    """The user message with an observation; `previous` is the turn that led to it, None for turn 0."""
    parts = [_question_text(question) if previous is None else _outcome(previous)]
    parts += [_where(observation), _turns_left(observation)]
    return Message("user", "\n\n".join(parts), image=observation.view)


def _system_text(question: Question) -> str:
    return f"""\
You are inside the 3D scan of a real room and see it through a camera. You are asked one question about the room. \
In each turn you get the view from where the camera is now, then either move the camera to see more, or answer.

Reply with a short thought in plain words, then exactly one JSON object with these six keys:
{{"rotation_angle_degrees": 0, "forward_meters": 0, "left_meters": 0, "z_delta_meters": 0, "answer": null, "done": false}}

- rotation_angle_degrees: -{ROTATION_LIMIT_DEG:g} to {ROTATION_LIMIT_DEG:g}; positive turns left, negative turns right. \
The camera turns first and then moves in its new direction.
- forward_meters: -{MOVE_LIMIT_M:g} to {MOVE_LIMIT_M:g}; negative moves backward.
- left_meters: -{MOVE_LIMIT_M:g} to {MOVE_LIMIT_M:g}; positive moves to the left, negative to the right.
- z_delta_meters: -{HEIGHT_LIMIT_M:g} to {HEIGHT_LIMIT_M:g}; positive moves up, negative down.
- answer: null while you are still looking, then {answer_form(question)}.
- done: true only together with your final answer; it ends your turns.

The camera cannot pass through walls or furniture and stays inside the room; you are told when a move was cut short. \
Holes in the scan are white. {ADVICE[question.kind.family]}"""


def _question_text(question: Question) -> str:
    lines = [f"Question: {question.question}"]
    if question.options:
        lines += ["Options:", *question.options]
    return "\n".join(lines)


def _outcome(turn: Turn) -> str:
    """The outcome of the last turn: reply errors, clamped numbers, rotation and move."""
    lines = []
    if turn.parsed.error:
        lines.append(f"Your reply could not be used: {turn.parsed.error}. The camera turned a little instead.")
    if turn.parsed.clamped:
        lines.append(f"Out of range and cut: {', '.join(turn.parsed.clamped)}.")
    assert turn.move is not None, "a turn that did not end the question has a move"
    move, turned = turn.move, turn.parsed.action.rotation_angle_degrees
    lines.append(f"Turned {abs(turned):g} degrees {'left' if turned >= 0 else 'right'}." if turned else "Did not turn.")
    if move.blocked or move.clipped:
        why = "blocked" if move.blocked else "at the edge of the scan"
        lines.append(f"Moved {move.moved_m:.2f} of {move.requested_m:.2f} m, {why}.")
    else:
        lines.append(f"Moved {move.moved_m:.2f} m." if move.requested_m else "Did not move.")
    return " ".join(lines)


def _where(observation: Observation) -> str:
    """The room's extent, the camera's position and its heading."""
    extent, pose = observation.extent, observation.pose
    (x0, x1), (y0, y1) = extent.x_m, extent.y_m
    return (
        f"The room spans x {x0:z.1f} to {x1:z.1f} m and y {y0:z.1f} to {y1:z.1f} m. "
        f"The camera is at x {pose.x_m:z.1f}, y {pose.y_m:z.1f}, {pose.z_m - extent.floor_z_m:z.1f} m above the floor, "
        f"heading {round(pose.heading_deg) % 360} degrees (0 looks along +x, 90 along +y)."
    )


def _turns_left(observation: Observation) -> str:
    left = observation.moves_left
    if not left:
        return 'This is the last turn: no more moves. Answer now, with your best guess, and "done": true.'
    return (
        f"Turn {observation.turn}: you have {left} move{'' if left == 1 else 's'} left; answer as soon as you are sure."
    )
