"""A question about frames of a video (`--present video`): one message, one reply, and no camera."""

from dataclasses import dataclass

from roomscout.agent.policies import Decision
from roomscout.agent.policies.replies import parse_video_answer
from roomscout.agent.state import QuestionState, Status
from roomscout.data.video_protocol import VideoProtocol
from roomscout.envs.films import Film, FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.models import Reply
from roomscout.models.conversation import Clip, Conversation, Message
from roomscout.rendering.camera import CameraPose
from roomscout.runs.records import ForcedAnswer, Turn, TurnSeconds

NOWHERE = CameraPose(0.0, 0.0, 0.0, 0.0, 0.0)
"""The pose in the record of a turn that shows frames of a video, which has no camera in the scan."""


@dataclass
class VideoState(QuestionState):
    """A question about the frames of a `film`, in the words of a benchmark's video protocol.

    It has one turn, which has no observation: the messages show the frames, and the record has a small image of them.
    """

    film: Film | None = None

    @property
    def protocol(self) -> VideoProtocol:
        """The words and the reading of replies."""
        assert self.rules.video is not None, "only questions of a run with --present video are of this kind"
        return self.rules.video

    def reset(self, library: SceneLibrary | FilmLibrary) -> None:
        """Begin with the frames of the question's scene; raises VideoNotFound or VideoError."""
        assert isinstance(library, FilmLibrary), "a run with --present video has a library of films"
        self.film = library.film_of(self.question)
        self.status = Status.ACTIVE

    def return_to(self, library: SceneLibrary | FilmLibrary, first: Turn) -> None:
        """Begin without frames: the recorded turn is the only one."""
        self.status = Status.ACTIVE

    def messages(self) -> Conversation:
        """The one message, to which a model replies."""
        assert self.film is not None, f"{self.label}: a question in progress has frames"
        if not self.conversation.messages:
            text = self.protocol.prompt(self.question.question, self.question.options)
            seen, clip = self.film.record, None
            if self.rules.native:
                assert seen.fps is not None, "a video has a rate"
                clip = Clip(seen.total, seen.indices, seen.fps)
            self.conversation.append(Message("user", text, self.film.shots, clip=clip))
        return self.conversation

    def recall(self) -> None:
        """Do nothing: the only turn was the last one."""

    def read(self, reply: Reply, last_turn: bool | None = None) -> Decision:
        """The answer in a reply, as the official code reads it; raises AnswerKindError."""
        parsed = parse_video_answer(reply.text, self.question, self.protocol)
        return Decision(parsed.action, reply, error=parsed.error)

    def carry_out(self, decision: Decision, batch: tuple[str, ...] = (), forced: ForcedAnswer | None = None) -> Turn:
        """Append the turn that ends the question."""
        assert self.film is not None, f"{self.label}: a question in progress has frames"
        reply = decision.reply
        turn = Turn(
            turn=self.turn,
            pose=NOWHERE,
            action=decision.action,
            clamped=(),
            parse_error=decision.error,
            move=None,
            reply=reply,
            batch=batch or (self.question.id,),
            seconds=TurnSeconds(
                preprocess=round(reply.preprocess_seconds, 4),
                prefill=round(reply.prefill_seconds, 4),
                decode=round(reply.decode_seconds, 4),
                render=0.0,
            ),
            frames=self.film.record,
            shots=(self.film.sheet,),
        )
        self.record(turn, None)
        return turn

    def close(self) -> None:
        """Release the frames, once the result is written."""
        super().close()
        self.film = None
