"""The append-only chat history of one question."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Literal, Self

from roomscout.base.shots import VIEW, Shot

if TYPE_CHECKING:
    import numpy as np

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Clip:
    """Which frames of a video the images of a message are: their indices, of `total` frames at `fps` a second."""

    total: int
    indices: tuple[int, ...]
    fps: float


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: Role  # who speaks
    text: str  # behind the images, if there are any
    shots: tuple[Shot, ...] = ()  # the images of a user message; other messages have none
    tokens: tuple[int, ...] = ()
    """The generated ids of an assistant message without the end token, empty if the text came from elsewhere. They are
    sent back unchanged, since re-encoding decoded text may give other ids."""
    clip: Clip | None = None  # set if the images are frames that a model sees as one video
    hidden: int = 0  # how many images a user message had and no longer shows: it then has no others

    @classmethod
    def of_views(cls, text: str, *views: "np.ndarray") -> Self:
        """A user message with views, (H, W, 3) uint8 RGB each."""
        return cls("user", text, tuple(Shot(VIEW, view) for view in views))


@dataclass
class Conversation:
    """An append-only list of messages: system, if there is one, then user and assistant in turn. `id` names the
    question in messages and seeds sampling, so that a resumed question gets the same replies; runs may share it.
    Backends cache under `key`, unique in this process. `asking_instead` makes alternatives to their `origin`."""

    id: str
    messages: list[Message] = field(default_factory=list)
    key: int = field(default_factory=count().__next__, init=False, repr=False, compare=False)
    origin: "Conversation | None" = field(default=None, init=False, repr=False, compare=False)

    def append(self, message: Message) -> None:
        """Append a message; raises ValueError unless roles are (system,) user, assistant, user and so on."""
        expected = "system" if not self.messages else "assistant" if self.messages[-1].role == "user" else "user"
        if message.role != expected and (self.messages or message.role != "user"):
            raise ValueError(f"conversation {self.id}: expected a message from {expected}, got {message.role}")
        if bool(message.shots) != (message.role == "user"):
            raise ValueError(f"conversation {self.id}: a user message has images, other messages have none")
        self.messages.append(message)

    def asking_instead(self, text: str) -> "Conversation":
        """This conversation with another text in its last message, a user message. Backends reply to it once, with the
        origin's cache and random numbers, and do not cache it."""
        *before, last = self.messages
        if last.role != "user":
            raise ValueError(f"conversation {self.id}: only a user message can be replaced")
        other = Conversation(self.id, [*before, replace(last, text=text)])
        other.origin = self
        return other

    def showing(self, messages: list[Message]) -> "Conversation":
        """This conversation with other messages for the same ones: backends cache under the same key what is equal."""
        other = Conversation(self.id, messages)
        other.key = self.key
        return other

    @property
    def shots(self) -> list[Shot]:
        """The images of all messages, in their order."""
        return [shot for message in self.messages for shot in message.shots]

    @property
    def views(self) -> int:
        """The number of images of all messages, with those that are no longer shown."""
        return sum(len(message.shots) + message.hidden for message in self.messages)

    @property
    def images(self) -> "list[np.ndarray]":
        """The pixels of `shots`."""
        return [shot.image for shot in self.shots]


def folded(messages: Sequence[Message]) -> list[Message]:
    """Messages with the system message, if there is one, as the beginning of the first user message."""
    system, *others = messages
    if system.role != "system":
        return [*messages]
    return [replace(others[0], text=f"{system.text}\n\n{others[0].text}"), *others[1:]]


def why_too_long(tokens: int, takes: str) -> str:
    """That a conversation needs more tokens than the model `takes`, and how to use fewer."""
    return (
        f"the conversation needs {tokens} tokens with its reply, but {takes}: use a shorter question, fewer steps, "
        "kept views or frames, smaller views or shorter replies"
    )
