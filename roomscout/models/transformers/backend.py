"""The transformers backend: all conversations of a batch at once."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Self

from roomscout.models import KV_SHARE, EarlyBackend, ModelError, ModelOptions, Reply, ReplyEnded, ReplyFormat
from roomscout.models.conversation import Conversation
from roomscout.models.transformers.source import require_libraries

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin


log = logging.getLogger(__name__)

# The packages with transformers' kernels for linear attention on CUDA, by their modules.
FAST_KERNELS = {"fla": "flash-linear-attention", "causal_conv1d": "causal-conv1d"}
SET_BY_LOADING = ("dtype", "device", "quantize", "revision", "adapter")  # facts of a model once it is loaded


class TransformersBackend(EarlyBackend):
    """Replies with an image-text-to-text model: one that is loaded already, or with `from_checkpoint` a checkpoint's.

    `model` and `processor` are what AutoModelForImageTextToText and AutoProcessor load. Weights, adapters included, are
    used as they are at each call. If they change while conversations are in progress, call `release_all`. The model
    must stay on its device and in its dtype.

    The model stays the caller's. Inside a call it is in eval mode, without gradients, its text layers use our attention
    where keys and values are reused, and of its generation settings only end and padding tokens apply. Between calls
    all of this is as the caller left it.

    `options` has the defaults of SET_BY_LOADING: the model has them already. With `kv_cache_bytes` None, keys and
    values may fill half of the memory that is free now: set it if training needs more later. `name`, by default the
    model's name_or_path, is recorded in run.json.

    In float32, a batch gives the same tokens as each row alone. Half-precision rounding depends on the batch size and
    may flip near-ties. Calls from several threads run one after the other.

    ModelError for an unsupported family, no weights, head or end token, several devices, or another's processor."""

    concurrent = False

    def __init__(
        self,
        model: "PreTrainedModel",
        processor: "ProcessorMixin",
        options: ModelOptions | None = None,
        *,
        name: str | None = None,
    ) -> None:
        from roomscout.models.transformers import devices, encoding, families, layers, loading, runner, steps

        options = options or ModelOptions()
        loading.require_model(model)
        loading.require_processor(processor, model.config)
        fixed = [name for name in SET_BY_LOADING if getattr(options, name) != getattr(ModelOptions, name)]
        if fixed:
            raise ModelError(f"{', '.join(fixed)} cannot be set for a loaded model: leave it out, or change the model")
        self._loaded = (model, processor)
        where = model.device
        self.name = name or model.name_or_path or type(model).__name__
        if options.compile:
            steps.require_compiler(model.device)
        pixels_on = where if options.kv_reuse else None  # those of recomputed conversations are kept
        self._encoder = encoding.ConversationEncoder(
            processor, model.config, model.dtype, tiles_per_view=options.tiles_per_view, device=pixels_on
        )
        reusable = self._encoder.chat.recomputed is None
        stateful = layers.keeps_states(model.config)
        has_own_steps = reusable and not self._encoder.chat.family.by_processor and not stateful
        compiled = options.compile and has_own_steps
        self._say_what_is_slow(options, compiled, stateful, where.type)
        kv_bytes = options.kv_cache_bytes if options.kv_reuse and reusable else 0
        if kv_bytes is None:
            kv_bytes = int(devices.usable_bytes(where, options.memory_fraction) * KV_SHARE)
        loop: runner.Steps = "compiled" if compiled else "eager"
        if where.type == "cuda" and has_own_steps:
            loop = "compiled graphs" if compiled else "graphs"
        self.views = families.family_of(model.config, processor).views  # the sizes of views that the model takes
        self._lock = threading.Lock()  # held whenever the runner is used; the encoder has one of its own
        self.sees_videos = self._encoder.chat.sees_videos  # whether frames of a video can be one input
        self._runner = runner.ModelRunner(model, self._encoder, options, kv_bytes, loop)

    @classmethod
    def from_checkpoint(cls, checkpoint: str, options: ModelOptions | None = None) -> Self:
        """Load a checkpoint by its hub id or folder, which names the backend; raises ModelError. Imports torch and
        transformers; on a CPU, the process then keeps freed memory, see `keep_freed_memory`."""
        require_libraries(checkpoint)
        import torch

        from roomscout.models.transformers import devices, steps, weights

        options = options or ModelOptions()
        device = devices.resolve_device(options.device)
        if options.compile:
            steps.require_compiler(device)
        dtype = devices.resolve_dtype(options.dtype, device)
        if device.type == "cpu":
            devices.keep_freed_memory()
        else:
            torch.cuda.set_per_process_memory_fraction(options.memory_fraction, device)
        started = time.perf_counter()
        model, processor = weights.load_checkpoint(checkpoint, dtype, device, options.quantize)
        if options.adapter is not None:
            from roomscout.models.adapters import with_adapter

            model = with_adapter(model, options.adapter, checkpoint)
        log.info("Loaded the weights of %s in %.1f s", checkpoint, time.perf_counter() - started)
        options = replace(options, **{name: getattr(ModelOptions, name) for name in SET_BY_LOADING})
        return cls(model, processor, options, name=checkpoint)

    def with_options(self, options: ModelOptions) -> Self:
        """A backend for the same loaded model with other options, in place of this one."""
        self.release_all()
        options = replace(options, **{name: getattr(ModelOptions, name) for name in SET_BY_LOADING})
        return type(self)(*self._loaded, options, name=self.name)

    def generate(self, conversations: Sequence[Conversation], reply_format: ReplyFormat) -> list[Reply]:
        """One reply per conversation, in order; each ends with a user message. Raises OutOfMemory if a smaller batch
        may work, ModelError for a conversation or grammar that cannot be served or logits that are not finite,
        ValueError for duplicates."""
        replies = dict[int, Callable[[], Reply]]()
        self.generate_each(conversations, reply_format, lambda index, reply: replies.update({index: reply}))
        return [replies[index]() for index in range(len(conversations))]

    def generate_each(
        self, conversations: Sequence[Conversation], reply_format: ReplyFormat, ended: ReplyEnded
    ) -> None:
        """See EarlyBackend; raises the errors of `generate`."""
        from roomscout.models.transformers.decoding import with_thought

        if len({(conversation.origin or conversation).key for conversation in conversations}) < len(conversations):
            raise ValueError("a batch contains the same conversation twice, or one beside its alternative")
        if not conversations:
            return
        with self._lock:
            started = time.perf_counter()
            batch = [self._encoder.encode(conversation) for conversation in conversations]
            preprocess_s = time.perf_counter() - started
            grammar = with_thought(reply_format.grammar, self._encoder.chat.opening)
            self._runner.run(
                batch,
                replace(reply_format, grammar=grammar),
                lambda index, row: ended(index, partial(self._with_text, row, preprocess_s)),
            )

    def _with_text(self, row: Reply | ModelError, preprocess_s: float) -> Reply:
        if isinstance(row, ModelError):
            raise row
        text = self._encoder.reply_text(row.tokens)
        return replace(row, text=text, seconds=preprocess_s + row.seconds, preprocess_seconds=preprocess_s)

    def prepare(self, conversation: Conversation) -> None:
        """Encode a conversation, also while others are generated; raises ModelError."""
        self._encoder.encode(conversation)

    def _say_what_is_slow(self, options: ModelOptions, compiled: bool, stateful: bool, device: str) -> None:
        recomputed = self._encoder.chat.recomputed
        if options.kv_reuse and recomputed is not None:
            log.warning("%s: every turn recomputes the whole conversation: %s", self.name, recomputed)
        if options.compile and not compiled:
            log.warning("%s: its decoding steps are not compiled: that takes a family in docs/models.md", self.name)
        if stateful:
            # transformers warns of each of its kernels, also on a CPU, for which there are none
            logging.getLogger("transformers.integrations.hub_kernels").setLevel("ERROR")
            if device == "cuda" and not all(map(find_spec, FAST_KERNELS)):
                kernels = " and ".join(FAST_KERNELS.values())
                log.warning("%s: linear attention is slower without %s", self.name, kernels)

    def release(self, conversation: Conversation) -> None:
        """Free this conversation's encoding and KV cache; unknown conversations are ignored."""
        with self._lock:
            self._encoder.release(conversation.key)
            self._runner.release(conversation.key)

    def release_all(self) -> None:
        """Free the encodings and KV caches of all conversations, as after changing the weights."""
        with self._lock:
            self._encoder.release_all()
            self._runner.forget()

    def peak_memory_bytes(self) -> int:
        """Peak CUDA memory allocated so far; 0 on other devices."""
        import torch

        device = self._loaded[0].device
        return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0
