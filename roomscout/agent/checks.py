"""Checks what a policy returned, and names its method and its questions where that is wrong."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import attrgetter
from typing import Any

from roomscout.agent.actions.space import ActionSpaceError
from roomscout.agent.policies import Decision, Policy, PolicyError
from roomscout.agent.state import QuestionState
from roomscout.base.loading import raised
from roomscout.base.text import counted
from roomscout.data.question import AnswerKindError
from roomscout.envs.actions import ALL_LIMITS, CameraAction
from roomscout.models import EngineLost, ModelError, Reply
from roomscout.runs.beliefs import Belief, believed
from roomscout.runs.records import ResultRow

DECIDING = (ModelError, AnswerKindError, ActionSpaceError)  # the errors of a decision that fail only their question
MOST_FAILURES = 20  # of questions at the model, in a row without a turn, before the run ends
TYPES: dict[str, Any] = {
    "action": CameraAction,
    "reply": Reply,
    **{f"action.{name}": int | float for name in ALL_LIMITS},
    "action.answer": str | None,
    "action.done": bool,
}
"""The types that run folders hold; numpy's float32 or bool, for example, cannot be written as JSON."""


@contextmanager
def policy_errors(policy: Policy, method: str, states: Sequence[QuestionState]) -> Iterator[None]:
    """Raise PolicyError, which names the policy's method and the questions, for any error but EngineLost and those of
    DECIDING."""
    try:
        yield
    except (EngineLost, *DECIDING):
        raise
    except Exception as error:
        where = source_of_decisions(policy, method, states)
        raise PolicyError(f"{where}, raised {raised(error)}") from error


def checked(
    returned: Any, policy: Policy, method: str, states: Sequence[QuestionState], final: bool | None = None
) -> list[Decision]:
    """What a policy's method returned, if it is a valid decision for each question; else raises PolicyError. Answers
    are checked if `final` is not None: if False, only those that end their question."""
    wrong = ""
    if not isinstance(returned, list | tuple) or len(returned) != len(states):
        wrong = f"{_repr(returned)} instead of a list with a Decision for each of {counted(len(states), 'question')}"
    else:
        for decision, state in zip(returned, states, strict=True):
            reason = _why_not(decision, state, final)
            if reason:
                wrong = f"{reason} for {state.label}"
                break
    if wrong:
        raise PolicyError(f"{source_of_decisions(policy, method, states)}, returned {wrong}")
    return list(returned)


def checked_maps(returned: Any, policy: Policy, states: Sequence[QuestionState]) -> list[Belief]:
    """What `map_now` returned, if it is a list with a valid map for each question; else raises PolicyError."""
    try:
        maps = [replace(belief, objects=believed([*map(vars, belief.objects)])) for belief in returned]
        if len(maps) == len(states):
            return maps
        wrong = f"{counted(len(maps), 'map')} for {counted(len(states), 'question')}"
    except (AttributeError, TypeError, ValueError) as error:
        wrong = f"{_repr(returned)} instead of a list with a Belief for each question ({error})"
    raise PolicyError(f"{source_of_decisions(policy, 'map_now', states)}, returned {wrong}")


class Failures:
    """Counts the questions that failed at the model in a row: what it refuses of all is not about one of them."""

    in_a_row = 0

    def turn_taken(self) -> None:
        """Begin again after a reply."""
        self.in_a_row = 0

    def ended(self, row: ResultRow) -> None:
        """Count a question that has ended; raises EngineLost for the last of MOST_FAILURES."""
        self.in_a_row += row.failed_part == "model"
        if self.in_a_row == MOST_FAILURES:
            again = "they stay failed unless the run is resumed so that it retries them"
            raise EngineLost(f"{MOST_FAILURES} questions failed in a row, the last one with: {row.error}; {again}")


def _why_not(decision: object, state: QuestionState, final: bool | None) -> str:
    """What a policy returned instead of a valid Decision, in words; empty for a valid one."""
    if not isinstance(decision, Decision):
        return f"{_repr(decision)} instead of a Decision"
    for name, kind in TYPES.items():
        value = attrgetter(name)(decision)
        if not isinstance(value, kind):
            return f"a Decision whose {name} is {_repr(value)} instead of {getattr(kind, '__name__', kind)}"
    action = decision.action
    question = state.question
    if final is None:
        return ""
    if action.answer is None:
        return "an action that is done without an answer" if action.done else ""
    if (final or state.ends_with(action)) and question.parse_answer(action.answer) is None:
        return f"an action of which {question.why_invalid(repr(action.answer))}"
    return ""


def _repr(value: object) -> str:
    return "None" if value is None else f"{repr(value)[:80]} ({type(value).__name__})"


def source_of_decisions(policy: Policy, method: str, states: Sequence[QuestionState]) -> str:
    """The method that was called and the first questions of its batch, for error messages."""
    first = ", ".join(f"{state.label} (id {state.question.id})" for state in states[:3])
    more = len(states[3:])
    return f"{type(policy).__name__}.{method}, asked about {first}{f' and {more} more' if more else ''}"
