"""Which action a reply holds: the last one outside thoughts, in JSON as models write it."""

import json
import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roomscout.agent.actions.space import LOOK_AROUND
from roomscout.agent.policies.lenient_json import last_object
from roomscout.agent.policies.replies import parse_action
from roomscout.data.answers import LETTER_KIND, POSE_KIND, TEXT_KIND, YES_NO_KIND, Number
from roomscout.envs.actions import CameraAction
from tests.conftest import vsi_question

LOOKS = CameraAction.of(LOOK_AROUND)
CHOICE = vsi_question("1", "scannet", "s", "object_rel_direction_medium", "Where?", ("A. left", "B. right"), "A")
KEYS = ("turn", "answer", "done")
MOVE = '{"rotation_angle_degrees": 30, "answer": null, "done": false}'
DRAFT = '{"answer": "A", "done": true}'
FINAL = '{"answer": "B", "done": true}'


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"turn": 30, "done": false,}', {"turn": 30, "done": False}),
        ('{"turn": [1, 2,],}', {"turn": [1, 2]}),
        ("{'turn': 30, 'answer': None, 'done': False}", {"turn": 30, "answer": None, "done": False}),
        ('{"turn": 30, "answer": NULL, "done": TRUE}', {"turn": 30, "answer": None, "done": True}),
        ('{"turn": +90, "answer": .5, "done": -5.}', {"turn": 90, "answer": 0.5, "done": -5.0}),
        ('{"turn": −90, "answer": 05}', {"turn": -90, "answer": 5}),
        ('{"turn": 90, // to the left }\n "done": false # not yet\n}', {"turn": 90, "done": False}),
        ('{/* an action */ "turn": /* { */ 90}', {"turn": 90}),
        ('{"thought": "Two chairs.\n\tOne more?", "turn": 9}', {"thought": "Two chairs.\n\tOne more?", "turn": 9}),
        ('{“turn”: 90, ‘answer’: “B”, “done”: true}', {"turn": 90, "answer": "B", "done": True}),
        ('{"turn"：90，"answer"：null，"done"：false}', {"turn": 90, "answer": None, "done": False}),
        ("{turn: 90, answer: B, done: true}", {"turn": 90, "answer": "B", "done": True}),
        (r'{"note": "about \(2\) \'m\' \x41", "answer": 2}', {"note": r"about \(2\) 'm' A", "answer": 2}),
        ("{'note': \"the room's door\", 'answer': 'it\\'s'}", {"note": "the room's door", "answer": "it's"}),
        ('{"note": "a } in { text", "answer": "{"}', {"note": "a } in { text", "answer": "{"}),
        (r"The set {a, b}, \boxed{2}, {it's}, {'tis}, {} {turn 1} " + FINAL, {"answer": "B", "done": True}),
        ("{ " + FINAL, {"answer": "B", "done": True}),
        ('{"plan": ' + FINAL + " and}", {"answer": "B", "done": True}),
        ('{"turn": 1, "turn": 2}', {"turn": 2}),
    ],
)  # fmt: skip
def test_json_is_read_as_models_write_it(text: str, action: dict[str, object]):
    assert last_object(text, KEYS) == action


@pytest.mark.parametrize(
    "text",
    [
        FINAL,
        DRAFT + "\n" + FINAL,
        "[" + MOVE + ", " + FINAL + "]",
        DRAFT + FINAL + ' {"note": 1} {}',
        DRAFT + " Better: " + FINAL + ' and then {"answer": "A", "do',
        DRAFT + " Better: " + FINAL + " {really",
        '{"action": ' + FINAL + "}",
        '<tool_call>{"name": "act", "arguments": ' + FINAL + "}</tool_call>",
        '{"actions": [' + MOVE + ", " + FINAL + '], "note": {"a": 1}}',
        '{"answer": "B", "done": true, "before": ' + DRAFT + "}",
        "```json\n" + FINAL + "\n```",
    ],
)
def test_the_last_action_counts(text: str):
    for last_turn in (False, True):
        assert parse_action(text, CHOICE, last_turn).action == CameraAction(answer="B", done=True)


