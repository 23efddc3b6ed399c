"""Where a reply is complete: found in one pass, however the reply is divided into pieces or tokens."""

import json
import re
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from roomscout.agent.policies.object_scanner import MAX_DEPTH, MAX_INTEGER_DIGITS
from roomscout.agent.policies.replies import ActionScanner, action_format, last_object
from roomscout.models import EXPLORER, ReplyFormat
from roomscout.models.transformers.decoding import CompletionCheck

MEGABYTE = 10**6
TOKENIZER = AutoTokenizer.from_pretrained(EXPLORER)


def scan_with_json(text: str) -> Iterator[dict[str, object] | str | None]:
    """Objects, errors, and None for a number that is too long; a slow reference for texts that end in "}" or "~"."""
    decoder, start = json.JSONDecoder(), text.find("{")
    while start != -1:
        scanned: dict[str, object] | str | None = None
        end = start + 1
        try:
            scanned, end = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            if error.pos == len(text) or error.msg.startswith("Unterminated string"):
                return
            scanned = error.msg
        except ValueError:
            pass
        yield scanned
        start = text.find("{", end)


def has_action(text: str) -> bool:
    for scanned in scan_with_json(text):
        if scanned is None:
            return False
        if isinstance(scanned, dict) and "done" in scanned:
            return True
    return False


def first_end(text: str) -> int | None:
    """The length of the shortest prefix that ends in "}" and has an action."""
    ends = (brace.end() for brace in re.finditer("}", text))
    return next((end for end in ends if has_action(text[:end])), None)


FRAGMENTS = (
    *'{}{}{}[]""\\:,-.eE+01 \n\t\x01\x7fé',
    *('{"done":', '"done"', '"done":true', "done", '{"a":', '"a"', '"a":1,', '{"', '"}', '": "', "},", "{}", "[{}]"),
    *(r"\u0064", r"\u", "00", r'"d\u006fne"', r"\"", r"\\", r"\n", r"\ud83d", r"\ud83d\ude00"),
    *(
        "true",
        "false",
        "null",
        "tru",
        "NaN",
        "Infinity",
        "-Infinity",
        "-I",
        "1.5",
        "1e5",
        "1.",
        "1" * MAX_INTEGER_DIGITS,
    ),
)
FRAGMENT = st.sampled_from(FRAGMENTS)
NESTED = '{"x": {"done": true, "t": "a {\\"b\\": {"}, "y": [{"done": 1}, "} {"], "z": -1.5e3}'
DAMAGED = st.lists(st.tuples(st.integers(0, len(NESTED)), FRAGMENT), min_size=1, max_size=4)


def damaged(changes: list[tuple[int, str]]) -> str:
    text = NESTED
    for position, fragment in changes:
        text = text[:position] + fragment + text[position + len(fragment) % 2 :]
    return text


TEXTS = st.lists(FRAGMENT, max_size=30).map("".join) | st.builds(
    lambda changes, rest: damaged(changes) + "".join(rest), DAMAGED, st.lists(FRAGMENT, max_size=8)
)


def fed(text: str, sizes: list[int]) -> int | None:
    """What a scanner finds in pieces of these sizes, over and over."""
    scanner, begin, end = ActionScanner(), 0, None
    while begin < len(text) and end is None:
        for size in sizes:
            end = end or scanner.feed(text[begin : begin + size])
            begin += size
    return end


@given(TEXTS, st.lists(st.integers(1, 9), min_size=1, max_size=5))
@example('{"x": {"done": true} oops} and more}', [1])
@example('{"x": {"done": true} oops', [3])
@example('{"a": {"b": "{"}, {"done": 1}}}', [2])
@example(r'{"\u0064on\u0065": 1}', [1])
@example(r'{"\u0064on\u00}": 1} {"done": 1}', [4])
@example('{"a": ' + "1" * 4301 + '} {"done": 1}', [7])
@example('{"a": ' + "1" * 4301 + '.5} {"done": 1}', [7])
@example('{"a": ' + "1" * 4301 + '.} {"done": 1}', [7])
def test_a_reply_ends_at_the_first_brace_by_which_json_finds_an_action(text: str, sizes: list[int]):
    assert fed(text, sizes) == action_format().end_of(text) == first_end(text)


