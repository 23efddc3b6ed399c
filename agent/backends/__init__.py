"""Models behind one Protocol: a batch of conversations in, one reply for each out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from agent.conversation import Conversation


class ModelError(Exception):
    """A model could not be loaded, or could not reply to a conversation; the message says why and what to do."""


class OutOfMemory(ModelError):
    """The device cannot hold this batch; a smaller one may fit. Nothing of the failed call is kept."""


@dataclass(frozen=True)
class Reply:
    """What a model said to one conversation, and what that cost.

    `tokens` are the generated ids without the end token. `prompt_tokens` counts the whole conversation
    that was replied to, `reused_tokens` the part of it that was not computed again. `finish_reason` is
    "stop" (the model ended its reply) or "length" (it was cut at the limit). `seconds` is the wall time of
    the call that this reply shared with its batch.
    """

    text: str
    tokens: tuple[int, ...] = ()
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    finish_reason: Literal["stop", "length"] = "stop"
    seconds: float = 0.0


class Backend(Protocol):
    """Replies to conversations. It may keep what it has computed of one, and must reply as if it had not."""

    name: str

    def generate(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation, in order; every conversation ends with a user message.

        Raises OutOfMemory when a smaller batch may work, ModelError when one of the conversations cannot be
        replied to.
        """
        ...

    def release(self, conversation: Conversation) -> None:
        """Let go of all that is kept for this conversation; unknown ones are ignored."""
        ...
