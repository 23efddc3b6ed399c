"""The parser of the replies of a recorded run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from roomscout.agent.actions import find_space, is_users
from roomscout.agent.policies import Decision
from roomscout.agent.policies.replies import parse_action, parse_video_answer
from roomscout.base.errors import ConfigError
from roomscout.data.questions import Question
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.recorded_benchmarks import TRUST
from roomscout.runs.records import SeenPoint, Turn


@dataclass(frozen=True)
class RecordedPlace:
    """Where the camera was in a turn, and in turn 0; `camera` is None if the run does not say what drew its views.

    Of the scan it knows the `points` that the turn recorded.
    """

    pose: CameraPose
    start: CameraPose
    camera: Intrinsics | None
    points: Sequence[SeenPoint] = ()

    def surface_at(self, x: float, y: float) -> np.ndarray | None:
        """The point that was at a pixel, (3,) world metres, None in a hole; raises ValueError unless it is recorded."""
        found = next((each for each in self.points if each.pixel == (x, y)), None)
        if found is None:
            raise ValueError(f"the run has not recorded what its view shows at [{x:g}, {y:g}]")
        return None if found.surface is None else np.array(found.surface)

    def pixel_of_mark(self, number: int) -> tuple[float, float] | None:
        """The pixel of a mark that the turn's reply named; None for others."""
        return next((each.pixel for each in self.points if each.mark == number), None)


def parser_of(reader: RunReader, allow_code: bool) -> Callable[[Turn, Turn, Question, bool], Decision]:
    """A parser in the action space of a run: it takes a turn, its first turn, the question and whether it must answer.

    For a run on frames of videos, a parser by the video protocol of its benchmark. Raises RunError if the space cannot
    be loaded, or is in a file of a user's, unless `allow_code` lets it be executed.
    """
    if reader.facts.setting("present") == "video":
        video = reader.benchmark.video
        if video is None:
            raise RunError(f"{reader.folder}: how its replies are read is in the code of its benchmark: {TRUST}")
        return lambda turn, first, question, last_turn: parse_video_answer(turn.reply.text, question, video)
    name, camera = reader.facts.setting("actions"), reader.facts.intrinsics
    if is_users(name) and not allow_code:
        raise RunError(f"{reader.folder} has the actions of {name}, which is code: {TRUST}")
    try:
        space = find_space(name)
    except ConfigError as error:
        raise RunError(f"{reader.folder}: {error}") from error

    def parse(turn: Turn, first: Turn, question: Question, last_turn: bool) -> Decision:
        place = RecordedPlace(turn.pose, first.pose, camera, turn.points)
        return parse_action(turn.reply.text, question, last_turn, space, place)

    return parse
