"""Well-formed and malformed replies are parsed as actions."""

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roomscout.agent.actions.metric import METRIC
from roomscout.agent.actions.space import LOOK_AROUND
from roomscout.agent.policies.replies import parse_action
from roomscout.data.questions import Question
from roomscout.envs.actions import LIMITS, CameraAction
from tests.conftest import vsi_question

LOOKS = CameraAction.of(LOOK_AROUND)
CHOICE = vsi_question(
    "1", "scannet", "s", "object_rel_direction_medium", "Where?", ("A. left", "B. right", "C. back"), "A"
)
COUNT = vsi_question("2", "scannet", "s", "object_counting", "How many?", (), "3")
METERS = vsi_question("3", "scannet", "s", "object_abs_distance", "How far?", (), "1.5")
AREA = vsi_question("5", "scannet", "s", "room_size_estimation", "How large?", (), "20")
OPEN = vsi_question("4", "asked", "s", "open", "What colour is the sofa?")


def reply(**fields: object) -> str:
    return json.dumps(fields)


def test_a_complete_action_is_parsed():
    text = reply(
        rotation_angle_degrees=30, forward_meters=1, left_meters=-0.5, z_delta_meters=0.2, answer=None, done=False
    )
    assert parse_action(text, CHOICE).action == CameraAction(30, 1, -0.5, 0.2)


@pytest.mark.parametrize(
    "text",
    [
        "turn left please",
        '{"angle": 30}',
        '{"rotation_angle_degrees": NaN}',
        '{"forward_meters": 1e999}',
        '{"forward_meters": true}',
        '{"answer": "A", "done": "maybe"}',
        '{"a":' * 50_000,
    ],
)
def test_an_invalid_reply_looks_around_and_reports_an_error(text: str):
    parsed = parse_action(text, CHOICE)
    assert (parsed.action, bool(parsed.error)) == (LOOKS, True)


@pytest.mark.parametrize("answer", ["b", "(B)", "B.", " B. right "])
def test_a_letter_is_recognized_in_its_common_forms(answer: str):
    assert parse_action(reply(answer=answer, done=True), CHOICE).action == CameraAction(answer="B", done=True)


@pytest.mark.parametrize("answer", ["AB", "D", "A chair", None, 2, ["A"], "left"])
def test_done_without_a_letter_of_the_question_is_an_error(answer: object):
    parsed = parse_action(reply(answer=answer, done=True), CHOICE)
    assert parsed.action == LOOKS
    assert "letters A, B, C" in (parsed.error or "")


@pytest.mark.parametrize(
    ("answer", "question", "text"),
    [
        (3, METERS, "3"), (2.5, METERS, "2.5"), ("4", METERS, "4"), ("1.5 m", METERS, "1.5"),
        ("2 meters.", METERS, "2"), ("3 objects", COUNT, "3"), ("1 object", COUNT, "1"), ("3 m^2", AREA, "3"),
    ],
)  # fmt: skip
def test_a_number_is_kept_as_text_without_its_unit(answer: object, question: Question, text: str):
    assert parse_action(reply(answer=answer, done=True), question).action.answer == text


@pytest.mark.parametrize("answer", ["150 cm", "three", math.nan, "2 or 3", None])
def test_done_without_a_finite_number_in_the_unit_is_an_error(answer: object):
    assert parse_action(reply(answer=answer, done=True), METERS).error


@pytest.mark.parametrize(
    ("text", "question", "answer"),
    [
        ('{"rotation_angle_degrees": "none", "answer": "B", "done": true}', CHOICE, "B"),
        ('{"answer": "B", "done": "soon"}', CHOICE, "B"),
        ('{"answer": "B bed"}', CHOICE, "B"),
        ('{"answer": "3 chairs", "done": true}', COUNT, "3"),
        ('{"answer": "two doors", "done": true}', COUNT, None),
    ],
)
def test_the_last_turn_needs_only_an_answer(text: str, question: Question, answer: str | None):
    last = parse_action(text, question, last_turn=True)
    has_ended = answer is not None
    assert (last.action.answer, last.action.done, last.error is None) == (answer, has_ended, has_ended)
    before = parse_action(text, question)
    assert before.error is not None or not before.action.done


def test_an_answer_without_done_does_not_end_the_question():
    parsed = parse_action(reply(answer=3, done=False, forward_meters=1), COUNT)
    assert parsed.action == CameraAction(forward_meters=1, answer="3")


def test_an_open_question_takes_any_text_that_utf8_can_encode():
    assert parse_action('{"answer": "dark \\ud800 red", "done": true}', OPEN).action.answer == "dark ? red"


@given(st.dictionaries(st.sampled_from(list(LIMITS)), st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_numbers_are_clamped_to_their_ranges_and_each_clamp_is_reported(fields: dict[str, float]):
    parsed = parse_action(json.dumps(fields), CHOICE)
    for name, limit in LIMITS.items():
        value, wanted = getattr(parsed.action, name), fields.get(name, 0.0)
        assert abs(value) <= limit
        assert any(line.startswith(name) for line in parsed.clamped) == (value != wanted)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=30)
@given(
    st.dictionaries(st.sampled_from(METRIC.all_keys), JSON_VALUES), st.text(), st.sampled_from([CHOICE, COUNT, OPEN])
)
def test_any_reply_gives_a_valid_action(fields: dict, prose: str, question: Question):
    parsed = parse_action(prose + json.dumps(fields), question)
    assert all(abs(getattr(parsed.action, name)) <= limit for name, limit in LIMITS.items())
    assert not parsed.action.done or parsed.action.answer is not None
