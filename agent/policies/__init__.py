"""Who decides what each question does next."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from envs.actions import CameraAction
from models import Reply

if TYPE_CHECKING:
    from agent.state import QuestionState


NO_REPLY = Reply("")


@dataclass(frozen=True)
class Decision:
    """What a question does in its turn: an action and, from a model, the reply it was read from.

    `clamped` names each value that was outside its range, as "name value -> limit". `error` says why a reply could not
    be used; the action is then a small look around.
    """

    action: CameraAction
    reply: Reply = NO_REPLY
    clamped: tuple[str, ...] = ()
    error: str | None = None


class PolicyError(Exception):
    """A policy raised an error that is not the model's: names the policy's class and the questions; ends the run."""


class Policy(Protocol):
    """Decides for many questions at once. Subclass it and write `decide`; the other methods do nothing by default.

    With `concurrent` every question runs on a thread of its own, and `decide` is called from many threads with one
    question each.
    """

    name: str = ""
    """What run.json and summary.json call it; a run is resumed only by a policy of the same name."""
    concurrent: bool = False
    settings: Mapping[str, Any] = MappingProxyType({})
    """Settings of RunConfig that the policy was made with, for run.json."""

    @abstractmethod
    def decide(self, states: "Sequence[QuestionState]") -> list[Decision]:
        """One decision per question, in order; `state.observation` is what each sees.

        Raises OutOfMemory when fewer questions may work, ModelError when one of them cannot be decided. It may then be
        asked again for the same turn.
        """
        ...

    def recall(self, state: "QuestionState") -> None:
        """Take in the turns of a question that an earlier process took."""
        return None

    def forget(self, state: "QuestionState") -> None:
        """Free all that is kept for a question; unknown ones are ignored."""
        return None

    def peak_memory_bytes(self) -> int:
        """The most device memory that was held at once so far; 0 without a device."""
        return 0

    def close(self) -> None:
        """Abandon decisions that are in progress, which then raise ModelError, and free everything. May be repeated."""
        return None
