"""The interface of policies, which decide each question's next action, and the policies that settings name."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from roomscout.base.errors import SettingError
from roomscout.base.loading import NotLoadable, load_attribute
from roomscout.models import Reply

if TYPE_CHECKING:
    from roomscout.agent.state import QuestionState
    from roomscout.data.questions import Question
    from roomscout.envs.actions import CameraAction
    from roomscout.rendering.motion import MoveOutcome
    from roomscout.runs.beliefs import Belief
    from roomscout.runs.records import SeenPoint, ToolUse

NO_REPLY = Reply("")
CONTROLS = {name: f"roomscout.agent.policies.controls:{name.title()}Policy" for name in ("random", "stay", "planner")}
"""The policies known by name, as module:Class. A new one is a class and its entry."""


@dataclass(frozen=True)
class Decision:
    """A question's action in this turn."""

    action: "CameraAction"  # after a reply that could not be parsed, a small rotation
    reply: Reply = NO_REPLY  # what the action was parsed from, if a model wrote it
    clamped: tuple[str, ...] = ()  # each value outside its range, as "name value -> limit"
    error: str | None = None  # why a reply could not be parsed
    fields: Mapping[str, Any] = field(default_factory=dict)  # what a model wrote, but for the default action space
    requested: "CameraAction | None" = None  # what the policy asked for, where a control decided otherwise
    outcome: "MoveOutcome | None" = None  # of the action, where it is known, as in a repeated move
    points: "tuple[SeenPoint, ...]" = ()  # the pixels whose surface the reading of the reply needed
    uses: "tuple[ToolUse, ...]" = ()  # the tools that a model used


class PolicyError(Exception):
    """A policy raised an error other than ModelError. The message names its class and the questions. Ends the run."""


class Policy(Protocol):
    """Decides for many questions at once. Subclass it and implement `decide`; the other methods do nothing by default.
    If `concurrent` is True, each question runs on its own thread, and `decide` is called from many threads with one
    question each. Otherwise a run calls its policy from one thread. Runs on several threads may share a policy if it is
    thread-safe, as are those of `load_policy` and policies that change nothing of their own."""

    name: str = ""  # the policy's name in run.json and summary.json. Only a policy of the same name can resume a run.
    concurrent: bool = False
    reads_prompts: bool = False  # whether it is asked in the words of the run's prompts, which the run then records
    is_blinded: bool = False
    """Whether no truth and no score may be shown before the run has ended, since a person decides."""
    decides_each: bool = False  # whether `decide_each` makes some decisions before others
    settings: Mapping[str, Any] = MappingProxyType({})
    """The Settings of a run that this policy decides, by name, to be saved in run.json."""

    @abstractmethod
    def decide(self, states: "Sequence[QuestionState]") -> list[Decision]:
        """One decision per question, in order. Raises OutOfMemory if fewer questions may fit, ModelError if one of them
        cannot be decided; the same turn may then be requested again."""
        ...

    def decide_each(
        self, states: "Sequence[QuestionState]", decided: "Callable[[int, Callable[[], Decision]], None]"
    ) -> None:
        """`decide`, where `decided` is called for each question once its decision can be made: with its index and what
        makes the decision, perhaps in another thread and while others are undecided. After an error, those it was
        called for are decided."""
        for index, decision in enumerate(self.decide(states)):
            decided(index, partial(replace, decision))

    def prepare(self, state: "QuestionState") -> None:
        """Compute in advance what the next decision for a question needs, in another thread; raises ModelError."""
        return None

    def answer_now(self, states: "Sequence[QuestionState]") -> list[Decision] | None:
        """What each question would be answered if the current turn were its last, in order. Called after `decide`, with
        those of its questions that go on; changes nothing of them. None if it cannot tell."""
        return None

    def map_now(self, states: "Sequence[QuestionState]") -> "list[Belief] | None":
        """Where each question's objects are believed to be, in order, as `answer_now` is asked, also in the last turn.
        None if it cannot tell."""
        return None

    def moves(self, question: "Question", sample: int, most: int) -> int:
        """How many moves this episode has; by default `most`, those that the run allows."""
        return most

    def open(self) -> AbstractContextManager[None]:
        """A block during which the policy may be asked; by default nothing happens."""
        return nullcontext()

    def expect(self, states: "Sequence[QuestionState]") -> None:
        """Prepare for the episodes that a run asks from now on; called before the first begins."""
        return None

    def lane(self, state: "QuestionState") -> tuple[Hashable, int] | None:
        """Whose turn an episode waits for, if not anybody's, and how many of theirs may be in progress at once."""
        return None

    def begin(self, state: "QuestionState") -> None:
        """Prepare for a question at its first view; raises SceneError to fail it."""
        return None

    def recall(self, state: "QuestionState") -> None:
        """Restore a question's turns from before the run was resumed: the conversation, if it is asked in prompts."""
        if self.reads_prompts:
            state.recall()

    def forget(self, state: "QuestionState") -> None:
        """Release everything kept for a question; ignores unknown ones."""
        return None

    def peak_memory_bytes(self) -> int:
        """The peak device memory so far; 0 without a device."""
        return 0

    def close(self) -> None:
        """Abort pending decisions, which then raise ModelError, and release everything. May be called repeatedly."""
        return None


def named_policy(name: str, seed: int) -> Policy:
    """The control of this name, or an instance of the class that it names; raises SettingError if there is none."""
    if name in CONTROLS:
        return make_policy(resolve_name(CONTROLS[name]), seed)
    try:
        kind = load_attribute(name, "Class")
    except NotLoadable as error:
        why = error if ":" in name else f"there is {', '.join(CONTROLS)} and human, or your own: it {error}"
        raise SettingError(f"{name} cannot be loaded: {why}", setting="policy") from error
    if not isinstance(kind, type):
        raise SettingError(f"{name} is not a class", setting="policy")
    return make_policy(kind, seed)


def make_policy(kind: type, seed: int) -> Policy:
    """An instance of a policy class, with the seed if its constructor takes one; raises SettingError."""
    if Policy not in kind.__mro__ or inspect.isabstract(kind):
        why = f"{kind.__name__} is not a policy: subclass roomscout.Policy and implement `decide`"
        raise SettingError(why, setting="policy")
    signature = inspect.signature(kind)
    arguments = {"seed": seed} if "seed" in signature.parameters else {}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        why = f"{kind.__name__}() is {error}: give it a default, or pass an instance from Python"
        raise SettingError(why, setting="policy") from None
    return kind(**arguments)


def policy_name(policy: Policy) -> str:
    """The name of a policy in run.json: its `name`, else that of its class."""
    return policy.name or type(policy).__name__
