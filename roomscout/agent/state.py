"""The state of one question: its observations, turns, status and answer."""

from dataclasses import dataclass, field, replace
from enum import StrEnum

from roomscout.data.questions import Question
from roomscout.envs.actions import CameraAction
from roomscout.envs.environment import ExplorationEnv, Observation
from roomscout.models.conversation import Conversation
from roomscout.runs.records import EpisodeId, Turn


class Status(StrEnum):
    """The status of a question. The last three are final."""

    WAITING = "waiting"  # not begun, nothing loaded
    ACTIVE = "active"  # begun and not finished
    ANSWERED = "answered"
    EXHAUSTED = "exhausted"  # out of turns without an answer
    FAILED = "failed"  # scan, renderer or model raised an error


@dataclass(frozen=True)
class Failure:
    """Why a question failed. `part` is "scan" (not found), "scene" (cannot be used), "render" or "model"."""

    part: str
    message: str


@dataclass
class QuestionState:
    """A question in progress, one episode. Observation i belongs to turn i, as do its images in
    the conversation.

    `number` is the position in the question list and `sample` counts the question's answers, both from 1. `steps` moves
    are allowed, so turns are 0..steps. `env` is set from `begin` to `close`. The policy owns the conversation, which
    stays empty without a model; its id differs between samples, so that randomness seeded by it differs too.
    """

    number: int
    question: Question
    steps: int
    sample: int = 1
    env: ExplorationEnv | None = None
    observations: list[Observation] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    status: Status = Status.WAITING
    error: Failure | None = None
    conversation: Conversation = field(init=False)

    def __post_init__(self) -> None:
        self.conversation = self._empty_conversation()

    def _empty_conversation(self) -> Conversation:
        again = f" sample {self.sample}" if self.sample > 1 else ""
        return Conversation(self.question.id + again)

    @property
    def episode(self) -> EpisodeId:
        """Which answer to which question this is."""
        return EpisodeId(self.number, self.sample)

    @property
    def label(self) -> str:
        """The question's name in the log: "Q001", and "Q001 sample 2" for the second answer."""
        return f"Q{self.number:03d}" + (f" sample {self.sample}" if self.sample > 1 else "")

    @property
    def turn(self) -> int:
        """Index of the next turn."""
        return len(self.turns)

    @property
    def observation(self) -> Observation:
        """The observation of the next turn."""
        assert len(self.observations) == self.turn + 1, f"{self.label}: observation i must belong to turn i"
        return self.observations[-1]

    @property
    def is_last_turn(self) -> bool:
        """Whether the next turn must answer."""
        return self.turn == self.steps

    @property
    def is_final(self) -> bool:
        """Whether the question is finished."""
        return self.status in (Status.ANSWERED, Status.EXHAUSTED, Status.FAILED)

    @property
    def answer(self) -> str | None:
        """The final answer; None if there is none."""
        return self.turns[-1].action.answer if self.status is Status.ANSWERED else None

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of all turns. A batched call counts in full for each of its questions."""
        return sum(turn.reply.seconds + turn.seconds.render for turn in self.turns)

    @property
    def share_s(self) -> float:
        """The question's share of the wall seconds of its turns: those of a batched call, divided by its questions."""
        return sum(turn.reply.seconds / len(turn.batch) + turn.seconds.render for turn in self.turns)

    def begin(self, env: ExplorationEnv) -> None:
        """Start in an environment that has been reset."""
        self.env = env
        self.observations.append(env.observation)
        self.status = Status.ACTIVE

    def ends_with(self, action: CameraAction) -> bool:
        """Whether an action ends the question: it is done, or no move is left."""
        return action.done or self.is_last_turn

    def record(self, turn: Turn, after: Observation | None) -> None:
        """Append a finished turn and the observation after its move, None if the turn ended the question."""
        assert turn.turn == self.turn and (after is None) == turn.is_final, (
            f"{self.label}: turn {turn.turn} is not the next turn, or does not match its observation"
        )
        if self.conversation.messages and self.conversation.messages[-1].role == "user":
            self.conversation.append(turn.reply.message)
        self.turns.append(turn)
        if after is not None:
            self.observations.append(after)
        else:
            answered = turn.parse_error is None and turn.action.answer is not None
            self.status = Status.ANSWERED if answered else Status.EXHAUSTED

    def fail(self, part: str, message: str) -> None:
        """End the question with an error."""
        self.error = Failure(part, message)
        self.status = Status.FAILED

    def close(self) -> None:
        """Release the scan and the images, once the result is written."""
        self.env = None
        self.observations = []
        self.turns = [replace(turn, shots=()) for turn in self.turns]
        self.conversation = self._empty_conversation()
