"""One question on its way: what it has seen, done and answered."""

from dataclasses import dataclass, field
from enum import StrEnum

from agent.policies.replies import ParsedAction
from data.questions import Question
from envs.actions import CameraAction
from envs.environment import ExplorationEnv, Observation
from models import Reply
from models.conversation import Conversation, Message
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome


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

    @property
    def message(self) -> Message:
        """The reply as it stands in the conversation."""
        return Message("assistant", self.reply.text, tokens=self.reply.tokens)


@dataclass
class QuestionState:
    """A question on its way: observation i is what turn i saw, and image i of the conversation is its view.

    `number` is the position in the question list, from 1. `steps` moves are allowed, so turns are 0..steps. The
    environment is there from `begin` to `close`. The conversation belongs to the policy; it stays empty where no model
    is asked.
    """

    number: int
    question: Question
    steps: int
    env: ExplorationEnv | None = None
    observations: list[Observation] = field(default_factory=list)
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
    def observation(self) -> Observation:
        """What the turn that is due sees."""
        assert len(self.observations) == self.turn + 1, f"{self.label}: observation i must belong to turn i"
        return self.observations[-1]

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

    def begin(self, env: ExplorationEnv) -> None:
        """Start in an environment that was reset."""
        self.env = env
        self.observations.append(env.observation)
        self.status = Status.ACTIVE

    def ends_with(self, action: CameraAction) -> bool:
        """Whether an action ends the question: it is done, or no move is left."""
        return action.done or self.is_last_turn

    def record(self, turn: Turn, after: Observation | None) -> None:
        """Take in a finished turn and the observation that its move led to, None when the turn was final."""
        assert turn.index == self.turn and (after is None) == turn.is_final, (
            f"{self.label}: turn {turn.index} is not due"
        )
        if self.conversation.messages and self.conversation.messages[-1].role == "user":
            self.conversation.append(turn.message)
        self.turns.append(turn)
        if after is not None:
            self.observations.append(after)
        else:
            answered = turn.parsed.error is None and turn.parsed.action.answer is not None
            self.status = Status.ANSWERED if answered else Status.EXHAUSTED

    def fail(self, part: str, message: str) -> None:
        """End the question with an error."""
        self.error = Failure(part, message)
        self.status = Status.FAILED

    def close(self) -> None:
        """Free the scan and the images once the result is written."""
        self.env = None
        self.observations = []
        self.conversation = Conversation(self.question.id)
