"""The format of replies and their parser, as pure functions of strings."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from roomscout.agent.policies.lenient_json import last_object, object_spans, with_any
from roomscout.agent.policies.thoughts import has_tags, outside_thoughts
from roomscout.data.answers import NUMBER, UNIT_WORDS
from roomscout.data.questions import Question
from roomscout.envs.actions import LIMITS, CameraAction, CameraMove
from roomscout.models import ReplyFormat

ACTION_KEYS = (*LIMITS, "answer", "done")

UNITS = {"degrees": ("degrees", "degree", "deg", "°"), "meters": UNIT_WORDS["m"]}
"""What may follow a number that is a text, by the unit in the name of the number."""
SHOWN_CHARACTERS = 40


def _grammar(numbers: Iterable[str]) -> str:
    keys = " ".join(rf'"\"{name}\":" blank number "," blank' for name in numbers)
    return rf"""
root ::= prose "{{" blank {keys} decision blank "}}"
prose ::= [^{{]*
decision ::= "\"answer\":" blank (looking | answered)
looking ::= "null," blank "\"done\":" blank "false"
answered ::= (text | number) "," blank "\"done\":" blank ("true" | "false")
text ::= "\"" [^"\\\u0000-\u001f]{{1,80}} "\""
number ::= "-"? ("0" | [1-9] [0-9]{{0,3}}) ("." [0-9]{{1,4}})?
blank ::= [ \n]{{0,8}}
"""


def _schema(numbers: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            "thought": {"type": "string"},
            **{name: {"type": "number"} for name in numbers},
            "answer": {"type": ["string", "number", "null"]},
            "done": {"type": "boolean"},
        },
        "required": ["thought", *numbers, "answer", "done"],
        "additionalProperties": False,
    }


ACTION_GRAMMAR = _grammar(LIMITS)
"""GBNF for xgrammar: prose without braces, then one object with the six keys in the prompt's order, then the end.
`done` may be true only with an answer."""

ACTION_SCHEMA = _schema(tuple(LIMITS))
"""JSON schema of the action, for servers. It allows no prose before the object, so the thought is the first key."""

TURNS_ONLY = ("rotation_angle_degrees",)
"""The numbers of an action without translation."""

LOOK_AROUND = CameraAction(rotation_angle_degrees=45.0)
"""The action for an unreadable reply: the next view at least shows something new."""


@dataclass(frozen=True)
class ParsedAction:
    """The action parsed from a reply.

    `clamped` names each value outside its range as "name value -> limit". `error` says what was wrong with the reply;
    the action is then `LOOK_AROUND`.
    """

    action: CameraAction
    clamped: tuple[str, ...] = ()
    error: str | None = None


class _ReplyError(ValueError):
    """A reply that cannot be parsed. The model sees the message."""


def action_format(constrained: bool = False) -> ReplyFormat:
    """The format of a reply: prose and one action object.

    With `constrained`, decoding rules out tokens that would make the object malformed.
    """
    return ReplyFormat(ACTION_GRAMMAR, ACTION_SCHEMA) if constrained else ReplyFormat()


def without_translation(form: ReplyFormat) -> ReplyFormat:
    """A format of `action_format` whose action has only a rotation, an answer and whether it is done."""
    if form.grammar is None:
        return form
    return replace(form, grammar=_grammar(TURNS_ONLY), schema=_schema(TURNS_ONLY))


def parse_action(text: str, question: Question, last_turn: bool = False) -> ParsedAction:
    """Parse the last action of a reply; never raises.

    An action is a JSON object with one of ACTION_KEYS outside the thoughts of models that reason (`outside_thoughts`);
    `last_object` says how it is read. Missing numbers default to 0, and unknown keys are ignored. `done` without a
    valid answer, a non-finite number, or a missing object give `LOOK_AROUND` and an `error`. On the last turn only the
    answer counts; if it is invalid as a whole, its first word is used, as in the official scoring.
    """
    try:
        fields = _action_in(text)
        if last_turn and (answer := _last_answer(fields.get("answer"), question)) is not None:
            return ParsedAction(CameraAction(answer=answer, done=True))
        return _read(fields, question)
    except _ReplyError as error:
        return ParsedAction(LOOK_AROUND, error=str(error))


def _action_in(text: str) -> dict[str, object]:
    quoting = object_spans(text, ACTION_KEYS) if has_tags(text) else ()
    said, inside_thought = outside_thoughts(text, quoting)
    try:
        return _with_nested_numbers(last_object(said, ACTION_KEYS))
    except ValueError as error:
        if inside_thought:
            raise _ReplyError("the reply ended inside its thought") from None
        behind = " behind its thought" if said != text else ""
        raise _ReplyError(f"the reply holds {error}{behind}") from None


def _with_nested_numbers(fields: dict[str, object]) -> dict[str, object]:
    """An action that has its numbers in an object of their own, such as {"move": {...}, "done": false}, with them."""
    if any(name in fields for name in LIMITS):
        return fields
    nested = with_any([each for name, each in fields.items() if name not in ACTION_KEYS], tuple(LIMITS)) or {}
    return {name: value for name, value in nested.items() if name in LIMITS} | fields


def _last_answer(value: object, question: Question) -> str | None:
    """The answer of the last turn: `value`, or its first word if that alone is valid."""
    whole = question.parse_answer(value)
    if whole is None and isinstance(value, str) and value.strip():
        return question.parse_answer(value.split()[0])
    return whole


def _read(fields: dict[str, object], question: Question) -> ParsedAction:
    numbers, clamped = {}, []
    for name, limit in LIMITS.items():
        value = _finite(name, fields.get(name))
        numbers[name] = min(max(value, -limit), limit)
        if numbers[name] != value:
            clamped.append(f"{name} {value:g} -> {numbers[name]:g}")
    answer = question.parse_answer(fields.get("answer"))
    done = _flag(fields.get("done"))
    if done and answer is None:
        why = question.kind.why_invalid(_shown(fields.get("answer")), question.letters)
        raise _ReplyError(f"done is true, but {why}")
    return ParsedAction(CameraAction.of(CameraMove(*numbers.values()), answer, done), tuple(clamped))


def _finite(name: str, value: object) -> float:
    if value is None:
        return 0.0
    if isinstance(value, str):
        value = _number_in(name, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _ReplyError(f"{name} must be a number, not {_shown(value)}")
    if not abs(value) < math.inf:  # also false for NaN, and an int too large for a float compares without raising
        raise _ReplyError(f"{name} must be a finite number")
    return float(min(max(value, -1e9), 1e9))


def _number_in(name: str, text: str) -> float | str:
    """The number in a text, alone or with the unit that the name says; the text itself if it is anything else."""
    number = NUMBER.match(plain := text.strip().replace("\u2212", "-"))
    if number is None or plain[number.end() :].strip().lower() not in ("", *UNITS[name.rsplit("_", 1)[1]]):
        return text
    return float(number[0])


def _flag(value: object) -> bool:
    said = str(value).strip().lower().rstrip(".")
    if not isinstance(value, float) and said in ("true", "yes", "1", "false", "no", "0"):
        return said in ("true", "yes", "1")
    if value is not None and not isinstance(value, bool):
        raise _ReplyError(f"done must be true or false, not {_shown(value)}")
    return bool(value)


def _shown(value: object) -> str:
    """A value as JSON, shortened for a message; only the type of lists and objects, which may be deeply nested."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."
