"""The parser of the replies of a recorded run."""

from collections.abc import Callable
from dataclasses import dataclass

from roomscout.agent.actions import find_space, is_users
from roomscout.agent.config import ConfigError
from roomscout.agent.policies.replies import ParsedAction, parse_action
from roomscout.data.questions import Question
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.recorded_benchmarks import TRUST
from roomscout.runs.records import Turn


@dataclass(frozen=True)
class RecordedPlace:
    """Where the camera was in a turn, and in turn 0; `camera` is None if the run does not say what drew its views."""

    pose: CameraPose
    start: CameraPose
    camera: Intrinsics | None


def parser_of(reader: RunReader, allow_code: bool) -> Callable[[Turn, Turn, Question, bool], ParsedAction]:
    """A parser in the action space of a run: it takes a turn, its first turn, the question and whether it must answer.

    Raises RunError if the space cannot be loaded, or is in a file of a user's, unless `allow_code` lets it be executed.
    """
    name, camera = reader.facts.setting("actions"), reader.facts.intrinsics
    if is_users(name) and not allow_code:
        raise RunError(f"{reader.folder} has the actions of {name}, which is code: {TRUST}")
    try:
        space = find_space(name)
    except ConfigError as error:
        raise RunError(f"{reader.folder}: {error}") from error

    def parse(turn: Turn, first: Turn, question: Question, last_turn: bool) -> ParsedAction:
        return parse_action(turn.reply.text, question, last_turn, space, RecordedPlace(turn.pose, first.pose, camera))

    return parse
