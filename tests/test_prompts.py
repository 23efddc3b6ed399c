"""The wording that the shipped explorer was trained on; any change requires training it again."""

import hashlib

import numpy as np
import pytest

from agent.policies.prompts import ADVICE, system_message, turn_message
from agent.policies.replies import LOOK_AROUND, ParsedAction
from agent.state import Turn
from data.questions import Question
from envs.actions import CameraAction
from envs.environment import Extent, Observation
from models import Reply
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome

QUESTION = Question(
    "1", "scannet", "s", "object_rel_direction_easy", "Is the lamp to the left or the right of the bed?",
    ("A. left", "B. right"), "A",
)  # fmt: skip
HERE = CameraPose(1.25, 2.0, 1.7, 359.6, -15.0)


def observation(turn: int, moves_left: int, move: MoveOutcome | None = None) -> Observation:
    extent = Extent((-0.04, 5.5), (0.0, 4.0), 0.1)
    return Observation(np.zeros((2, 2, 3), np.uint8), HERE, extent, move, turn, moves_left)


def after(parsed: ParsedAction, moved_m: float = 1.0, blocked: bool = False, clipped: bool = False) -> str:
    move = MoveOutcome(HERE, 1.0, moved_m, blocked, clipped)
    turn = Turn(0, HERE, Reply(""), parsed, move, ("1",))
    return turn_message(QUESTION, observation(1, 7, move), turn).text


def test_the_system_message_is_that_of_training():
    text = system_message(QUESTION).text
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "592065cd528227e5643b5e5fb7d3084a4bd51a8ad0e6fd3d8cc9d1b40bd5812b"
    )


def test_the_advice_is_that_of_training():
    learned = ("counting", "distance", "size", "room_size", "nearest", "direction", "route", "order", "open")
    text = "\n".join(f"{family}: {ADVICE[family]}" for family in learned)
    assert (
        hashlib.sha256(text.encode()).hexdigest() == "35152f384fff8fb77c960013d286e5ddb643e64d27d769ecf35eb74cc201c24f"
    )


def test_turn_0_asks_the_question_and_says_where_the_camera_is():
    assert turn_message(QUESTION, observation(0, 8), None).text == (
        "Question: Is the lamp to the left or the right of the bed?\nOptions:\nA. left\nB. right\n\n"
        "The room spans x 0.0 to 5.5 m and y 0.0 to 4.0 m. The camera is at x 1.2, y 2.0, 1.6 m above the floor, "
        "heading 0 degrees (0 looks along +x, 90 along +y).\n\n"
        "Turn 0: you have 8 moves left; answer as soon as you are sure."
    )


@pytest.mark.parametrize(
    ("parsed", "options", "words"),
    [
        (ParsedAction(CameraAction(90.0, 1.0)), {}, "Turned 90 degrees left. Moved 1.00 m."),
        (ParsedAction(CameraAction(-45.0, 1.0)), {"moved_m": 0.25, "blocked": True},
         "Turned 45 degrees right. Moved 0.25 of 1.00 m, blocked."),
        (ParsedAction(CameraAction(0.0, 1.0)), {"moved_m": 0.5, "clipped": True},
         "Did not turn. Moved 0.50 of 1.00 m, at the edge of the scan."),
        (ParsedAction(LOOK_AROUND, error="no JSON"), {},
         "Your reply could not be used: no JSON. The camera turned a little instead. Turned 45 degrees left. "
         "Moved 1.00 m."),
        (ParsedAction(CameraAction(), ("forward_meters 9 -> 2",)), {},
         "Out of range and cut: forward_meters 9 -> 2. Did not turn. Moved 1.00 m."),
    ],
)  # fmt: skip
def test_a_later_turn_reports_the_outcome_of_the_last_action(parsed: ParsedAction, options: dict, words: str):
    first, _, last = after(parsed, **options).split("\n\n")
    assert first == words
    assert last == "Turn 1: you have 7 moves left; answer as soon as you are sure."


def test_the_last_turn_must_answer():
    assert turn_message(QUESTION, observation(8, 0), None).text.endswith(
        'This is the last turn: no more moves. Answer now, with your best guess, and "done": true.'
    )
