"""Controls: policies that need no model, to be compared with."""

import random
from collections.abc import Sequence

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.movers import way_to_truth
from roomscout.agent.state import QuestionState
from roomscout.envs.actions import HEIGHT_LIMIT_M, MOVE_LIMIT_M, CameraAction


def guess(state: QuestionState, draw: random.Random) -> str:
    """A random answer; one that is a place is near the start."""
    if not state.observations:  # frames of a video
        return state.question.guess(draw)
    first = state.observations[0]
    return state.question.guess(draw, (first.pose.x_m, first.pose.y_m, first.extent.floor_z_m))


class RandomPolicy(Policy):
    """Random moves and answers that depend only on the seed, the episode and the turn, not on batch or resume."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One action per question; about one in five answers, and all do on the last turn."""
        return [Decision(self._action(state)) for state in states]

    def _draw(self, state: QuestionState) -> random.Random:
        return random.Random(f"{self._seed} {state.conversation.id} {state.turn}")

    def _action(self, state: QuestionState) -> CameraAction:
        draw = self._draw(state)
        if state.is_last_turn or draw.random() < 0.2:
            return CameraAction(answer=guess(state, draw), done=True)
        return CameraAction(
            rotation_angle_degrees=float(draw.randrange(-180, 181, 15)),
            forward_meters=round(draw.uniform(-MOVE_LIMIT_M / 2, MOVE_LIMIT_M), 2),
            left_meters=round(draw.uniform(-MOVE_LIMIT_M / 2, MOVE_LIMIT_M / 2), 2),
            z_delta_meters=round(draw.uniform(-HEIGHT_LIMIT_M, HEIGHT_LIMIT_M), 2),
        )


class StayPolicy(RandomPolicy):
    """A random answer at the first view: "here" where an answer is a pose."""

    name = "stay"

    def _action(self, state: QuestionState) -> CameraAction:
        return CameraAction(answer=guess(state, self._draw(state)), done=True)


class PlannerPolicy(StayPolicy):
    """Goes to the pose that is the truth on the shortest free path, and says so: the best score. Else it stays."""

    name = "planner"

    def begin(self, state: QuestionState) -> None:
        """Find the way; raises SceneError if there is none."""
        if state.question.kind.judges_camera and state.question.ground_truth:
            way = way_to_truth(state.environment, state.question)
            state.path = [Decision(action) for action in way[: state.steps]]

    def _action(self, state: QuestionState) -> CameraAction:
        goes = state.question.kind.judges_camera and state.turn < len(state.path)
        return state.path[state.turn].action if goes else super()._action(state)
