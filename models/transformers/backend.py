"""The transformers backend: one `generate()` call per batch of conversations."""

import logging
import threading
import time
from collections.abc import Sequence

from models import KV_SHARE, ModelOptions, Reply, ReplyFormat, weight_copies
from models.conversation import Conversation

log = logging.getLogger(__name__)


class TransformersBackend:
    """Replies with a checkpoint of a supported family; `model` is its hub id or folder.

    In float32, a batch gives the same tokens as each row alone. Half-precision rounding depends on the batch size and
    may flip near-ties. A reply ends at the token limit, at an end token, or when it is complete. Calls from several
    threads run one after the other.

    Constructing a backend imports torch and transformers and loads the weights; raises ModelError if that fails.
    """

    concurrent = False

    def __init__(self, model: str, options: ModelOptions) -> None:
        from models.transformers.encoding import ConversationEncoder
        from models.transformers.families import family_of
        from models.transformers.loading import free_bytes, load_checkpoint, resolve_device, resolve_dtype
        from models.transformers.runner import GenerationOptions, ModelRunner, Steps
        from models.transformers.steps import require_compiler

        self.name = model
        where = resolve_device(options.device)
        if options.compile:
            require_compiler(where)
        loaded, processor = load_checkpoint(model, resolve_dtype(options.dtype, where), where, options.attention)
        reusable = family_of(loaded.config).supports_kv_reuse(loaded.config)
        compiled = options.compile and reusable
        if (options.kv_reuse or options.compile) and not reusable:
            log.warning(
                "%s has layers without an ordinary KV cache: every turn recomputes the whole conversation%s", model,
                ", and decoding steps are not compiled" if options.compile else "",
            )  # fmt: skip
        kv_bytes = options.kv_cache_bytes if options.kv_reuse and reusable else 0
        if kv_bytes is None:
            copies = loaded.get_memory_footprint() * weight_copies(compiled, str(where))
            kv_bytes = max(0, int((free_bytes(where) - copies) * KV_SHARE))
        steps: Steps = "eager"
        if compiled:
            steps = "compiled graphs" if where.type == "cuda" else "compiled"
        generation = GenerationOptions(
            options.max_new_tokens, temperature=options.temperature, seed=options.seed, steps=steps
        )
        self._lock = threading.Lock()  # held whenever the tokenizer, the encoder or the runner is used
        self._tokenizer = processor.tokenizer
        self._encoder = ConversationEncoder(
            processor, loaded.config, loaded.dtype, tiles_per_view=options.tiles_per_view
        )
        self._runner = ModelRunner(loaded, self._tokenizer, self._encoder, generation, kv_bytes, options.planned_tokens)

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; every conversation ends with a user message.

        Raises OutOfMemory if a smaller batch may work, ModelError for a conversation that cannot be answered or a
        grammar without xgrammar, ValueError for duplicate conversations.
        """
        if len({conversation.key for conversation in conversations}) < len(conversations):
            raise ValueError("a batch contains the same conversation twice")
        if not conversations:
            return []
        with self._lock:
            return self._generate(conversations, reply_format)

    def release(self, conversation: Conversation) -> None:
        """Free this conversation's encoding and KV cache; unknown conversations are ignored."""
        with self._lock:
            self._encoder.release(conversation.key)
            self._runner.release(conversation.key)

    def peak_memory_bytes(self) -> int:
        """Peak CUDA memory allocated so far; 0 on other devices."""
        return self._runner.peak_memory_bytes()

    def close(self) -> None:
        """Does nothing: no work outlives a call."""

    def _generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        started = time.perf_counter()
        batch = [self._encoder.encode(conversation) for conversation in conversations]
        encoded_at = time.perf_counter()
        result = self._runner.run(batch, reply_format)
        ended = time.perf_counter()
        return [
            Reply(
                text=self._tokenizer.decode(row.tokens, skip_special_tokens=True),
                tokens=row.tokens,
                prompt_tokens=len(encoded.ids),
                reused_tokens=row.reused,
                generated_tokens=len(row.tokens),
                finish_reason="stop" if row.finished else "length",
                seconds=ended - started,
                preprocess_seconds=encoded_at - started,
                prefill_seconds=result.prefill_s,
                decode_seconds=result.decode_s,
                images_encoded=row.images,
            )
            for encoded, row in zip(batch, result.rows, strict=True)
        ]
