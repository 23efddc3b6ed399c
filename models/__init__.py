"""Models behind one Protocol: a batch of conversations in, one reply for each out."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from models.conversation import Conversation

EXPLORER = Path(__file__).parents[1] / "checkpoints" / "explorer"
"""The small Qwen3-VL that ships with the package, trained by it on procedural rooms."""
EMBEDDED = "embedded"
"""Names the explorer, the model that ships with the package."""
CONCURRENCY = 32
"""Questions in flight with an engine that batches requests itself, unless another number is asked for."""
RETRIES = 8
"""Where a fifth of all requests to a server fail, 6 are enough for 512 of 512. The client waits 0.5 s before the first
and at most 8 s before a later one, 40 s in all, unless the server names a time."""
KV_SHARE = 0.5
"""Share of the memory left beside the weights that keys and values may fill; the rest is for work in progress."""


class ModelError(Exception):
    """A model could not be loaded, or could not reply to a conversation; the message says why and what to do."""


class OutOfMemory(ModelError):
    """The device cannot hold this batch; a smaller one may fit. No reply of the failed call is kept."""


@dataclass(frozen=True)
class ReplyFormat:
    """What a reply must look like, and when it is complete; generation ends there.

    `is_complete(text)` says whether the text so far is a whole reply. It is asked only when the newest token contains
    `closing`, one printable ASCII character. `grammar` constrains replies: a grammar in xgrammar's GBNF notation, None
    for unconstrained replies. `schema` is the JSON schema for engines that take no grammar, None likewise.
    """

    is_complete: Callable[[str], bool]
    closing: str
    grammar: str | None = None
    schema: dict[str, Any] | None = None


@dataclass(frozen=True)
class Reply:
    """What a model said to one conversation, and what that cost.

    `tokens` are the generated ids without the end token. `prompt_tokens` counts the whole conversation
    that was replied to, `reused_tokens` the part of it that was not computed again. `finish_reason` is
    "stop" (the model ended its reply) or "length" (it was cut at the limit). `seconds` is the wall time of
    the call that this reply shared with its batch, split into the preparation of texts and images, the computing of the
    prompts up to the first token, and the rest of the tokens. `images_encoded` of its images went through the model's
    image encoder in this call. `retries` counts the requests to a server that failed before this reply came.
    `dropped` names the settings that the server refuses, so that it decides on them: "seed", "temperature".
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
    retries: int = 0
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelOptions:
    """How a model is loaded and how it generates; raises ValueError, naming the flag, for values that cannot work.

    - `dtype` is "auto", "float32", "bfloat16" or "float16"; `device` is "auto", "cpu", "cuda" or "cuda:<number>".
    - `attention` is "auto", "sdpa", "eager" or "flash_attention_2", which is for images: text keeps "sdpa".
    - `max_new_tokens` is the longest reply. Decoding is greedy at `temperature` 0; above it, random numbers depend only
      on `seed`, the conversation's id and its turn.
    - `compile` compiles decoding steps. It needs a C++ compiler, and on a CPU room for the weights twice more.
    - With `kv_reuse` a turn computes only what is new in a conversation: keys and values stay on the device until the
      conversation is released, at most `kv_cache_bytes` of them (None: half of what is free once the model is loaded).
      Conversations beyond that are computed from the start, with the same replies. If conversations are known to reach
      `planned_tokens`, memory for that many is taken at once instead of growing with each turn.
    - `tiles_per_view` is the most tiles into which a view is cut, for families that have tiles.
    """

    dtype: str = "auto"
    device: str = "auto"
    attention: str = "auto"
    max_new_tokens: int = 512
    temperature: float = 0.0
    seed: int = 0
    compile: bool = False
    kv_reuse: bool = True
    kv_cache_bytes: int | None = None
    planned_tokens: int = 0
    tiles_per_view: int = 1

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ValueError(f"--max-new-tokens is {self.max_new_tokens}: it takes 1 or more")
        if self.temperature < 0:
            raise ValueError(f"--temperature is {self.temperature}: it takes 0 (greedy) or more")
        if self.compile and self.attention == "eager":
            raise ValueError("--compile does not go with --attention eager: it takes sdpa")


@dataclass(frozen=True)
class ServerOptions:
    """Where an OpenAI-compatible server is and how it is asked.

    `urls` are roots of the API, which usually end in /v1; `key` is the API key, None for servers that need none;
    `key_env` names the environment variable that holds it, for error messages. A request fails after `timeout_s`
    seconds, counted again for the body of its response, and is sent again up to `retries` times. `constrained` requires
    servers that keep to a JSON schema.
    """

    urls: tuple[str, ...]
    key: str | None = field(default=None, repr=False)
    key_env: str = "OPENAI_API_KEY"
    timeout_s: float = 600.0
    retries: int = RETRIES
    constrained: bool = False


class Backend(Protocol):
    """Replies to conversations. It may keep what it has computed of one, and must reply as if it had not.

    A lockstep engine (`concurrent` is False) is fastest when one call holds the turns of all questions. An engine that
    batches requests itself (True) takes calls from several threads at once.
    """

    name: str
    concurrent: bool

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; every conversation ends with a user message.

        Raises OutOfMemory when a smaller batch may work, ModelError when one of the conversations cannot be
        replied to.
        """
        ...

    def release(self, conversation: Conversation) -> None:
        """Free all that is kept for this conversation; unknown ones are ignored."""
        ...

    def peak_memory_bytes(self) -> int:
        """The most device memory that was held at once so far; 0 where the device has no memory of its own."""
        ...

    def close(self) -> None:
        """Abandon calls that are in progress, which then raise ModelError, and free everything. May be repeated."""
        ...


def weight_copies(compiled: bool, device: str) -> int:
    """How often a model's weights are held beside the first time: on a CPU by the compiled program for one row and by
    that for more."""
    return 2 if compiled and device.startswith("cpu") else 0
