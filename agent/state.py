"""One question on its way: what it has seen, done and answered."""

from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from agent.actions import ParsedAction
from agent.backends import Reply
from agent.conversation import Conversation, Message
from data.questions import Question
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome
from rendering.scene import Scene


class Status(StrEnum):
    """Where a question stands. The last three are final."""

    WAITING = "waiting"  # nothing loaded yet
    ACTIVE = "active"  # has a view to show or a reply to wait for
    ANSWERED = "answered"
    EXHAUSTED = "exhausted"  # out of turns without an answer
    FAILED = "failed"  # an error of the scan, the renderer or the model


@dataclass(frozen=True)
class Failure:
    """Why a question could not be finished; `part` is "scan" (it is not there), "scene" (it cannot be used),
    "render" or "model"."""

    part: str
    message: str


@dataclass(frozen=True)
class Turn:
    """One finished turn.

    `pose` is where the turn's view was taken; `move` is what became of the action, None when the turn ended
    the question. `batch` holds the ids of the questions that shared the generate() call, this one included.
    `render_s` is the wall time of the move and of drawing the next view, in seconds.
    """

    index: int
    pose: CameraPose
    reply: Reply
    parsed: ParsedAction
    move: MoveOutcome | None
    batch: tuple[str, ...]
    render_s: float = 0.0

    @property
    def is_final(self) -> bool:
        """Whether the question ended with this turn."""
        return self.move is None


@dataclass
class QuestionState:
    """A question, where its camera is, and all that was said. Image i of the conversation is what turn i saw.

    `number` is the position in the question list, from 1. `steps` moves are allowed, so turns are 0..steps.
    `view` is the next turn's image, (H, W, 3) uint8, and None once the question has ended.
    """

    number: int
    question: Question
    steps: int
    scene: Scene | None = None
    pose: CameraPose | None = None
    view: np.ndarray | None = None
    turns: list[Turn] = field(default_factory=list)
    status: Status = Status.WAITING
    error: Failure | None = None
    conversation: Conversation = field(init=False)

    def __post_init__(self) -> None:
        self.conversation = Conversation(self.question.id)

    @property
    def label(self) -> str:
        """How the log names this question."""
        return f"Q{self.number:03d}"

    @property
    def turn(self) -> int:
        """Index of the turn that is due."""
        return len(self.turns)

    @property
    def where(self) -> CameraPose:
        """The pose of an active question."""
        assert self.pose is not None, f"{self.label} has not begun"
        return self.pose

    @property
    def is_last_turn(self) -> bool:
        """Whether the turn that is due must answer."""
        return self.turn == self.steps

    @property
    def is_final(self) -> bool:
        """Whether nothing is left to do for this question."""
        return self.status in (Status.ANSWERED, Status.EXHAUSTED, Status.FAILED)

    @property
    def answer(self) -> str | None:
        """The final answer, None without one."""
        return self.turns[-1].parsed.action.answer if self.status is Status.ANSWERED else None

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of all turns; batched calls count in full for each question of the batch."""
        return sum(turn.reply.seconds + turn.render_s for turn in self.turns)

    def open(self, scene: Scene, pose: CameraPose, view: np.ndarray, system: Message) -> None:
        """Begin: the question now has a scan, a place in it and a first view."""
        self.scene, self.pose, self.view = scene, pose, view
        self.conversation.append(system)
        self.status = Status.ACTIVE

    def ask(self, message: Message) -> None:
        """Say the user message of the turn that is due; asking the same turn again changes nothing."""
        if self.conversation.messages[-1].role != "user":
            self.conversation.append(message)
        assert len(self.conversation.images) == self.turn + 1, f"{self.label}: image i must belong to turn i"

    def ends_with(self, parsed: ParsedAction) -> bool:
        """Whether a reply ends the question: it is done, or no move is left."""
        return parsed.action.done or self.is_last_turn

    def record(self, turn: Turn, view: np.ndarray | None) -> None:
        """Take in a finished turn and the view that its move led to, None when the turn was final."""
        assert turn.index == self.turn and (view is None) == turn.is_final, (
            f"{self.label}: turn {turn.index} is not due"
        )
        self.conversation.append(Message("assistant", turn.reply.text, tokens=turn.reply.tokens))
        self.turns.append(turn)
        self.view = view
        if turn.move is not None:
            self.pose = turn.move.pose
        else:
            answered = turn.parsed.error is None and turn.parsed.action.answer is not None
            self.status = Status.ANSWERED if answered else Status.EXHAUSTED
        assert len(self.conversation.images) == self.turn, f"{self.label}: image i must belong to turn i"

    def fail(self, part: str, message: str) -> None:
        """End the question with an error."""
        self.error = Failure(part, message)
        self.status = Status.FAILED
        self.view = None

    def close(self) -> None:
        """Let go of the scan and the images once the result is written."""
        self.scene = self.view = None
        self.conversation = Conversation(self.question.id)
