"""A policy whose moves or early answers a run's controls replace (`ControlSettings`)."""

from collections.abc import Sequence
from dataclasses import replace

from roomscout.agent.config import ControlSettings
from roomscout.agent.policies import Decision, Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.movers import Move, Mover
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.state import QuestionState
from roomscout.data.questions import Question
from roomscout.envs.actions import CameraAction


class Controlled(Policy):
    """Asks `policy` for its decisions, and carries out what the controls allow.

    With a `mover`, the camera makes the moves of the mover and only the answer in the last turn counts; the policy
    sees every view, or with --present once decides in the last turn only. Without one, the policy moves the camera,
    turns only with --no-translation, and its answers count from --min-turns on. `Decision.requested` keeps what it
    asked for where that was not done.
    """

    def __init__(self, policy: Policy, controls: ControlSettings, mover: Mover | None) -> None:
        self.name = policy.name
        self.concurrent = policy.concurrent
        self.settings = policy.settings
        self.policy = policy
        self._controls, self._mover = controls, mover

    def moves(self, question: Question, sample: int, most: int) -> int:
        """How many moves an episode has."""
        return most if self._mover is None else self._mover.moves(question, sample, most)

    def begin(self, state: QuestionState) -> None:
        """Prepare the mover; raises SceneError."""
        self.policy.begin(state)
        if self._mover is not None:
            self._mover.begin(state)

    def decide(self, states: Sequence[QuestionState]) -> list[Decision]:
        """One decision per question: what the camera does, and what the policy said."""
        asked = [state for state in states if self._asks(state)]
        decisions = self.policy.decide(asked) if asked else []
        if len(asked) < len(states) and len(decisions) == len(asked):
            left = iter(decisions)
            decisions = [next(left) if self._asks(state) else Decision(CameraAction()) for state in states]
        if len(decisions) != len(states) or not all(isinstance(each, Decision) for each in decisions):
            return decisions  # the loop says what is wrong with them
        return [self._carried_out(state, each) for state, each in zip(states, decisions, strict=True)]

    def answer_now(self, states: Sequence[QuestionState]) -> list[Decision] | None:
        """The policy's answers if the current turn were the last."""
        return self.policy.answer_now(states)

    def recall(self, state: QuestionState) -> None:
        """Restore the policy's memory of a question's turns; with --present once it has not seen any yet."""
        if not self._controls.at_once:
            self.policy.recall(state)

    def forget(self, state: QuestionState) -> None:
        """Release what the policy and the mover keep for a question."""
        self.policy.forget(state)
        if self._mover is not None:
            self._mover.forget(state)

    def peak_memory_bytes(self) -> int:
        """The policy's peak device memory."""
        return self.policy.peak_memory_bytes()

    def close(self) -> None:
        """Close the policy."""
        self.policy.close()

    def _asks(self, state: QuestionState) -> bool:
        """Whether the policy sees this turn."""
        return state.is_last_turn or not self._controls.at_once

    def _carried_out(self, state: QuestionState, decision: Decision) -> Decision:
        """A decision with the move that is made instead of the one that the policy asked for."""
        wanted = decision.action
        if state.is_last_turn:
            return decision
        if self._mover is not None:
            move = self._mover.next_move(state)
        elif wanted.done and state.turn >= self._controls.min_turns:
            return decision
        else:
            move = Move(self._allowed(wanted))
        asks = self._asks(state) and decision.error is None and move.action != wanted
        return replace(
            decision,
            action=move.action,
            outcome=move.outcome,
            requested=wanted if asks else None,
            clamped=decision.clamped if self._controls.translation else _of_rotation(decision.clamped),
        )

    def _allowed(self, wanted: CameraAction) -> CameraAction:
        """A policy's own move without its answer, and with --no-translation without all but its turn."""
        if wanted.done:
            wanted = wanted.unanswered
        return wanted if self._controls.translation else wanted.turns_alone


def _of_rotation(clamped: Sequence[str]) -> tuple[str, ...]:
    return tuple(each for each in clamped if each.startswith("rotation_angle_degrees"))


def prompts_read(policy: Policy) -> Prompts | None:
    """The prompts that a policy's model reads; None without a model."""
    inner = policy.policy if isinstance(policy, Controlled) else policy
    return inner.prompts if isinstance(inner, ModelPolicy) else None