@pytest.mark.parametrize(
    "text",
    [
        '{"turn": 0, "answer": "B", "done": true',
        '{"turn": 0, "answer": "B", "done": true,',
        '```json\n{"turn": 0, "answer": "B", "done": true\n```',
        '<answer>{"turn": 0, "answer": "B", "done": true</answer>\n',
        '{"action": {"turn": 0, "answer": "B", "done": true',
        '{"action": {"turn": 0, "answer": "B", "done": true}',
        '{"turn": 0, "answer": "B", "done": true // }',
    ],
)
def test_closing_braces_may_be_missing_at_the_end(text: str):
    assert last_object(text, KEYS) == {"turn": 0, "answer": "B", "done": True}


@pytest.mark.parametrize(
    "end",
    [
        '"forw', '"don": fal', '"forward_meters": -', '"forward_meters": 1.', '"x": 1e-', r'"x": "\u00',
        '"x": {"a": 1}', "'forw", '"done"', '"done":', '"done": tru', "",
    ],
)  # fmt: skip
def test_an_action_that_is_cut_off_hides_what_is_in_it(end: str):
    with pytest.raises(ValueError, match="no complete JSON object, only one that is cut off"):
        last_object('I {see}: {"turn": 30, "note": {"answer": "A", "done": true}, ' + end, KEYS)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("turn left please", "no complete JSON object$"),
        ("{1: 2} { } {}", "no complete JSON object$"),
        ('{"turn": left turn}', r'\(expected a comma or a closing bracket: \{"turn": left t\)'),
        ('{"turn": 1 "done": true}', "expected a comma"),
        ('{"turn": 90°}', "expected a comma"),
        ('{"turn": 2m}', "expected a value"),
        ('{"turn": 1/2}', "expected a comma"),
        ('{"turn": --5}', "expected a value"),
        ('{"turn" 5}', "expected a colon"),
        ('{"turn": 5]', "expected a comma"),
        ('{"turn": [5}', "expected a comma"),
        ('{"turn": ,}', "expected a value"),
        ('{"turn": 1,,}', "expected a key"),
        ('{"answer": "a "bed" there", "done": true}', "expected a comma"),
        ('{"note": {"a": 1}} {chair}', "expected a colon"),
        ('{chair} {"angle": 30}', "no JSON object with one of the keys turn, answer, done"),
        ('{"old": {"answer": 1, "done": true}, "answer": two chairs}', "expected a comma"),
    ],
)
def test_what_is_not_clearly_an_action_is_not_read(text: str, why: str):
    with pytest.raises(ValueError, match=why):
        last_object(text, KEYS)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
ACTIONS = st.dictionaries(st.text(), JSON_VALUES, max_size=3).map(lambda fields: {**fields, "done": True})


@settings(max_examples=40)
@given(ACTIONS, st.sampled_from([None, 1]), st.booleans(), st.text(alphabet='{}[]",:a \n'))
def test_all_that_json_writes_is_read(action: dict[str, object], indent: int | None, to_ascii: bool, prose: str):
    text = json.dumps(action, indent=indent, ensure_ascii=to_ascii)
    assert last_object(text, KEYS) == json.loads(text)
    assert last_object(text + "\n" + prose.replace('"', ""), KEYS) == action


@given(st.text(alphabet="{}[]\"':,/*#“” \n\\atrue1.-e", max_size=60), st.sampled_from(["", MOVE]))
def test_any_text_is_read_without_an_error_of_ours(junk: str, rest: str):
    parse_action(junk + rest, CHOICE)


