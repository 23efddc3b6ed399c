"""The format of replies and their parser: thoughts are skipped, then the last action is read."""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np

from roomscout.agent.actions import find_space
from roomscout.agent.actions.metric import METRIC
from roomscout.agent.actions.space import ActionSpace, ActionSpaceError, Read, shown
from roomscout.agent.policies import Decision
from roomscout.agent.policies.lenient_json import last_list, last_object, object_spans, with_any
from roomscout.base.errors import SettingError
from roomscout.base.loading import code_of_others
from roomscout.data.answers import first_word
from roomscout.data.benchmark import VideoProtocol
from roomscout.data.questions import Question
from roomscout.data.yes_no import YES_OR_NO
from roomscout.envs.actions import CameraAction
from roomscout.models import Reply, ReplyFormat
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.runs import RunError
from roomscout.runs.beliefs import Belief, believed
from roomscout.runs.reader import RunReader
from roomscout.runs.recorded_benchmarks import TRUST
from roomscout.runs.records import SeenPoint, Turn

_NAMES = "(?:seed:|longcat_)?think|thinking|thoughts?|reasoning|reflection|analysis|scratchpad"
_TAG = re.compile(
    rf"""
    (?P<closing>
        </(?:{_NAMES})\s*> | \[/THINK\] | ◁/think▷ | <\|END_THINKING\|> | <\|end_of_thought\|> | <unused95>
        | <\|?channel\|?>\s*(?:final|commentary)\b | <channel\|> | assistantfinal | assistantcommentary
    )
    | (?P<opening>
        <(?:{_NAMES})(?:\s[^<>/]*)?> | \[THINK\] | ◁think▷ | <\|START_THINKING\|> | <\|begin_of_thought\|> | <unused94>
        | <\|?channel\|?>\s*(?:analysis|thought)\b | \A\s*analysis(?=(?-i:[A-Z]))
    )
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""What opens and closes a thought: <think> of DeepSeek, Qwen, GLM and many others and its variants, [THINK] of
Magistral, the diamonds of Kimi, the tokens of Command A, OpenThinker and MedGemma, and the channels of Gemma and
gpt-oss, also without their special tokens, which some servers leave out."""

_FLAGS = YES_OR_NO | {"1": True, "0": False}


def action_format(constrained: bool = False, space: ActionSpace = METRIC) -> ReplyFormat:
    """The format of a reply: prose and one action object, which decoding cannot make malformed if `constrained`."""
    return ReplyFormat(space.grammar, space.schema) if constrained else ReplyFormat()


def parse_action(
    text: str, question: Question, last_turn: bool = False, space: ActionSpace = METRIC, place: Any = None
) -> Decision:
    """Parse the last action of a reply; raises ActionSpaceError or AnswerKindError for an error in a user's code alone.
    An action is a JSON object with one of the keys of `space`, as `last_object` reads it, `outside_thoughts`. Unknown
    keys are ignored. `place`, a Place, is where the camera is, for spaces that need it. `done` without a valid answer,
    what the space cannot read, or a missing object give its fallback and an `error`. On the last turn only the answer
    counts; if it is invalid as a whole, its first word is used, as in the official scoring."""
    try:
        fields = _action_in(text, space)
        said = fields.get("answer")
        if last_turn:
            first = said.split()[:1] if isinstance(said, str) else []
            for words in (said, *first):
                answer = question.parse_answer(words)
                if answer is not None:
                    return Decision(CameraAction(answer=answer, done=True))
        with _code_of(space, "read"):
            read = Read(*space.read(fields, place))
        answer = question.parse_answer(said)
        flag = fields.get("done")
        done = False if flag is None else _FLAGS.get(str(flag).strip().lower().rstrip("."))
        if done is None:
            raise ValueError(f"done must be true or false, not {shown(flag)}")
        if done and answer is None:
            raise ValueError(f"done is true, but {question.why_invalid(shown(said))}")
        written = {} if space is METRIC else {name: _recorded(fields[name]) for name in space.keys if name in fields}
        action = CameraAction.of(read.move, answer, done)
        return Decision(action, clamped=tuple(read.clamped), fields=written, uses=tuple(read.uses))
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


def read_map(reply: Reply) -> Belief:
    """Where a reply says objects are, in its last JSON list outside thoughts; with an `error` if there is none."""
    try:
        return Belief(believed(last_list(outside_thoughts(reply.text)[0], "object")), reply=reply)
    except ValueError as error:
        limit = f"; the reply ended at its limit of {reply.generated_tokens} tokens"
        return Belief(error=str(error) + (limit if reply.finish_reason == "length" else ""), reply=reply)


def _code_of(space: ActionSpace, method: str) -> AbstractContextManager[None]:
    """Names errors of a space's code, which may be a user's, as ActionSpaceError, but for ValueErrors."""
    what = f"the {method} of the action space {space.name}"
    return code_of_others(what, lambda why: ActionSpaceError(f"{why}: fix it"), ValueError)


def _action_in(text: str, space: ActionSpace) -> dict[str, object]:
    keys = space.all_keys
    quoting = object_spans(text, keys) if _TAG.search(text) else ()
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
    others = [value for name, value in fields.items() if name not in keys]
    nested = with_any(others, tuple(space.keys)) or {}
    return {name: value for name, value in nested.items() if name in space.keys} | fields


def _recorded(value: object, depth: int = 2) -> str | float | list[Any] | None:
    """A value as a record can hold it: lists of up to 8, and lists in them; of others and objects only their type."""
    if isinstance(value, list) and len(value) <= 8 and depth:
        return [_recorded(part, depth - 1) for part in value]
    if isinstance(value, float | int):
        return value if abs(value) < 1e9 else str(value)[:20]
    if value is None:
        return None
    text = value if isinstance(value, str) else shown(value)
    return text.encode(errors="replace").decode()


def outside_thoughts(text: str, quoting: Iterable[tuple[int, int]] = ()) -> tuple[str, bool]:
    """A reply without its thoughts, and whether it ends inside one; tags within the spans `quoting` are no tags. All
    before a closing tag is a thought if no tag opens it: many chat templates end with the opening tag. A tag that is
    not closed makes all behind it a thought. Tags do not nest: models that mention one in a thought close it once."""
    said = list[str]()
    start = 0
    inside = False
    quoted = [(0, 0), *quoting]
    for tag in _TAG.finditer(text):
        if tag.start() < quoted[bisect_right(quoted, tag.start(), key=lambda span: span[0]) - 1][1]:
            continue
        if tag["opening"] is not None:
            if not inside:
                said.append(text[start : tag.start()])
            inside = True
        else:
            said = said if inside else []
            inside = False
            start = tag.end()
    if not inside:
        said.append(text[start:])
    return "".join(said), inside


@dataclass(frozen=True)
class RecordedPlace:
    """Where the camera was in a turn and in turn 0, and the `points` it recorded; `camera` is None if not known."""

    pose: CameraPose
    start: CameraPose
    camera: Intrinsics | None
    points: Sequence[SeenPoint] = ()

    def surface_at(self, x: float, y: float) -> np.ndarray | None:
        """The point that was at a pixel, (3,) world metres, None in a hole; raises ValueError unless it is recorded."""
        point = next((point for point in self.points if point.pixel == (x, y)), None)
        if point is None:
            raise ValueError(f"the run has not recorded what its view shows at [{x:g}, {y:g}]")
        return None if point.surface is None else np.array(point.surface)

    def pixel_of_mark(self, number: int) -> tuple[float, float] | None:
        """The pixel of a mark that the turn's reply named; None for others."""
        return next((point.pixel for point in self.points if point.mark == number), None)


def parser_of(reader: RunReader, allow_code: bool) -> Callable[[Turn, Turn, Question, bool], Decision]:
    """A parser of replies as a run read them: it takes a turn, its first turn, the question and whether it must answer.
    Raises RunError if the space cannot be loaded, or is in a user's file, unless `allow_code` lets it be executed."""
    if reader.facts.setting("present") == "video":
        video = reader.benchmark.video
        if video is None:
            raise RunError(f"{reader.folder}: how its replies are read is in the code of its benchmark: {TRUST}")
        return lambda turn, first, question, last_turn: parse_video_answer(turn.reply.text, question, video)
    name = reader.facts.setting("actions")
    camera = reader.facts.intrinsics
    if ":" in name and not allow_code:
        raise RunError(f"{reader.folder} has the actions of {name}, which is code: {TRUST}")
    try:
        space = find_space(name)
    except SettingError as error:
        raise RunError(f"{reader.folder}: {error}") from error

    def parse(turn: Turn, first: Turn, question: Question, last_turn: bool) -> Decision:
        place = RecordedPlace(turn.pose, first.pose, camera, turn.points)
        return parse_action(turn.reply.text, question, last_turn, space, place)

    return parse
