"""What tests/gpu and the measurements share: models with random weights, their runners and counters."""

import gc
import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from logging.handlers import BufferingHandler
from statistics import median
from typing import Any

import torch
from torch._dynamo.utils import counters

from benchmarks.roofline import Rates, measure_rates
from benchmarks.turns import Workload, build
from roomscout.agent.policies.replies import action_format
from roomscout.models import ModelOptions, OutOfMemory, Reply
from roomscout.models.conversation import Conversation
from roomscout.models.transformers.decoding import ReplyStop
from roomscout.models.transformers.encoding import ConversationEncoder
from roomscout.models.transformers.runner import ModelRunner, Steps

UNLIMITED = 2**60  # a KV cache limit that is never reached
_SMALL = ("tiny", "45m")
_END_EVERY = range(0, 860, 8)


@dataclass(frozen=True)
class Sizes:
    """Sizes for a type of device. Shapes are names in `benchmarks.turns.SHAPES`."""

    middle: str  # the shape of tests that run often
    large: str  # the shape that is measured first
    second: str  # the shape that is measured next, or the large one again
    image_size: tuple[int, int]  # width and height
    questions: int  # of a schedule
    turns: int  # of a schedule
    tokens: int  # of a reply in a schedule
    sample_tokens: int  # of a reply in a schedule that is slow
    rows: tuple[int, ...]  # the batch sizes for which steps are timed
    step_tokens: int  # of the replies whose steps are timed
    history: int  # turns before these replies
    capped_rows: int  # the batch size that runs out of memory
    planned_rows: int  # the largest batch size that may be planned


GPU_SIZES = Sizes(
    middle="45m", large="8b", second="2b", image_size=(640, 480), questions=32, turns=8, tokens=200, sample_tokens=50,
    rows=(32, 8, 64, 1), step_tokens=32, history=1, capped_rows=16, planned_rows=64,
)  # fmt: skip
CPU_SIZES = Sizes(
    middle="tiny", large="tiny", second="tiny", image_size=(96, 64), questions=3, turns=6, tokens=8, sample_tokens=4,
    rows=(2, 1), step_tokens=6, history=1, capped_rows=4, planned_rows=3,
)  # fmt: skip


class Engine:
    """A model runner with its encoder."""

    def __init__(self, encoder: ConversationEncoder, runner: ModelRunner) -> None:
        self.encoder = encoder
        self.runner = runner

    def generate(self, conversations: Sequence[Conversation]) -> list[Reply]:
        """Generate one reply per conversation; the device is idle before and after."""
        batch = [self.encoder.encode(conversation) for conversation in conversations]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
        return self.runner.run(batch, action_format())

    def release(self, conversation: Conversation) -> None:
        """Release a conversation."""
        self.encoder.release(conversation.key)
        self.runner.release(conversation.key)


class Bench:
    """A model of one shape with random weights on a device."""

    def __init__(self, shape: str, device: torch.device, dtype: torch.dtype) -> None:
        self.shape = shape
        self.dtype = dtype
        self._lengths: dict[tuple[int, tuple[int, int], int], int] = {}
        self.model, self.processor = build(shape, device, dtype, seed=0)
        self._end_ids = list(self.model.generation_config.eos_token_id)
        self.pixels_on = device if device.type == "cuda" else None

    def engine(
        self,
        steps: Steps = "eager",
        tokens: int = 24,
        *,
        forced: bool = True,
        kv_bytes: int = UNLIMITED,
        **options: Any,
    ) -> Engine:
        """A runner whose replies have exactly `tokens` tokens.

        If not `forced`, they have at most that many: every eighth token id ends a reply, so that lengths vary. With 0
        `kv_bytes`, nothing is reused.
        """
        ends = [] if forced else [*_END_EVERY]
        self.model.generation_config.eos_token_id = self._end_ids + ends
        device = self.pixels_on if kv_bytes else None
        encoder = ConversationEncoder(self.processor, self.model.config, self.model.dtype, device=device)
        settings = ModelOptions(max_new_tokens=tokens, **options)
        runner = ModelRunner(self.model, encoder, settings, kv_bytes, steps, forced=forced)
        return Engine(encoder, runner)

    def planned_tokens(self, turns: int, image_size: tuple[int, int], reply_tokens: int) -> int:
        """Tokens of the longest conversation, including the last reply, if every reply has `reply_tokens`."""
        key = turns, image_size, reply_tokens
        if key not in self._lengths:
            encoder = ConversationEncoder(self.processor, self.model.config, self.model.dtype)
            workload = Workload(6, turns, image_size)  # the texts of further questions repeat
            conversations = workload.begin()
            for turn, conversation in itertools.product(range(turns - 1), conversations):
                workload.proceed(conversation, (40,) * reply_tokens, turn)
            longest = max(len(encoder.encode(conversation).ids) for conversation in conversations)
            self._lengths[key] = longest + reply_tokens
        return self._lengths[key]