@pytest.mark.parametrize(
    "unit",
    [
        "{", "{ ", "{done} ", '{"', "{}", '{"a":', '{"a":[', '{"a":1,', '{"{":"{",', '{"k":"{', '{"a":' * 199 + "x",
        r'{"\u0064', '{"done": 1111', "{“", "{'", "{//", "{/*", "{#", "{a:'", '{"a{b:1,/*":1,/**/', '{"a":1}',
        "<think>", "</think>", "[THINK", "<|channel", '{"done":1}<think>', '{"a":"<think>',
    ],
)  # fmt: skip
def test_a_megabyte_of_anything_is_read_in_time(unit: str):
    text = unit * (10**6 // len(unit))
    started = time.process_time()
    assert parse_action(text, CHOICE).action == LOOKS
    assert time.process_time() - started < 5


@pytest.mark.parametrize(
    "thought",
    [
        "<think>{}</think>", "<think>\n{}\n</think>\n\n", "{}</think>", "<thinking>{}</thinking>", "<THINK>{}</THINK>",
        "<reasoning>{}</reasoning>", "<thought>{}</thought>", '<think type="long">{}</think >', "[THINK]{}[/THINK]",
        "{}[/THINK]", "◁think▷{}◁/think▷", "{}◁/think▷", "<seed:think>{}</seed:think>",
        "<|START_THINKING|>{}<|END_THINKING|>", "<|begin_of_thought|>{}<|end_of_thought|>", "<unused94>{}<unused95>",
        "<|channel|>analysis<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
        "<|channel>thought\n{}<channel|>", "analysisSo {}assistantfinal", "so {}assistantfinal",
        "<think>I <think> twice: {}</think>", "<think>I end with </think>. {}</think>",
        "<think>a</think>{}<think>b</think>{}</think>", "<reasoning><think>a</think>{}</reasoning>",
    ],
)  # fmt: skip
@pytest.mark.parametrize("last_turn", [False, True])
def test_nothing_in_a_thought_is_an_action(thought: str, last_turn: bool):
    thought = thought.replace("{}", DRAFT)
    right = CameraAction(answer="B", done=True)
    assert parse_action(thought + FINAL, CHOICE, last_turn).action == right
    alone = parse_action(thought + "I turn.", CHOICE, last_turn)
    assert (alone.action, alone.error) == (LOOKS, "the reply holds no complete JSON object behind its thought")


@pytest.mark.parametrize(
    "opening",
    ["<think>", "<thinking>", "[THINK]", "◁think▷", "<|channel|>analysis<|message|>", "analysisWe see ", "<unused94>"],
)
@pytest.mark.parametrize("last_turn", [False, True])
def test_a_reply_that_ends_inside_its_thought_has_no_action_after_it(opening: str, last_turn: bool):
    parsed = parse_action(opening + "so " + DRAFT, CHOICE, last_turn)
    assert (parsed.action, parsed.error) == (LOOKS, "the reply ended inside its thought")
    before = parse_action(FINAL + opening + "so " + DRAFT, CHOICE, last_turn)
    assert before.action == CameraAction(answer="B", done=True) or opening.startswith("analysis")


@pytest.mark.parametrize(
    "text",
    [
        FINAL + "<think>Was {} right?</think>",
        '{"thought": "I <think>see</think> {it}", "answer": "B", "done": true}',
        "The analysis is short. <b>Final</b>: " + FINAL + "<|end|>",
        "I think </b> <thinker> [think of it] " + FINAL,
        '{"thought": "I would write <think> here", "answer": "B", "done": true}',
        '{"thought": "Two chairs.</think>", "answer": "B", "done": true}',
        'So: {"note": "</think> {} <think>", "answer": "B", "done": true} Done.'.replace("{}", "[THINK]"),
        '<think>as in {"thought": "</think>", "answer": "A", "done": true}</think>' + FINAL,
    ],
)
def test_what_is_outside_thoughts_counts(text: str):
    assert parse_action(text.replace("{}", DRAFT), CHOICE).action == CameraAction(answer="B", done=True)


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ('"rotation_angle_degrees": "30 degrees"', CameraAction(rotation_angle_degrees=30)),
        ('"rotation_angle_degrees": "\u221230\u00b0", "forward_meters": "0.5m"', CameraAction(-30, 0.5)),
        ('"left_meters": "+0.5 Meters", "done": "no"', CameraAction(left_meters=0.5)),
        ('"move": {"rotation_angle_degrees": 30, "forward_meters": "1"}, "done": 0', CameraAction(30, 1)),
        ('"actions": [{"forward_meters": 1}, {"forward_meters": 0.5}], "answer": null', CameraAction(0, 0.5)),
        ('"forward_meters": 1, "before": {"forward_meters": 0.5}', CameraAction(0, 1)),
        ('"answer": "B", "done": "Yes"', CameraAction(answer="B", done=True)),
        ('"answer": "B", "done": 1', CameraAction(answer="B", done=True)),
    ],
)
def test_numbers_and_flags_are_read_as_models_write_them(fields: str, action: CameraAction):
    parsed = parse_action("{" + fields + "}", CHOICE)
    assert (parsed.action, parsed.error) == (action, None)


@pytest.mark.parametrize(
    "fields",
    ['"rotation_angle_degrees": "0.5 m"', '"forward_meters": "50 cm"', '"forward_meters": "0,5"', '"done": 2',
     '"done": 1.0', '"rotation_angle_degrees": ""', '"done": "maybe"'],
)  # fmt: skip
def test_numbers_and_flags_that_are_something_else_are_not_guessed(fields: str):
    parsed = parse_action("{" + fields + "}", CHOICE)
    assert parsed.action == LOOKS and parsed.error is not None and "must be" in parsed.error


