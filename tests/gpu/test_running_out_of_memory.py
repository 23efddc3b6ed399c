"""Batches that do not fit into a GPU's memory, and planned batches, which must."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import torch

from benchmarks.gpu.lab import Bench, Counted, Engine, Lab, LongReplies, counting
from benchmarks.roofline import work_of
from benchmarks.turns import Workload
from roomscout.edge.memory import fitting_batch
from roomscout.models import KV_SHARE, ModelOptions, OutOfMemory
from roomscout.models.conversation import Conversation
from roomscout.models.transformers.attention import current_call
from roomscout.models.transformers.devices import usable_bytes
from roomscout.models.transformers.kv_cache import buffer_columns

Record = Callable[[str, object], None]


@dataclass
class Prompt:
    """The state before a prompt's forward pass: its rows, bytes allocated on the GPU, and whether tensors of an earlier
    simulated failure are still alive."""

    rows: int
    allocated: int
    leaking: bool


class Watch:
    """A forward hook that records each prompt's call.

    With `most_rows`, the first decoding step of a larger batch simulates running out of memory.
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self.prompts: list[Prompt] = []
        self._most_rows = most_rows
        self._activations: list[weakref.ref[torch.Tensor]] = []

    def __call__(self, model: torch.nn.Module, args: Any, inputs: dict[str, Any]) -> None:
        """Runs before each forward()."""
        rows = len(current_call().starts)
        if "logits_to_keep" in inputs:  # a decoding step has no others
            allocated = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
            self.prompts.append(Prompt(rows, allocated, any(each() is not None for each in self._activations)))
        elif self._most_rows is not None and rows > self._most_rows:
            activation = torch.empty(rows)
            self._activations.append(weakref.ref(activation))
            raise torch.OutOfMemoryError(f"a batch of {rows} is too large")


@contextmanager
def watched(bench: Bench, most_rows: int | None = None) -> Iterator[Watch]:
    """Attach a `Watch` to the model."""
    watch = Watch(most_rows)
    hook = bench.model.register_forward_pre_hook(watch, with_kwargs=True)
    try:
        yield watch
    finally:
        hook.remove()


Replies = list[tuple[int, ...]]


def halving(engine: Engine, conversations: Sequence[Conversation]) -> tuple[Replies, list[int]]:
    """Run one turn of all conversations; as in a run, running out of memory halves the batch size.

    Returns the replies, and the batch sizes that did not fit.
    """
    size, replies, failed = len(conversations), Replies(), list[int]()
    while len(replies) < len(conversations):
        batch = conversations[len(replies) : len(replies) + size]
        try:
            result = engine.generate(batch)
        except OutOfMemory:
            if len(batch) == 1:
                raise
            failed.append(len(batch))
        else:
            replies += [row.tokens for row in result]
            continue
        size = max(1, len(batch) // 2)  # outside the handler, whose error keeps the failed call's tensors alive
    return replies, failed


@contextmanager
def capped(lab: Lab, limit_bytes: int) -> Iterator[None]:
    """Limit the GPU memory that PyTorch may reserve; no effect on a CPU."""
    if lab.is_cuda:
        lab.free_memory()
        total = torch.cuda.get_device_properties(lab.device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit_bytes / total), lab.device)
    try:
        yield
    finally:
        if lab.is_cuda:
            torch.cuda.set_per_process_memory_fraction(1.0, lab.device)


@dataclass
class Shortage:
    """The outcome of a batch that did not fit beside cached conversations."""

    expected: Replies
    replies: Replies
    failed: list[int]
    prompts: list[Prompt]
    limit_bytes: int


