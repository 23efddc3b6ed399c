"""Qwen3-VL through transformers: one `generate()` call replies to a whole batch of conversations."""

import logging
import time
from collections.abc import Sequence

from agent.backends import KV_SHARE, Reply, weight_copies
from agent.conversation import Conversation

log = logging.getLogger(__name__)


class Qwen3VLBackend:
    """Replies with a Qwen3-VL checkpoint; in float32 a reply is the same in a batch as alone, token for token. Fewer
    bits round differently in batches of different sizes, and of two tokens that are nearly as likely take either.

    `model` is a hub id or a folder, `device` is "auto", "cpu", "cuda" or "cuda:<number>", `dtype` is "auto",
    "float32", "bfloat16" or "float16", `attention` is "auto", "sdpa", "eager" or "flash_attention_2". A reply is at
    most `max_new_tokens` long; it ends earlier at the model's end token or with its first complete action object.
    Decoding is greedy at `temperature` 0; above it, the random numbers depend on `seed`, the conversation's id and its
    turn alone. `constrained` rules out tokens that would make the action object malformed; it needs xgrammar.
    With `compiled` decoding steps are compiled, and faster once that is done; it needs `attention` by "sdpa" and a C++
    compiler, and on a CPU the weights are held twice more.

    With `kv_reuse` a turn computes only what is new in a conversation: keys and values stay on the device until the
    conversation is released, at most `kv_cache_bytes` of them (by default half of what is free once the model is
    loaded). Conversations beyond that are computed from the start, with the same replies.

    Building it loads torch, transformers and the weights; it raises ModelError where that cannot be done.
    """

    def __init__(
        self,
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
    ) -> None:
        from agent.backends.compiled import require_compiler
        from agent.backends.encoding import ConversationEncoder
        from agent.backends.kv_cache import can_keep
        from agent.backends.loading import free_bytes, load_checkpoint, resolve_device, resolve_dtype
        from agent.backends.runner import GenerationOptions, ModelRunner

        if max_new_tokens < 1:
            raise ValueError(f"--max-new-tokens is {max_new_tokens}: it takes 1 or more")
        if temperature < 0:
            raise ValueError(f"--temperature is {temperature}: it takes 0 (greedy) or more")
        if compiled and attention not in ("auto", "sdpa"):
            raise ValueError(f"--compile does not go with --attention {attention}: it takes sdpa")
        self.name = model
        where = resolve_device(device)
        if compiled:
            require_compiler(where)
        loaded, processor = load_checkpoint(model, resolve_dtype(dtype, where), where, attention)
        if (kv_reuse or compiled) and not can_keep(loaded):
            log.warning(
                "%s does not keep plain keys and values: every turn computes the whole conversation%s",
                model, ", and no step is compiled" if compiled else "",
            )  # fmt: skip
            kv_reuse = compiled = False
        if kv_cache_bytes is None:
            copied = loaded.get_memory_footprint() * weight_copies(compiled, str(where))
            kv_cache_bytes = max(0, int((free_bytes(where) - copied) * KV_SHARE))
        options = GenerationOptions(
            max_new_tokens, temperature=temperature, seed=seed, constrained=constrained, compiled=compiled
        )
        self._tokenizer = processor.tokenizer
        self._encoder = ConversationEncoder(loaded, processor)
        self._runner = ModelRunner(loaded, self._tokenizer, self._encoder, options, kv_cache_bytes if kv_reuse else 0)

    def generate(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation, in order; every conversation ends with a user message.

        Raises OutOfMemory when a smaller batch may work, ModelError for a conversation that cannot be replied to,
        ValueError for a conversation that is in the batch twice.
        """
        if len({conversation.id for conversation in conversations}) < len(conversations):
            raise ValueError("two conversations of a batch have the same id")
        if not conversations:
            return []
        started = time.perf_counter()
        batch = [self._encoder.encode(conversation) for conversation in conversations]
        encoded_at = time.perf_counter()
        result = self._runner.run(batch)
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

    def release(self, conversation: Conversation) -> None:
        """Let go of all that is kept for this conversation; unknown ones are ignored."""
        self._encoder.release(conversation.id)
        self._runner.release(conversation.id)

    def peak_memory_bytes(self) -> int:
        """The most device memory that was held at once so far; 0 where the device has no memory of its own."""
        return self._runner.peak_memory_bytes()