@pytest.mark.parametrize(
    "written", ["**B**", "`B`", "[B]", "$B$", r"\\(B\\)", r"\\boxed{B}", r"\boxed{\\text{B}}", "**(B)**"]
)
def test_markdown_and_latex_around_an_answer_are_left_out(written: str):
    for last_turn in (False, True):
        parsed = parse_action('{"answer": "' + written + '", "done": true}', CHOICE, last_turn)
        assert parsed.action == CameraAction(answer="B", done=True)


FULL_WIDTH = {code: chr(code + 0xFEE0) for code in range(0x21, 0x7F)}
STOPS = str.maketrans({".": "。", ",": "，", ":": "：", ";": "；", "!": "！"})


def as_in_chinese(text: str) -> list[str]:
    """A text with full-width characters, and with full-width punctuation alone, which no space follows."""
    words = re.sub(r"(?<=[.,:;]) ", "", text)
    return [words.translate(FULL_WIDTH), words.translate(STOPS)]


KINDS = {"letter": LETTER_KIND, "yes_no": YES_NO_KIND, "number": Number("m"), "pose": POSE_KIND}


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        *(("letter", text) for text in ("A", "b", "A.", "(B)", "A) left", "A: left", "B. the door", "**B**")),
        *(("yes_no", text) for text in ("Yes", "no.", "NO!", "Yes, behind the door", "No; it is there")),
        *(("number", text) for text in ("3", "12 m", "-7", "1e3")),
        ("pose", "here"),
    ],
)
def test_an_answer_in_full_width_is_the_same_answer(kind: str, written: str):
    answer = KINDS[kind].parse(written, ("A", "B"))
    assert answer is not None
    found = [KINDS[kind].parse(text, ("A", "B")) for text in as_in_chinese(written)]
    assert found == [answer] * 2


@pytest.mark.parametrize("text", ["A、left", "A、 the door", "A、左", "A。左边", "Ａ。"])
def test_a_letter_may_be_numbered_as_in_chinese(text: str):
    parsed = parse_action(json.dumps({"answer": text, "done": True}, ensure_ascii=False), CHOICE)
    assert (parsed.action, parsed.error) == (CameraAction(answer="A", done=True), None)


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        *(("letter", text) for text in ("ＡＢ", "A、B", "A、 B", "A，B", "Ａ chair", "Ｄ")),
        *(("yes_no", text) for text in ("ｎｏ idea", "Yes、no", "Janein", "ja nein", "1")),
        *(("number", text) for text in ("３，５", "約３")),
        ("pose", "ｔｈｅｒｅ"),
    ],
)
def test_what_is_not_read_in_ascii_is_not_read_in_full_width(kind: str, written: str):
    assert KINDS[kind].parse(written, ("A", "B")) is None


@pytest.mark.parametrize(
    "around", ["{}", "<tool_call>\n{}\n</tool_call>", "[{}]", '{{"type": "function", "function": {}}}']
)
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize(
    "arguments", [json.loads(MOVE), json.loads(FINAL), {"answer": "B", "done": True, "note": '"B"'}]
)
def test_the_arguments_of_a_function_call_may_be_text(around: str, indent: int | None, arguments: dict[str, object]):
    as_text = json.dumps(arguments, indent=indent)
    calls = [json.dumps({"name": "answer", "arguments": each}) for each in (arguments, as_text)]
    as_object, as_string = (parse_action(around.format(call), CHOICE) for call in calls)
    assert as_string == as_object and as_object.error is None


@pytest.mark.parametrize(
    "call",
    [{"name": "answer", "arguments": "B"}, {"name": "answer", "arguments": '{"x": 1}'},
     {"arguments": FINAL}, {"name": "answer", "note": FINAL}],
)  # fmt: skip
def test_other_text_in_a_call_is_not_an_action(call: dict[str, str]):
    with pytest.raises(ValueError, match="no JSON object with one of the keys"):
        last_object(json.dumps(call), KEYS)


def test_text_answers_keep_what_is_around_them():
    assert (Number("m").parse("**2.5 m**", ()), TEXT_KIND.parse("**2**", ())) == ("2.5", "**2**")
