"""A question that is shown frames of a video, in the words of a benchmark's video protocol, instead of views."""

from dataclasses import dataclass, replace
from typing import Any

from roomscout.agent.policies import Decision
from roomscout.agent.policies.replies import parse_video_answer
from roomscout.agent.state import QuestionState, Status
from roomscout.data.benchmark import VideoProtocol
from roomscout.data.video_frames import VideoError
from roomscout.envs.films import Film, FilmLibrary
from roomscout.envs.library import SceneLibrary
from roomscout.models import Reply
from roomscout.models.conversation import Clip, Conversation, Message
from roomscout.rendering.camera import CameraPose
from roomscout.runs.records import RecordedMessage, Turn, image_name

NOWHERE = CameraPose(0.0, 0.0, 0.0, 0.0, 0.0)
"""The pose in the record of a turn that shows frames of a video, which has no camera in the scan."""


@dataclass
class VideoQuestion(QuestionState):
    """A question about a video: one turn, which has no observation. Its message shows the frames of the `film`, as
    images or one video, and the record has a small image of them. There is no film before the question begins."""

    film: Film | None = None

    @property
    def frames(self) -> Film:
        """The `film` of a question in progress."""
        assert self.film is not None, "a question in progress has frames"
        return self.film

    @property
    def protocol(self) -> VideoProtocol:
        """The words in which the frames are shown."""
        assert self.rules.video is not None, "a question about a video has a protocol"
        return self.rules.video

    def reset(self, library: SceneLibrary | FilmLibrary, first: Turn | None = None) -> None:
        """Begin with the frames of the scene, or without if the turn is recorded with its image; raises VideoError."""
        assert isinstance(library, FilmLibrary), "questions about videos have a library of films"
        if first is None or not first.shots:
            self.film = library.film_of(self.question)
            if self.rules.native and self.film.record.fps is None:
                file = self.film.record.file
                raise VideoError(f"{file} does not say how many frames it has a second: encode it again")
        self.status = Status.ACTIVE

    def messages(self) -> Conversation:
        """The one message, to which a model replies."""
        if not self.conversation.messages:
            text = self.protocol.prompt(self.question.question, self.question.options)
            seen = self.frames.record
            clip = None
            if self.rules.native:
                assert seen.fps is not None, "a video has a rate"
                clip = Clip(seen.total, seen.indices, seen.fps)
            self.conversation.append(Message("user", text, self.frames.shots, clip=clip))
        return self.conversation

    def recall(self) -> None:
        """Do nothing: the only turn was the last one."""

    def read(self, reply: Reply, last_turn: bool | None = None) -> Decision:
        """The answer in a reply, as the official code reads it; raises AnswerKindError."""
        return replace(parse_video_answer(reply.text, self.question, self.protocol), reply=reply)

    def seen(self) -> dict[str, Any]:
        """The frames, and in place of them one small image of all; there is no camera."""
        return {"pose": NOWHERE, "frames": self.frames.record, "shots": (self.frames.sheet,)}

    def recorded_messages(self) -> list[RecordedMessage]:
        """The conversation, with the file of the one small image of all frames in "frames"."""
        sent = [RecordedMessage(role=message.role, text=message.text) for message in self.conversation.messages]
        return [message | {"frames": image_name(0)} if message["role"] == "user" else message for message in sent]

    def close(self) -> None:
        """Release the frames."""
        super().close()
        self.film = None
