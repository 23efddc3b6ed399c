"""The append-only chat history of one question."""

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import Literal, Self

import numpy as np

from roomscout.models.png import encode_png

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, eq=False)
class View:
    """An image of a message, (H, W, 3) uint8 RGB. Its PNG and its hash are computed on first use."""

    image: np.ndarray

    @cached_property
    def png(self) -> bytes:
        """The image as a PNG."""
        return encode_png(self.image)

    @cached_property
    def sha256(self) -> str:
        """A hexadecimal hash of the image's size and pixels: 0.6 ms for 640x480."""
        digest = hashlib.sha256(str(self.image.shape).encode())
        digest.update(self.image.tobytes())
        return digest.hexdigest()


@dataclass(frozen=True)
class Message:
    """One message. A user message has an image, which comes before its text.

    `image` is (H, W, 3) uint8 RGB. `tokens` are the generated ids of an assistant message without the end token, empty
    if the text came from elsewhere. They are sent back unchanged, since re-encoding decoded text may give other ids.
    A message that presents several views at once has those before `image` in `earlier`, in their order.
    """

    role: Role
    text: str
    image: np.ndarray | None = None
    tokens: tuple[int, ...] = ()
    earlier: tuple[np.ndarray, ...] = ()

    @cached_property
    def views(self) -> tuple[View, ...]:
        """All images of the message, in their order: one for most user messages, none for others."""
        return tuple(map(View, (*self.earlier, *([] if self.image is None else [self.image]))))

    def saying(self, text: str) -> Self:
        """The same message with another text. Both share their views, so that each PNG is encoded once."""
        other = replace(self, text=text)
        vars(other)["views"] = self.views  # where cached_property keeps its value
        return other


@dataclass
class Conversation:
    """An append-only list of messages: system, then user and assistant in turn.

    `id` names the question in messages and seeds sampling, so that a resumed question gets the same replies. Different
    runs may use the same id. `key` is unique in this process: backends cache under it. An alternative to another
    conversation has that as its `origin`, see `asking_instead`.
    """

    id: str
    messages: list[Message] = field(default_factory=list)
    key: int = field(default_factory=count().__next__, init=False, repr=False, compare=False)
    origin: "Conversation | None" = field(default=None, init=False, repr=False, compare=False)

    def append(self, message: Message) -> None:
        """Append a message; raises ValueError if it breaks the order system, user, assistant, user, ..."""
        expected = "system" if not self.messages else "assistant" if self.messages[-1].role == "user" else "user"
        if message.role != expected:
            raise ValueError(f"conversation {self.id}: expected a message from {expected}, got {message.role}")
        if (message.image is not None) != (message.role == "user"):
            raise ValueError(f"conversation {self.id}: a user message has an image, other messages have none")
        self.messages.append(message)

    def asking_instead(self, text: str) -> "Conversation":
        """This conversation with another text in its last message, a user message with one view.

        Backends reply to it once, do not cache it, and reuse the origin's cache for the shared prefix. The id is the
        same, so that it is sampled with the same random numbers.
        """
        *before, last = self.messages
        if last.role != "user" or len(last.views) != 1:
            raise ValueError(f"conversation {self.id}: only a user message with one view can be replaced")
        other = Conversation(self.id, [*before, last.saying(text)])
        other.origin = self
        return other

    @property
    def views(self) -> list[View]:
        """The views of all messages; view i belongs to turn i."""
        return [view for message in self.messages for view in message.views]

    @property
    def images(self) -> list[np.ndarray]:
        """All images; image i belongs to turn i."""
        return [view.image for view in self.views]


def why_too_long(turns: int, tokens: int, takes: str, larger: str = "") -> str:
    """That a conversation of this many turns needs more tokens than the model `takes`, and how to use fewer.

    `larger` is a setting that allows more, if there is one, with a comma.
    """
    what, fewer = ("the first turn", "a shorter question") if turns == 1 else ("the conversation", "fewer --steps")
    return (
        f"{what} needs {tokens} tokens with its reply, but {takes}: use {larger}{fewer}, a smaller --image-size or "
        "fewer --max-new-tokens"
    )
