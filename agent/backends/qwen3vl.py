"""Qwen3-VL through transformers: one `generate()` call replies to a whole batch of conversations."""

import time
from collections.abc import Sequence

from agent.backends import Reply
from agent.conversation import Conversation


class Qwen3VLBackend:
    """Replies with a Qwen3-VL checkpoint; a reply is the same in a batch as alone.

    `model` is a hub id or a folder, `device` is "auto", "cpu", "cuda", "cuda:<number>" or "mps", `dtype` is "auto",
    "float32", "bfloat16" or "float16". A reply is at most `max_new_tokens` long; it ends earlier at the model's end
    token or with its first complete action object. Decoding is greedy at `temperature` 0; above it, the random numbers
    depend on `seed`, the conversation's id and its turn alone.

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
        min_new_tokens: int = 0,
    ) -> None:
        from agent.backends.encoding import ConversationEncoder
        from agent.backends.loading import load_checkpoint, resolve_device, resolve_dtype
        from agent.backends.runner import GenerationOptions, ModelRunner

        if max_new_tokens < 1:
            raise ValueError(f"--max-new-tokens is {max_new_tokens}: it takes 1 or more")
        if temperature < 0:
            raise ValueError(f"--temperature is {temperature}: it takes 0 (greedy) or more")
        self.name = model
        where = resolve_device(device)
        loaded, processor = load_checkpoint(model, resolve_dtype(dtype, where), where)
        options = GenerationOptions(max_new_tokens, min_new_tokens, temperature, seed)
        self._tokenizer = processor.tokenizer
        self._encoder = ConversationEncoder(loaded, processor)
        self._runner = ModelRunner(loaded, self._tokenizer, options)

    def generate(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """One reply per conversation, in order; every conversation ends with a user message.

        Raises OutOfMemory when a smaller batch may work, ModelError for a conversation that cannot be replied to.
        """
        if not conversations:
            return []
        started = time.perf_counter()
        batch = [self._encoder.encode(conversation) for conversation in conversations]
        rows = self._runner.run(batch)
        seconds = time.perf_counter() - started
        return [
            Reply(
                text=self._tokenizer.decode(row.tokens, skip_special_tokens=True),
                tokens=row.tokens,
                prompt_tokens=len(encoded.ids),
                generated_tokens=len(row.tokens),
                finish_reason="stop" if row.finished else "length",
                seconds=seconds,
            )
            for encoded, row in zip(batch, rows, strict=True)
        ]

    def release(self, conversation: Conversation) -> None:
        """Let go of all that is kept for this conversation; unknown ones are ignored."""
        self._encoder.release(conversation)
