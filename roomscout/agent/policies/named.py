"""Policies by name: a control, which is a baseline without a model, or module:Class or path/to/file.py:Class."""

import inspect
import random
from collections.abc import Sequence

from roomscout.agent.policies import Decision, Policy
from roomscout.agent.state import QuestionState
from roomscout.base.errors import ConfigError
from roomscout.base.loading import NotLoadable, load_attribute
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


CONTROLS: dict[str, type[Policy]] = {"random": RandomPolicy}
"""The policies that --policy knows by name. A new one is a class here and its entry."""


def named_policy(name: str, seed: int) -> Policy:
    """The control of this name, or an instance of the class that it names; raises ConfigError if there is none."""
    if name in CONTROLS:
        return make_policy(CONTROLS[name], seed)
    try:
        found = load_attribute(name, "Class")
    except NotLoadable as error:
        why = error if ":" in name else f"there is {', '.join(CONTROLS)} and human, or your own: it {error}"
        raise ConfigError(f"--policy {name}: {why}") from error
    if not isinstance(found, type):
        raise ConfigError(f"--policy {name}: {name.rpartition(':')[2]} is not a class")
    return make_policy(found, seed)


def make_policy(kind: type, seed: int) -> Policy:
    """An instance of a policy class, with the seed if its constructor takes one; raises ConfigError."""
    if Policy not in kind.__mro__ or inspect.isabstract(kind):
        raise ConfigError(f"{kind.__name__} is not a policy: subclass roomscout.Policy and implement `decide`")
    signature = inspect.signature(kind)
    given = {"seed": seed} if "seed" in signature.parameters else {}
    try:
        signature.bind(**given)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}() is {error}: give it a default, or pass an instance from Python") from None
    return kind(**given)


def policy_name(policy: Policy) -> str:
    """The name of a policy in run.json: its `name`, else that of its class."""
    return policy.name or type(policy).__name__