def run_short(lab: Lab) -> Shortage:
    """Run a batch that does not fit while other conversations are cached. In float32, so that replies must be equal.

    The limit is between what half the batch reserves and what the whole batch allocates, because PyTorch frees unused
    reserved memory at the limit. A CPU has no such limit, so the failure is simulated.
    """
    rows, bench = lab.sizes.capped_rows, lab.bench(lab.sizes.middle, torch.float32)
    workload = Workload(rows + 2, 1, lab.sizes.image_size)
    make = partial(bench.engine, tokens=8)

    def peaks(count: int) -> tuple[Counted, Replies]:
        lab.free_memory()
        with counting() as counted:
            replies, _ = halving(make(), workload.begin()[:count])
        return counted, replies

    half, _ = peaks(rows // 2)
    whole, expected = peaks(rows)
    engine = make()
    engine.generate(workload.begin()[rows:])  # other conversations, to be cached
    limit = half.allocated + (whole.allocated - half.allocated) // 2
    if half.reserved < whole.allocated:
        limit = half.reserved + (whole.allocated - half.reserved) // 2
    with capped(lab, limit), watched(bench, None if lab.is_cuda else rows // 2) as watch:
        replies, failed = halving(engine, workload.begin()[:rows])
    return Shortage(expected, replies, failed, watch.prompts, limit)


@pytest.fixture(scope="module")
def shortage(lab: Lab) -> Shortage:
    return run_short(lab)


def test_halved_batches_give_the_same_replies(lab: Lab, shortage: Shortage, record_property: Record) -> None:
    """As the whole batch where memory suffices; none is lost."""
    limit = f"at {shortage.limit_bytes / 2**30:.2f} GiB" if lab.is_cuda else "(simulated)"
    record_property("finding", f"batches of {shortage.failed} did not fit {limit}")
    assert shortage.failed, f"nothing ran out of memory: {[each.rows for each in shortage.prompts]} rows fit"
    assert shortage.replies == shortage.expected


def test_a_failed_batch_is_freed_before_the_retry(lab: Lab, shortage: Shortage, record_property: Record) -> None:
    first, *later = shortage.prompts
    assert later, "nothing was retried"
    before, after = first.allocated / 2**20, later[0].allocated / 2**20
    record_property("finding", f"{before:.0f} MiB allocated before the failed prompt, {after:.0f} MiB before the next")
    assert not any(each.leaking for each in later), "tensors of the failed call are alive at later prompts"
    assert later[0].allocated - first.allocated < 2**20


def test_the_planned_batch_fits_at_full_length(lab: Lab, record_property: Record) -> None:
    """Nothing is evicted or encoded twice.

    To save time, only the first tokens of each reply are generated, then repeated to 512, the default of
    --max-new-tokens.
    """
    sizes, bench = lab.sizes, lab.bench(lab.sizes.large, lab.dtype)
    reply_tokens, tokens = (512, 16) if lab.is_cuda else (32, 4)
    tokens_each = bench.planned_tokens(sizes.turns, sizes.image_size, reply_tokens)
    question_bytes = work_of(bench.model, lab.dtype.itemsize).kv_bytes_per_token * buffer_columns(tokens_each)
    lab.free_memory()
    # A CPU's memory would fit more rows than it can compute in reasonable time.
    budget = (
        int(usable_bytes(lab.device, ModelOptions.memory_fraction) * KV_SHARE)
        if lab.is_cuda
        else int(question_bytes * (sizes.planned_rows + 0.5))
    )
    rows = fitting_batch(budget, question_bytes, sizes.planned_rows)
    workload = LongReplies(rows, sizes.turns, sizes.image_size, reply_tokens)
    engine = bench.engine(tokens=tokens, kv_bytes=budget, planned_tokens=tokens_each)
    conversations, images, reused = workload.begin(), 0, []
    with counting() as counted:
        for turn in range(sizes.turns):
            result = engine.generate(conversations)
            images += sum(row.images_encoded for row in result)
            reused.append(min(row.reused_tokens for row in result))
            for conversation, row in zip(conversations, result, strict=True):
                workload.proceed(conversation, row.tokens, turn)
    memory = f"peak {counted.allocated / 2**30:.1f} GiB allocated, {counted.reserved / 2**30:.1f} reserved"
    record_property("finding", f"{rows} rows of {tokens_each} tokens; {memory}{counted.notes}")
    assert images == rows * sizes.turns, "images were encoded again"
    assert all(reused[1:]), f"rows were evicted: least reused tokens by turn {reused}"
    assert not counted.log
