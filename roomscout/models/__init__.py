"""The Backend protocol: a batch of conversations in, one reply for each out."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from roomscout.base.errors import Refusal
from roomscout.base.record import NotRecorded, OmittedIfEmpty
from roomscout.models.conversation import Conversation, Message

EXPLORER = Path(__file__).parents[1] / "checkpoints" / "explorer"  # a small Qwen3-VL, trained on procedural rooms
PROMPTS_FILE = "prompts.yaml"  # in a checkpoint folder, has the prompts that its model was trained on
EMBEDDED = "embedded"  # the model name of the explorer
CONCURRENCY = 32  # default number of questions in flight with an engine that batches requests itself
MEMORY_FRACTION = 0.9
KV_SHARE = 0.5  # of the memory left after loading the weights, for the KV cache; the rest is for activations


class ModelError(Refusal):
    """A model could not be loaded or could not reply; the message gives the reason and the fix."""


class EngineLost(Refusal):
    """The engine answers no question, for now or until somebody acts. It fails none: the run ends, to be resumed."""


class OutOfMemory(ModelError):
    """This batch does not fit on the device; a smaller one may. The failed call returns no replies."""


@dataclass(frozen=True)
class ReplyFormat:
    """What constrains replies; nothing by default. In each engine, a reply ends at the model's end token, at the end of
    its grammar, or at the token limit: engines do not read its text."""

    grammar: str | None = None  # in xgrammar's GBNF notation
    schema: dict[str, Any] | None = None  # a JSON schema, for engines without grammars


@dataclass(frozen=True)
class Reply:
    """A model's reply to one conversation, and its cost. Run folders use these names, turns the parts of `seconds`."""

    text: str  # without the end token
    tokens: tuple[int, ...] = ()  # the generated ids without the end token; none if the engine does not report them
    prompt_tokens: int = 0  # of the whole conversation
    reused_tokens: int = 0  # those of `prompt_tokens` that came from the KV cache
    generated_tokens: int = 0  # of the reply
    finish_reason: Literal["stop", "length"] = "stop"  # the model ended the reply, or it reached the token limit
    seconds: float = 0.0  # wall time of the whole batch's call
    preprocess_seconds: NotRecorded[float] = 0.0  # those of texts and images
    prefill_seconds: NotRecorded[float] = 0.0  # those up to the first token
    decode_seconds: NotRecorded[float] = 0.0
    """Those from there on; in a lockstep engine, this row's share times the rows: their mean is the call's time."""
    images_encoded: int = 0  # this conversation's images that went through the image encoder in this call
    retries: OmittedIfEmpty[int] = 0  # the failed requests to a server before this reply
    dropped: OmittedIfEmpty[tuple[str, ...]] = ()
    """What the server refused: "seed" and "temperature", so that its own defaults applied, and "system_role", so that
    the system message was the beginning of the first user message."""
    logprobs: OmittedIfEmpty[tuple[float, ...]] = ()
    """Empty unless `ModelOptions.logprobs` asks for it: the natural logarithm of each token's probability, in the order
    of `tokens`. The probability is the model's own: the softmax of its logits at temperature 1 over the whole
    vocabulary, before tokens are penalized or excluded and before the temperature, as in a forward pass of the
    conversation (and in vLLM's "raw_logprobs"). A sampled token was therefore drawn from another distribution unless
    the temperature is 1 and nothing was penalized or excluded."""

    @property
    def message(self) -> Message:
        """The reply as a message of the conversation."""
        return Message("assistant", self.text, tokens=self.tokens)


NO_EFFECT = {"top_p": 1, "top_k": 0, "min_p": 0, "presence_penalty": 0, "frequency_penalty": 0, "repetition_penalty": 1}
"""Parameters of sampling, with the value of each that changes nothing."""


