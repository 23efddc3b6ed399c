"""A question about frames of a video (`--present video`): one message, one reply, and no camera."""

from dataclasses import dataclass, replace
from typing import Any

from roomscout.agent.policies import Decision
from roomscout.agent.policies.replies import parse_video_answer
from roomscout.agent.state import QuestionState, Status
from roomscout.data.video_frames import VideoError
from roomscout.data.video_protocol import VideoProtocol
from roomscout.envs.films import Film, FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.models import Reply
from roomscout.models.conversation import Clip, Conversation, Message
from roomscout.rendering.camera import CameraPose
from roomscout.runs.records import Turn

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
        film = library.film_of(self.question)
        if self.rules.native and film.record.fps is None:
            raise VideoError(f"{film.record.file} does not say how many frames it has a second: encode it again")
        self.film = film
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
        return replace(parse_video_answer(reply.text, self.question, self.protocol), reply=reply)

    def _shown(self) -> dict[str, Any]:
        """The frames, and in place of them one small image of all; there is no camera."""
        assert self.film is not None, f"{self.label}: a question in progress has frames"
        return {"pose": NOWHERE, "frames": self.film.record, "shots": (self.film.sheet,)}

    def close(self) -> None:
        """Release the frames, once the result is written."""
        super().close()
        self.film = None
