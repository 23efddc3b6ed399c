"""Controls: policies that need no model, to be compared with."""

import random
from collections.abc import Sequence

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.state import QuestionState
from roomscout.envs.actions import HEIGHT_LIMIT_M, MOVE_LIMIT_M, CameraAction


class RandomPolicy(Policy):
    """Random moves and answers that depend only on the seed, the episode and the turn, not on batch or resume."""

    def __init__(self, seed: int = 0) -> None:
        self.name = "random"
        self._seed = seed

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One action per question; about one in five answers, and all do on the last turn."""
        return [Decision(self._action(state)) for state in states]

    def _action(self, state: QuestionState) -> CameraAction:
        draw = random.Random(f"{self._seed} {state.conversation.id} {state.turn}")
        if state.is_last_turn or draw.random() < 0.2:
            return CameraAction(answer=state.question.guess(draw), done=True)
        return CameraAction(
            rotation_angle_degrees=float(draw.randrange(-180, 181, 15)),
            forward_meters=round(draw.uniform(-MOVE_LIMIT_M / 2, MOVE_LIMIT_M), 2),
            left_meters=round(draw.uniform(-MOVE_LIMIT_M / 2, MOVE_LIMIT_M / 2), 2),
            z_delta_meters=round(draw.uniform(-HEIGHT_LIMIT_M, HEIGHT_LIMIT_M), 2),
        )
