"""The chat history of one question: what is sent to a model and what it replied, append-only."""

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from models.png import encode_png

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True)
class Message:
    """One message. A user message carries exactly one image; the image comes before its text.

    `image` is (H, W, 3) uint8 RGB. `tokens` are the ids that a model generated for an assistant's
    message, without the end token: sent back as they were, since decoding and encoding a text again
    need not give the same ids. Empty when the text came from elsewhere.
    """

    role: Role
    text: str
    image: np.ndarray | None = None
    tokens: tuple[int, ...] = ()

    @cached_property
    def png(self) -> bytes:
        """The image of a user message as a PNG, encoded when first needed."""
        assert self.image is not None, f"a message of {self.role} has no image"
        return encode_png(self.image)

    @cached_property
    def sha256(self) -> str:
        """A hash of the size and pixels of a user message's image, as hexadecimal digits: 0.6 ms for 640x480."""
        assert self.image is not None, f"a message of {self.role} has no image"
        digest = hashlib.sha256(str(self.image.shape).encode())
        digest.update(self.image.tobytes())
        return digest.hexdigest()


@dataclass
class Conversation:
    """An append-only list of messages: system, then user and assistant in turn.

    `id` names the question for as long as the conversation lives; a backend may key a cache by it.
    """

    id: str
    messages: list[Message] = field(default_factory=list)

    def append(self, message: Message) -> None:
        """Add the next message; raises ValueError when it breaks the order system, user, assistant, user, ..."""
        expected = "system" if not self.messages else "assistant" if self.messages[-1].role == "user" else "user"
        if message.role != expected:
            raise ValueError(f"conversation {self.id}: expected a message of {expected}, got one of {message.role}")
        if (message.image is not None) != (message.role == "user"):
            raise ValueError(f"conversation {self.id}: a user message has exactly one image, other messages none")
        self.messages.append(message)

    @property
    def images(self) -> list[np.ndarray]:
        """The images in order: image i belongs to turn i."""
        return [message.image for message in self.messages if message.image is not None]