@dataclass(frozen=True)
class ModelOptions:
    """How to load a model and generate with it."""

    dtype: str = "auto"  # "auto", "float32", "bfloat16" or "float16"
    device: str = "auto"  # "auto", "cpu", "cuda" or "cuda:<number>"
    quantize: str | None = None  # linear layers' weights as bitsandbytes makes them: "4bit" (NF4), "8bit" (LLM.int8())
    max_new_tokens: int = 512  # the longest reply
    temperature: float = 0.0  # 0 is greedy; above, random numbers depend only on `seed`, the conversation and its turn
    generation: Mapping[str, float] = field(default_factory=dict)
    """Further parameters of sampling, as in vLLM: `top_p` (0 to 1), `top_k` (a whole number), `min_p` (0 to 1),
    `repetition_penalty` (above 0) for tokens of the conversation, `presence_penalty` and `frequency_penalty` (-2 to 2)
    for those of the reply. At `temperature` 0 only penalties have an effect."""
    seed: int = 0  # of sampling
    compile: bool = False  # compile decoding steps, on CUDA alone: needs a C++ compiler and Triton
    kv_reuse: bool = True  # keys and values stay on the device, so that a turn computes only its new tokens
    kv_cache_bytes: int | None = None
    """The most that keys and values take, None: half of the memory that is free once the model is loaded. Conversations
    beyond that are recomputed, with the same replies."""
    planned_tokens: int = 0  # buffers are allocated for so many per conversation; 0 lets them grow with each turn
    memory_fraction: float = MEMORY_FRACTION  # of a GPU's memory, or on a CPU of the machine's, for all of this
    tiles_per_view: int = 1  # at most, for families with tiles
    revision: str | None = None  # the branch, tag or commit of a hub checkpoint
    adapter: Path | None = None  # the folder of a PEFT adapter that is merged into the weights as they are loaded
    logprobs: bool = False  # fill `Reply.logprobs`, in the transformers engine alone


@dataclass(frozen=True)
class ServerOptions:
    """How to reach an OpenAI-compatible server."""

    urls: tuple[str, ...]  # API roots, usually ending in /v1
    key: str | None = field(default=None, repr=False)  # the API key, None for servers that need none
    key_env: str = "OPENAI_API_KEY"  # the environment variable that it came from, for error messages
    timeout_s: float = 600.0
    """Of a request, from connecting to the last byte of the response, and how long no request may be answered."""
    constrained: bool = False  # require a server that enforces JSON schemas
    extra_body: Mapping[str, Any] = field(default_factory=dict)  # further parameters of each request
    images: int = 2  # those of the check before the first question: as many as the longest conversation has


class Backend(Protocol):
    """Replies to conversations. It may cache what it computes, but the cache must not change replies.

    A lockstep engine (`concurrent` is False) is fastest when one call holds the turns of all questions. An engine that
    batches requests itself (True) is fastest with a call for each question, all at once.

    Backends are thread-safe, because several runs may share one: a lockstep engine takes one call after the other.
    Caches are keyed by `Conversation.key`, since conversations of different runs may have the same id."""

    name: str
    concurrent: bool

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; each ends with a user message, and all or none have an `origin`, whose
        cache stays unchanged. Raises OutOfMemory if a smaller batch may work, ModelError for a conversation, and
        EngineLost for what is about none of them."""

    def release(self, conversation: Conversation) -> None:
        """Free this conversation's cache, if there is one; unknown conversations are ignored."""
        return

    def peak_memory_bytes(self) -> int:
        """Peak device memory allocated so far; 0 on devices without separate memory, and if it is not measured."""
        return 0

    def close(self) -> None:
        """Abort calls in progress, which then raise ModelError, and free everything. Idempotent."""
        return


ReplyEnded = Callable[[int, Callable[[], Reply]], None]  # called with a conversation's index and what makes its reply


@runtime_checkable
class EarlyBackend(Backend, Protocol):
    """A lockstep engine that tells each reply when it ends, so that its question is worked on while others reply."""

    def generate_each(
        self, conversations: Sequence[Conversation], reply_format: ReplyFormat, ended: ReplyEnded
    ) -> None:
        """The same as `generate`. `ended` is called once for each conversation, and may make the reply in another
        thread; after an error, those it was called for have their replies."""

    def prepare(self, conversation: Conversation) -> None:
        """Compute what the next call for a conversation needs, perhaps during a call for others; raises ModelError."""
