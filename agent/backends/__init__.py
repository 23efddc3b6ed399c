"""Models behind one Protocol: a batch of conversations in, one reply for each out."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from agent.conversation import Conversation

EXPLORER = Path(__file__).parents[2] / "checkpoints" / "explorer"
"""The small Qwen3-VL that ships with the package, trained by it on procedural rooms."""
EMBEDDED = "embedded"
"""Names the explorer, the model that ships with the package."""
EXPLORER_SETTINGS: dict[str, Any] = {"image_size": (288, 160), "focal": 105.0, "max_new_tokens": 320}
"""Settings of a run that suit the explorer: views as those it learned from, 45 tokens each and 108 degrees wide, so
that four of them see all around and what stands where two meet is whole in both; and room for its longest replies."""
KV_SHARE = 0.5
"""Share of the memory left beside the weights that keys and values may fill; the rest is for work in progress."""


class ModelError(Exception):
    """A model could not be loaded, or could not reply to a conversation; the message says why and what to do."""


class OutOfMemory(ModelError):
    """The device cannot hold this batch; a smaller one may fit. No reply of the failed call is kept."""


@dataclass(frozen=True)
class Reply:
    """What a model said to one conversation, and what that cost.

    `tokens` are the generated ids without the end token. `prompt_tokens` counts the whole conversation
    that was replied to, `reused_tokens` the part of it that was not computed again. `finish_reason` is
    "stop" (the model ended its reply) or "length" (it was cut at the limit). `seconds` is the wall time of
    the call that this reply shared with its batch, split into the preparation of texts and images, the computing of the
    prompts up to the first token, and the rest of the tokens. `images_encoded` of its images went through the model's
    image encoder in this call.
    """

    text: str
    tokens: tuple[int, ...] = ()
    prompt_tokens: int = 0
    reused_tokens: int = 0
    generated_tokens: int = 0
    finish_reason: Literal["stop", "length"] = "stop"
    seconds: float = 0.0
    preprocess_seconds: float = 0.0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    images_encoded: int = 0


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

    def peak_memory_bytes(self) -> int:
        """The most device memory that was held at once so far; 0 where the device has no memory of its own."""
        ...


def weight_copies(compiled: bool, device: str) -> int:
    """How often a model's weights are held beside the first time: on a CPU by the compiled program for one row and by
    that for more."""
    return 2 if compiled and device.startswith("cpu") else 0


def checkpoint_of(model: str) -> str:
    """The hub id or folder that a model's name stands for."""
    return str(EXPLORER) if model == EMBEDDED else model


def make_backend(
    model: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    max_new_tokens: int = 512,
    temperature: float = 0.0,
    seed: int = 0,
    attention: str = "auto",
    constrained: bool = False,
    compiled: bool = False,
    kv_reuse: bool = True,
    kv_cache_bytes: int | None = None,
) -> Backend:
    """The backend that `model` names, loaded and ready.

    "embedded" is the explorer that ships with the package, "scripted:random" a scripted backend with its random
    policy; anything else is a Qwen3-VL hub id or folder. The other arguments are those of `Qwen3VLBackend`; a scripted
    backend takes only `seed`. Raises ModelError when it cannot be had.
    """
    kind, _, policy = model.partition(":")
    if kind == "scripted":
        from agent.backends.scripted import ScriptedBackend, random_policy

        if policy != "random":
            raise ModelError(f"there is no scripted policy {policy!r}: use scripted:random")
        return ScriptedBackend(random_policy(seed), name=model)

    from agent.backends.qwen3vl import Qwen3VLBackend

    return Qwen3VLBackend(
        checkpoint_of(model),
        dtype=dtype,
        device=device,
        max_new_tokens=max_new_tokens,
        temperature=temperature,
        seed=seed,
        attention=attention,
        constrained=constrained,
        compiled=compiled,
        kv_reuse=kv_reuse,
        kv_cache_bytes=kv_cache_bytes,
    )
