"""Replies from a function or object of the user instead of a model of this package."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from roomscout.models import Backend, ModelError, Reply, ReplyFormat
from roomscout.models.conversation import Conversation, Message

Answer = Callable[[list[dict[str, Any]]], str]
"""Makes the text of a reply from the messages so far, as `as_dicts` returns them."""
BACKEND_MEMBERS = ("name", "concurrent", "generate", "release", "peak_memory_bytes", "close")


class CallableBackend(Backend):
    """A backend that calls `reply` for each conversation, one after the other."""

    concurrent = False

    def __init__(self, reply: Answer, name: str) -> None:
        self.name = name
        self._reply = reply

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; raises ModelError for a reply that is no text."""
        return [self._reply_to(conversation) for conversation in conversations]

    def _reply_to(self, conversation: Conversation) -> Reply:
        started = time.perf_counter()
        text = self._reply(as_dicts(conversation.messages))
        if not isinstance(text, str):
            raise ModelError(f"{self.name} returned {repr(text)[:80]}: it must return the text of the reply")
        return Reply(text, seconds=time.perf_counter() - started)


def as_dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as dicts of `role` ("system", "user" or "assistant"), `text` and `images`.

    `images` are those of a user message, (H, W, 3) uint8 RGB, which come before its text: the view, which
    others of --see follow, or with `present` "once" those of all turns. Other messages have none.
    """
    return [{"role": each.role, "text": each.text, "images": [shot.image for shot in each.shots]} for each in messages]


def backend_from(model: object) -> Backend:
    """A Backend object as it is, or one that calls a function; raises ModelError that says what an object lacks."""
    name = getattr(model, "__qualname__", type(model).__name__)
    if isinstance(model, type):
        raise ModelError(f"{name} is a class: pass an object of it, {name}(...)")
    lacking = [each for each in BACKEND_MEMBERS if not hasattr(model, each)]
    if not lacking:
        return model  # type: ignore[return-value]  # it has every member
    if len(lacking) < len(BACKEND_MEMBERS) and hasattr(model, "generate"):
        raise ModelError(
            f"{name} has generate, but no {', '.join(lacking)}: a backend has {', '.join(BACKEND_MEMBERS)} (see "
            "docs/python.md), a function that takes messages and returns a text needs none of them"
        )
    if not callable(model):
        raise ModelError(
            f"{name} is neither a model's name, nor a function from messages to a text, nor a Backend (docs/python.md)"
        )
    return CallableBackend(model, name)


def is_torch_module(model: Any) -> bool:
    """Whether an object is a model of PyTorch, without importing that."""
    return any(each.__module__.startswith("torch.nn") for each in type(model).__mro__)