@given(TEXTS.map(lambda text: text + "~"))
def test_the_last_object_is_the_last_that_json_finds(text: str):
    objects = [each for each in scan_with_json(text) if isinstance(each, dict)]
    try:
        found = repr(last_object(text))  # NaN does not equal itself
    except ValueError:
        found = None
    assert found == (repr(objects[-1]) if objects else None)


@pytest.mark.parametrize(("depth", "ends"), [(MAX_DEPTH, True), (MAX_DEPTH + 1, False)])
def test_objects_are_read_up_to_a_fixed_depth(depth: int, ends: bool):
    text = '{"done": ' + "[" * (depth - 1) + "]" * (depth - 1) + "}"
    assert (action_format().end_of(text) == len(text)) == ends


def test_an_object_that_is_too_deep_hides_all_that_follow():
    text = '{"answer": "A"} ' + '{"a":' * 5000 + ' {"answer": "B", "done": true}'
    assert action_format().end_of(text + "}" * 5000) is None
    assert last_object(text) == {"answer": "A"}


@pytest.mark.parametrize(
    "fragment",
    [
        "{done} ",
        '{"',
        "{}",
        '{"a":',
        '{"a":[',
        '{"a":1,',
        '{"{":"{",',
        '{"k":"{',
        '{"a":' * 199 + "x",
        r'{"\u0064',
        '{"done": ' + "1" * MEGABYTE,
        '{"a": "' + "{}" * MEGABYTE,
        '{"a": [' + "{}," * (MEGABYTE // 3) + "x",
        'done {"a":' + '{"a":' * (MEGABYTE // 5) + "}" * MEGABYTE,
    ],
    ids=lambda fragment: fragment[:12],
)
def test_a_megabyte_without_an_action_is_read_in_one_pass(fragment: str):
    text = (fragment * (MEGABYTE // len(fragment) + 1))[:MEGABYTE]
    assert fed(text, [40_000]) is None


class Recorder:
    """A scanner that never finds the end and keeps what it is fed."""

    def __init__(self) -> None:
        self.text = ""

    def feed(self, text: str) -> int | None:
        self.text += text
        return None


CLOSING_IDS = sorted(id for token, id in TOKENIZER.get_vocab().items() if "}" in token)
IDS = st.lists(st.integers(0, len(TOKENIZER) - 1) | st.sampled_from(CLOSING_IDS), max_size=40)
ENCODED = st.lists(st.text(max_size=4) | st.sampled_from(["}", "}é", "喵}", "🪑", "\ufffd}"]), max_size=12).map(
    lambda parts: TOKENIZER("".join(parts))["input_ids"]
)


@given(IDS | ENCODED)
def test_text_decoded_token_by_token_equals_text_decoded_at_once(ids: list[int]):
    recorder = Recorder()
    check = CompletionCheck(TOKENIZER, ReplyFormat(lambda: recorder, "}"))
    for count, token in enumerate(ids, 1):
        check.append(token)
        if "}" in TOKENIZER.convert_ids_to_tokens(token):
            assert recorder.text == TOKENIZER.decode(ids[:count]).rstrip("\ufffd")


@given(TEXTS)
def test_generation_stops_at_the_token_that_completes_the_reply(text: str):
    ids = TOKENIZER(text)["input_ids"]
    check = CompletionCheck(TOKENIZER, action_format())
    stopped = next((count for count, token in enumerate(ids, 1) if check.append(token)), None)
    expected = (count for count in range(1, len(ids) + 1) if first_end(TOKENIZER.decode(ids[:count])))
    assert stopped == next(expected, None)
