"""The format of replies and their parser, as pure functions of strings."""

from contextlib import AbstractContextManager
from typing import Any

from roomscout.agent.actions import METRIC, ActionSpace
from roomscout.agent.actions.space import ActionSpaceError, Read, shown
from roomscout.agent.policies import Decision
from roomscout.agent.policies.lenient_json import last_object, object_spans, with_any
from roomscout.agent.policies.thoughts import has_tags, outside_thoughts
from roomscout.base.loading import code_of_others
from roomscout.data.answers import first_word
from roomscout.data.questions import Question
from roomscout.data.video_protocol import VideoProtocol
from roomscout.envs.actions import CameraAction
from roomscout.models import ReplyFormat

MOST_IN_LIST = 8
"""Longer lists are recorded by their type alone."""


def action_format(constrained: bool = False, space: ActionSpace = METRIC) -> ReplyFormat:
    """The format of a reply: prose and one action object.

    With `constrained`, decoding rules out tokens that would make the object malformed.
    """
    return ReplyFormat(space.grammar, space.schema) if constrained else ReplyFormat()


def parse_action(
    text: str,
    question: Question,
    last_turn: bool = False,
    space: ActionSpace = METRIC,
    place: Any = None,
) -> Decision:
    """Parse the last action of a reply; raises ActionSpaceError or AnswerKindError for an error in a user's code alone.

    An action is a JSON object with one of the keys of `space` outside the thoughts of models that reason
    (`outside_thoughts`); `last_object` says how it is read. Unknown keys are ignored. `place`, a Place, is where the
    camera is, for spaces that need it. `done` without a valid answer, what the space cannot read, or a missing object
    give its fallback and an `error`. On the last turn only the answer counts; if it is invalid as a whole, its first
    word is used, as in the official scoring.
    """
    try:
        fields = _action_in(text, space)
        if last_turn and (answer := _last_answer(fields.get("answer"), question)) is not None:
            return Decision(CameraAction(answer=answer, done=True))
        return _read(fields, question, space, place)
    except ValueError as error:
        with _code_of(space, "fallback"):
            return Decision(CameraAction.of(space.fallback), error=str(error))


def parse_video_answer(text: str, question: Question, video: VideoProtocol) -> Decision:
    """The answer in a reply to frames of a video; with an `error` if there is none. Raises AnswerKindError."""
    with question.kind_code("parse"):
        answer = video.read(text, question.kind, question.letters)
    if answer is None:
        return Decision(CameraAction(), error=question.why_invalid(shown(first_word(text)[:80])))
    return Decision(CameraAction(answer=answer, done=True))


def _code_of(space: ActionSpace, method: str) -> AbstractContextManager[None]:
    """Names errors of a space's code, which may be a user's, as ActionSpaceError, but for ValueErrors."""
    what = f"the {method} of the action space {space.name}"
    return code_of_others(what, lambda why: ActionSpaceError(f"{why}: fix it"), ValueError)


def _action_in(text: str, space: ActionSpace) -> dict[str, object]:
    keys = space.all_keys
    quoting = object_spans(text, keys) if has_tags(text) else ()
    said, inside_thought = outside_thoughts(text, quoting)
    try:
        fields = last_object(said, keys)
    except ValueError as error:
        if inside_thought:
            raise ValueError("the reply ended inside its thought") from None
        behind = " behind its thought" if said != text else ""
        raise ValueError(f"the reply holds {error}{behind}") from None
    if any(name in fields for name in space.keys):
        return fields
    # what moves the camera may be in an object of its own, such as {"move": {...}, "done": false}
    nested = with_any([each for name, each in fields.items() if name not in keys], tuple(space.keys)) or {}
    return {name: value for name, value in nested.items() if name in space.keys} | fields


def _last_answer(value: object, question: Question) -> str | None:
    """The answer of the last turn: `value`, or its first word if that alone is valid."""
    whole = question.parse_answer(value)
    if whole is None and isinstance(value, str) and value.strip():
        return question.parse_answer(value.split()[0])
    return whole


def _read(fields: dict[str, object], question: Question, space: ActionSpace, place: Any) -> Decision:
    with _code_of(space, "read"):
        read = Read(*space.read(fields, place))
    answer = question.parse_answer(fields.get("answer"))
    done = _flag(fields.get("done"))
    if done and answer is None:
        raise ValueError(f"done is true, but {question.why_invalid(shown(fields.get('answer')))}")
    said = {} if space is METRIC else {name: _recorded(fields[name]) for name in space.keys if name in fields}
    action = CameraAction.of(read.move, answer, done)
    return Decision(action, clamped=tuple(read.clamped), fields=said, uses=tuple(read.uses))


def _recorded(value: object, depth: int = 2) -> str | float | list[Any] | None:
    """A value as a record can hold it: short lists, and lists in them; of others and of objects only their type."""
    if isinstance(value, list) and len(value) <= MOST_IN_LIST and depth:
        return [_recorded(each, depth - 1) for each in value]
    if isinstance(value, float | int):
        return value if abs(value) < 1e9 else str(value)[:20]
    if value is None:
        return None
    text = value if isinstance(value, str) else shown(value)
    return text.encode(errors="replace").decode()


def _flag(value: object) -> bool:
    said = str(value).strip().lower().rstrip(".")
    if not isinstance(value, float) and said in ("true", "yes", "1", "false", "no", "0"):
        return said in ("true", "yes", "1")
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"done must be true or false, not {shown(value)}")
    return bool(value)