@dataclass
class Lab:
    """The device, sizes, and models."""

    device: torch.device
    sizes: Sizes
    _benches: dict[tuple[str, torch.dtype], Bench] = field(default_factory=dict)

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a CUDA GPU."""
        return self.device.type == "cuda"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of timed models."""
        return torch.bfloat16 if self.is_cuda else torch.float32

    def bench(self, shape: str, dtype: torch.dtype) -> Bench:
        """The model of this shape; loading a large one frees all others."""
        if (shape, dtype) not in self._benches:
            if shape not in _SMALL:
                self.free_models()
            self._benches[shape, dtype] = Bench(shape, self.device, dtype)
        return self._benches[shape, dtype]

    @cached_property
    def rates(self) -> Rates:
        """The device's copy and matrix rates; raises OutOfMemory if measuring them does not fit."""
        rates = measure_rates(str(self.device), str(self.dtype).removeprefix("torch."))
        if rates is None:
            raise OutOfMemory("memory ran out while measuring the device's rates")
        return rates

    def free_models(self) -> None:
        """Free all models."""
        self._benches.clear()
        torch._dynamo.reset()  # compiled programs may reference the models
        self.free_memory()

    def free_memory(self) -> None:
        """Collect garbage and empty PyTorch's cache."""
        gc.collect()
        if self.is_cuda:
            torch.cuda.empty_cache()


@contextmanager
def open_lab(name: str) -> Iterator[Lab]:
    """A lab on this device ("cuda", "cuda:1" or "cpu")."""
    device = torch.device(name)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", 0)  # some torch.cuda functions need an index
    sizes = GPU_SIZES if device.type == "cuda" else CPU_SIZES
    lab = Lab(device, sizes)
    threads = torch.get_num_threads()
    if lab.is_cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # more threads are slower on tensors this small
    try:
        yield lab
    finally:
        lab.free_models()
        torch.set_num_threads(threads)


@dataclass
class Counted:
    """What happened inside `counting`."""

    graphs_captured: int = 0  # CUDA graphs
    graphs_replayed: int = 0  # how often one was
    programs: int = 0  # compiled
    allocated: int = 0  # bytes at the peak, 0 on a CPU
    reserved: int = 0  # bytes at the peak, 0 on a CPU
    log: list[str] = field(default_factory=list)  # warnings
    read: list[tuple[float, int]] = field(default_factory=list)
    """The `perf_counter` times at which tokens of the last call were read, with their columns."""

    @property
    def step_s(self) -> float:
        """The median of the seconds of a decoding step."""
        return median((after - before) / (end - start) for (before, start), (after, end) in pairwise(self.read))

    def require_graphs(self, lab: Lab, steps: Steps) -> None:
        """Raise AssertionError if graphs were requested but not replayed."""
        if lab.is_cuda and "graphs" in steps:
            failed = any("CUDA graph capture failed" in line for line in self.log)
            replayed = self.graphs_replayed > self.graphs_captured > 0 and not failed
            assert replayed, f"{self.graphs_captured} graphs captured, {self.graphs_replayed} replayed; log: {self.log}"

    @property
    def notes(self) -> str:
        """Numbers of graphs and programs, and logged warnings, to append to a result."""
        summary = ""
        if self.graphs_captured:
            summary += f"; {self.graphs_captured} graphs captured, {self.graphs_replayed} replays"
        if self.programs:
            summary += f"; {self.programs} programs compiled"
        if self.log:
            summary += f"; log: {' | '.join(dict.fromkeys(self.log))}"
        return summary


