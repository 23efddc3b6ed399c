"""Backends by a model's name, or for a function or object of the user."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.base.waiting import step
from roomscout.models import Backend, ModelError, ModelOptions, Reply, ReplyFormat, ServerOptions
from roomscout.models.conversation import Conversation, Message
from roomscout.models.transformers.backend import TransformersBackend
from roomscout.models.transformers.source import checkpoint_of, existing_source
from roomscout.models.vllm import VllmOptions

if TYPE_CHECKING:  # the module itself loads torch
    from roomscout.models.transformers.footprint import Checkpoint

Answer = Callable[[list[dict[str, Any]]], str]  # makes the text of a reply from messages, as `as_dicts` returns them
BACKEND_MEMBERS = ("name", "concurrent", "generate", "release", "peak_memory_bytes", "close")


def make_backend(
    model: str, options: ModelOptions, server: ServerOptions | None = None, vllm: VllmOptions | None = None
) -> Backend:
    """A ready backend: behind `server`'s URLs, in its own `vllm` server, or in this process; raises ModelError.
    "embedded" is the included explorer, anything else a hub id, a folder, or a server's name for a model."""
    if server is not None:
        with step("Connecting to", ", ".join(server.urls)):
            from roomscout.models.openai.backend import OpenAIBackend  # imports the client, which takes a second

            return OpenAIBackend(checkpoint_of(model), options, server)
    checkpoint = checkpoint_of(model, options.revision)
    if vllm is not None:
        with step("Starting vLLM with", Path(checkpoint).name):
            from roomscout.models.vllm.backend import VllmBackend

            return VllmBackend(checkpoint, options, vllm)
    return TransformersBackend.from_checkpoint(checkpoint, options)


def known_checkpoint(checkpoint: str, device: str, dtype: str, engine: str = "transformers") -> "Checkpoint":
    """What a checkpoint says of itself, and on a device, where an engine loads it; raises ModelError."""
    existing_source(checkpoint)  # a wrong name is refused before seconds of imports
    with step("Checking", Path(checkpoint).name):
        from roomscout.models.transformers.footprint import Checkpoint

        return Checkpoint(checkpoint, device, dtype, engine == "transformers")


class CallableBackend(Backend):
    """A backend that calls `reply` for each conversation, one after the other."""

    concurrent = False

    def __init__(self, reply: Answer, name: str) -> None:
        self.name = name
        self._reply = reply

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; raises ModelError for a reply that is no text."""
        replies = []
        for conversation in conversations:
            started = time.perf_counter()
            text = self._reply(as_dicts(conversation.messages))
            if not isinstance(text, str):
                raise ModelError(f"{self.name} returned {repr(text)[:80]}: it must return the text of the reply")
            replies.append(Reply(text, seconds=time.perf_counter() - started))
        return replies


def as_dicts(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages as dicts of `role` ("system", "user" or "assistant"), `text` and, of user messages, `images`, (H, W, 3)
    uint8 RGB: the view, then what else a turn shows; with `present` "once", those of all turns."""
    return [
        {"role": message.role, "text": message.text, "images": [shot.image for shot in message.shots]}
        for message in messages
    ]


def backend_from(model: object) -> Backend:
    """A Backend object as it is, or one that calls a function; raises ModelError for any other object."""
    name = getattr(model, "__qualname__", type(model).__name__)
    if not isinstance(model, type):
        if all(hasattr(model, member) for member in BACKEND_MEMBERS):
            return model  # type: ignore[return-value]  # it has every member
        if callable(model):
            return CallableBackend(model, name)
    raise ModelError(
        f"{name} is neither a model's name, nor a function from messages to a text, nor an object with "
        f"{', '.join(BACKEND_MEMBERS)} (docs/python.md)"
    )


def is_torch_module(model: Any) -> bool:
    """Whether an object is a model of PyTorch, without importing that."""
    return any(kind.__module__.startswith("torch.nn") for kind in type(model).__mro__)