@contextmanager
def counting() -> Iterator[Counted]:
    """Count CUDA graphs and compiled programs, record peak memory and token times, collect warnings of `models`."""
    counted = Counted()
    warned = BufferingHandler(sys.maxsize)
    on_cuda = torch.cuda.is_initialized()
    warned.setLevel(logging.WARNING)
    programs = counters["stats"]["unique_graphs"]

    def captured(*_: object) -> None:
        counted.graphs_captured += 1

    def replayed(*_: object) -> None:
        counted.graphs_replayed += 1

    def read(stop: ReplyStop, ids: torch.Tensor, scores: object) -> None:
        counted.read.append((time.perf_counter(), ids.shape[1]))

    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    logging.getLogger("roomscout.models").addHandler(warned)
    graph = torch.cuda.CUDAGraph
    try:
        with (
            _after_each_call(graph, "capture_begin", captured),
            _after_each_call(graph, "replay", replayed),
            _after_each_call(ReplyStop, "__init__", lambda *_: counted.read.clear()),
            _after_each_call(ReplyStop, "__call__", read),
        ):
            yield counted
    finally:
        logging.getLogger("roomscout.models").removeHandler(warned)
        counted.log = [record.getMessage() for record in warned.buffer]
        counted.programs = counters["stats"]["unique_graphs"] - programs
        if on_cuda:
            counted.allocated = torch.cuda.max_memory_allocated()
            counted.reserved = torch.cuda.max_memory_reserved()


@contextmanager
def _after_each_call(owner: Any, method: str, callback: Callable[..., None]) -> Iterator[None]:
    original = getattr(owner, method)

    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        returned = original(self, *args, **kwargs)
        callback(self, *args)
        return returned

    setattr(owner, method, wrapped)
    try:
        yield
    finally:
        setattr(owner, method, original)


@contextmanager
def cudnn_attention(model: torch.nn.Module, allowed: bool) -> Iterator[None]:
    """If `allowed`, let a model's eager calls use cuDNN attention, which the package forbids inside each of them.

    The hook runs behind that prohibition; the end of the call restores what was set before it.
    """
    hook = model.register_forward_pre_hook(lambda *_: torch.backends.cuda.enable_cudnn_sdp(True)) if allowed else None
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def padded(tokens: Sequence[int], length: int) -> tuple[int, ...]:
    """A reply repeated to this length."""
    return tuple(tokens[index % len(tokens)] for index in range(length))


class LongReplies(Workload):
    """Conversations whose replies are padded to `length` tokens, as if that many had been generated."""

    def __init__(self, questions: int, turns: int, image_size: tuple[int, int], length: int) -> None:
        super().__init__(questions, turns, image_size)
        self._length = length

    def proceed(self, conversation: Conversation, tokens: tuple[int, ...], turn: int) -> None:
        """As `Workload.proceed`, with the longer reply."""
        super().proceed(conversation, padded(tokens, self._length), turn)


class SameReplies(Workload):
    """Conversations that go on from the same replies, whatever was generated, so that no difference causes others."""

    def proceed(self, conversation: Conversation, tokens: tuple[int, ...], turn: int) -> None:
        """As `Workload.proceed`, with another reply."""
        super().proceed(conversation, (40,) * len(tokens), turn)
