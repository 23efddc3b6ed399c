"""Checks of replies for all step types and attention kernels, of memory, of the machine and of its renderer."""

import importlib.util
import itertools
import math
import os
import platform
import subprocess
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import transformers
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from agent.planning import fitting_batch
from benchmarks.gpu.lab import (
    Bench,
    Counted,
    Engine,
    Lab,
    LongReplies,
    Skipped,
    counting,
    cudnn_attention,
    require,
)
from benchmarks.turns import Workload
from models import KV_SHARE, OutOfMemory
from models.conversation import Conversation
from models.transformers.footprint import work_of
from models.transformers.kv_cache import buffer_columns
from models.transformers.loading import free_bytes
from models.transformers.runner import Steps
from rendering.renderers.pyrender_egl import cuda_ordinals

Replies = dict[tuple[int, int], tuple[int, ...]]
"""Replies by (question, turn)."""
Schedule = Sequence[Sequence[int]]
"""The questions of each call, in order; each takes its next turn."""

TOGETHER: Schedule = ((0, 1, 2, 3), (0, 1, 2, 3), (0, 2, 3), (4, 0, 2, 3), (4,), (0, 2, 4))
"""Questions leave, join late, run alone, and change order."""
ALONE: Schedule = [(row,) for row in range(5) for call in TOGETHER if row in call]
_TURNS = 6


def play(engine: Engine, workload: Workload, schedule: Schedule, forced: Replies | None = None) -> Replies:
    """Run every call of a schedule.

    With `forced`, conversations continue with those replies instead of the model's, so that one difference does not
    cause others.
    """
    conversations, replies = workload.begin(), Replies()
    turns = [0] * len(conversations)
    left = [sum(row in call for call in schedule) for row in range(len(conversations))]
    for call in schedule:
        result = engine.generate([conversations[row] for row in call])
        for row, generated in zip(call, result.rows, strict=True):
            key = row, turns[row]
            replies[key] = generated.tokens
            turns[row] += 1
            if turns[row] == left[row]:
                engine.release(conversations[row])
            else:
                workload.proceed(conversations[row], (forced or replies)[key], key[1])
    return replies


def exact(lab: Lab, steps: Steps) -> str:
    """In float32, replies are identical: batched or alone, with or without KV reuse, for any type of step.

    The reference is each question alone, re-encoding, with eager steps.
    """
    bench, workload = lab.bench("tiny", torch.float32), Workload(5, _TURNS, (96, 64))
    reusing = bench.engine(steps, forced=False)
    if "float32" not in lab.memo:
        lab.memo["float32"] = play(bench.engine(forced=False, kv_bytes=0), workload, ALONE)
    alone: Replies = lab.memo["float32"]
    lengths = {len(reply) for reply in alone.values()}
    require(len(lengths) > 3, f"replies have only {len(lengths)} different lengths, so rows hardly end early")
    with counting() as counted:
        found = {
            "batched, re-encoding": play(bench.engine(steps, forced=False, kv_bytes=0), workload, TOGETHER),
            "alone, KV reuse": play(reusing, workload, ALONE),
            "batched, KV reuse": play(reusing, workload, TOGETHER),
        }
    different = [
        f"{name}: {sum(replies[key] != alone[key] for key in alone)} of {len(alone)} replies differ, first {first}"
        for name, replies in found.items()
        if (first := next((key for key in alone if replies[key] != alone[key]), None))
    ]
    require(not different, "; ".join(different))
    require(not (problem := graph_problem(lab, steps, counted)), problem)
    return f"{3 * len(alone)} replies of {len(lengths)} lengths equal, token for token{run_notes(counted)}"


def graph_problem(lab: Lab, steps: Steps, counted: Counted) -> str:
    """A message if graphs were requested but not replayed, else an empty string."""
    captured, replayed = counted.graphs_captured, counted.graphs_replayed
    failed = any("CUDA graph capture failed" in line for line in counted.log)
    if not lab.is_cuda or "graphs" not in steps or (replayed > captured > 0 and not failed):
        return ""
    return f"{captured} graphs captured, {replayed} replayed; log: {' | '.join(counted.log)}"


def run_notes(counted: Counted) -> str:
    """Numbers of graphs and programs, and logged warnings, to append to a result."""
    summary = ""
    if counted.graphs_captured:
        summary += f"; {counted.graphs_captured} graphs captured, {counted.graphs_replayed} replays"
    if counted.programs:
        summary += f"; {counted.programs} programs compiled"
    if counted.log:
        summary += f"; log: {' | '.join(dict.fromkeys(counted.log))}"
    return summary


def same_share(first: Replies, second: Replies) -> tuple[float, float]:
    """The fraction of equal replies, and the fraction of tokens before the first difference in each reply."""
    equal = sum(first[key] == second[key] for key in first)
    common = tokens = 0
    for key, reply in first.items():
        common += sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(reply, second[key])))  # noqa: B905
        tokens += len(reply)
    return equal / len(first), common / tokens


LEAST_SHARE = 0.7
"""The fraction of tokens that must agree in bfloat16. Random weights have many near-ties: on a CPU, 87 to 100 % agree,
but 13 to 48 % with positions off by one or without a mask."""


def agreement(lab: Lab, steps: Steps, cudnn: bool = False) -> str:
    """Most replies agree in bfloat16, where rounding depends on the kernel and the batch.

    The reference is each question alone, re-encoding, with eager steps and without cuDNN attention.
    """
    if "compiled" in steps and not lab.sizes.compiled_agreement:
        raise Skipped("compiling another model takes too long on a CPU")
    bench, workload = lab.bench(lab.sizes.middle, torch.bfloat16), Workload(5, _TURNS, lab.sizes.image_size)
    if "bfloat16" not in lab.memo:
        with cudnn_attention(False):
            lab.memo["bfloat16"] = play(bench.engine(tokens=16, kv_bytes=0), workload, ALONE)
    alone: Replies = lab.memo["bfloat16"]
    with counting() as counted, cudnn_attention(cudnn):
        variants = {
            "batch vs alone, re-encoding": play(bench.engine(steps, 16, kv_bytes=0), workload, TOGETHER, alone),
            "KV reuse vs re-encoding, alone": play(bench.engine(steps, 16), workload, ALONE, alone),
            "batch with KV reuse vs alone": play(bench.engine(steps, 16), workload, TOGETHER, alone),
        }
    shares = {name: same_share(alone, replies) for name, replies in variants.items()}
    summary = "; ".join(f"{name}: {a:.0%} of replies, {b:.0%} of tokens" for name, (a, b) in shares.items())
    require(min(tokens for _, tokens in shares.values()) >= LEAST_SHARE, summary)
    require(not (problem := graph_problem(lab, steps, counted)), problem)
    return summary + run_notes(counted)


@dataclass(frozen=True)
class _Masked:
    """An attention call as in the model, with its first row fully masked."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    allowed: torch.Tensor

    @classmethod
    def make(cls, device: torch.device, dtype: torch.dtype, new: int, columns: int) -> "_Masked":
        torch.manual_seed(columns)
        sizes = {"device": device, "dtype": dtype}
        query, key, value = (torch.randn(3, 2, each, 64, **sizes) for each in (new, columns, columns))
        allowed = torch.rand(3, 1, new, columns, device=device) < 0.7
        allowed[0], allowed[1:, ..., 0] = False, True
        return cls(query, key, value, allowed)

    def masks(self) -> dict[str, torch.Tensor]:
        """The mask in each form."""
        zero = torch.zeros(self.allowed.shape, device=self.allowed.device, dtype=self.query.dtype)
        least = torch.finfo(zero.dtype).min
        return {
            "boolean": self.allowed,
            "additive": zero.masked_fill(~self.allowed, least),
            "minus infinity": zero.masked_fill(~self.allowed, -math.inf),
        }

    def attend(self, mask: torch.Tensor) -> torch.Tensor:
        return scaled_dot_product_attention(self.query, self.key, self.value, attn_mask=mask)


def masked_rows(lab: Lab) -> str:
    """In every attention kernel that accepts the call, fully masked rows are finite and the others correct.

    Padding attends to nothing, and NaN there would spread. cuDNN and boolean or minus-infinity masks, which the package
    does not use, are reported but cannot fail the check.
    """
    kernels = {
        "math": SDPBackend.MATH,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cuDNN": SDPBackend.CUDNN_ATTENTION,
    }
    found: dict[str, list[str]] = {"finite": [], "NaN": [], "refused": [], "wrong": []}
    for (name, kernel), dtype, (new, columns) in itertools.product(
        kernels.items(), (torch.bfloat16, torch.float32), ((1, 37), (1, 64), (5, 37))
    ):
        call = _Masked.make(lab.device, dtype, new, columns)
        with sdpa_kernel(SDPBackend.MATH):
            expected = call.attend(call.allowed)[1:]
        for kind, mask in call.masks().items():
            label = f"{name} {kind} {str(dtype)[6:]} {new}x{columns}"
            try:
                with sdpa_kernel(kernel):
                    attended = call.attend(mask)
            except RuntimeError:  # "No available kernel"
                found["refused"].append(label)
                continue
            finite = bool(attended.isfinite().all())
            found["finite" if finite else "NaN"].append(label)
            if not torch.allclose(attended[1:], expected, atol=0.03 if dtype == torch.bfloat16 else 1e-4):
                found["wrong"].append(label)
    used = [label for label in found["NaN"] + found["wrong"] if " additive " in label and "cuDNN" not in label]
    require(not used, f"NaN or wrong: {', '.join(used)}")
    accepting = sorted({label.split()[0] for label in found["finite"] + found["NaN"]})
    nan, wrong = (", ".join(found[kind]) or "none" for kind in ("NaN", "wrong"))
    counts = f"{len(found['finite'])} calls finite in {', '.join(accepting)}; {len(found['refused'])} refused"
    return f"{counts}; NaN: {nan}; wrong: {wrong}"


def sampling(lab: Lab) -> str:
    """Sampled replies depend on the seed, not on the batch or on earlier calls."""
    bench, workload = lab.bench("tiny", torch.float32), Workload(5, _TURNS, (96, 64))
    first, again, alone, other = [
        play(bench.engine(forced=False, temperature=2.0, seed=seed), workload, schedule)
        for seed, schedule in ((1, TOGETHER), (1, TOGETHER), (1, ALONE), (2, TOGETHER))
    ]
    require(first == again, "the same seed gave different replies the second time")
    require(first == alone, f"only {same_share(first, alone)[0]:.0%} of a batch's replies equal those of rows alone")
    require(same_share(first, other)[0] < 0.2, "another seed gave the same replies: sampling has no effect")
    return f"{len(first)} replies: repeatable, equal in a batch and alone, different with another seed"


@dataclass
class Call:
    """The state before a prompt's forward pass: its rows, bytes allocated on the GPU, and whether tensors of an earlier
    simulated failure are still alive."""

    rows: int
    allocated: int
    leaking: bool


class Watch:
    """A forward hook that records each prompt.

    With `most_rows`, the first decoding step of a larger batch simulates running out of memory.
    """

    def __init__(self, most_rows: int | None = None) -> None:
        self.calls: list[Call] = []
        self._most_rows = most_rows
        self._activations: list[weakref.ref[torch.Tensor]] = []

    def __call__(self, model: torch.nn.Module, args: Any, inputs: dict[str, Any]) -> None:
        """Runs before each forward()."""
        rows, columns = inputs["input_ids"].shape
        if columns > 1:
            allocated = torch.cuda.memory_allocated() if torch.cuda.is_initialized() else 0
            self.calls.append(Call(rows, allocated, any(each() is not None for each in self._activations)))
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


def _halving(engine: Engine, conversations: Sequence[Conversation]) -> tuple[Replies, list[int]]:
    """Run one turn of all conversations; as in a run, running out of memory halves the batch size.

    Returns the replies by position, and the batch sizes that did not fit.
    """
    size, replies, failed = len(conversations), Replies(), list[int]()
    while len(replies) < len(conversations):
        start = len(replies)
        batch = conversations[start : start + size]
        try:
            result = engine.generate(batch)
        except OutOfMemory:
            if len(batch) == 1:
                raise
            failed.append(len(batch))
        else:
            replies |= {(start + place, 0): row.tokens for place, row in enumerate(result.rows)}
            continue
        size = max(1, len(batch) // 2)  # outside the handler, whose error keeps the failed call's tensors alive
    return replies, failed


@contextmanager
def _capped(lab: Lab, limit_bytes: int) -> Iterator[None]:
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
    watch: Watch
    limit_bytes: int


def _run_short(lab: Lab) -> Shortage:
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
            replies, _ = _halving(make(), workload.begin()[:count])
        return counted, replies

    half, _ = peaks(rows // 2)
    whole, expected = peaks(rows)
    engine = make()
    engine.generate(workload.begin()[rows:])  # other conversations, to be cached
    limit = half.allocated + (whole.allocated - half.allocated) // 2
    if half.reserved < whole.allocated:
        limit = half.reserved + (whole.allocated - half.reserved) // 2
    with _capped(lab, limit), watched(bench, None if lab.is_cuda else rows // 2) as watch:
        replies, failed = _halving(engine, workload.begin()[:rows])
    return Shortage(expected, replies, failed, watch, limit)


def halving(lab: Lab) -> str:
    """Batches that were halved after running out of memory give the same replies as the whole batch."""
    short = lab.memo["shortage"] = _run_short(lab)
    require(bool(short.failed), f"nothing ran out of memory: {[call.rows for call in short.watch.calls]} rows fit")
    equal, _ = same_share(short.expected, short.replies)
    require(equal == 1, f"only {equal:.0%} of replies equal those of the whole batch")
    limit = f" at {short.limit_bytes / 2**30:.2f} GiB" if lab.is_cuda else " (simulated)"
    return f"batches of {short.failed} did not fit{limit}: {len(short.replies)} replies, none lost, all equal"


def retry_frees_memory(lab: Lab) -> str:
    """The memory of a failed attempt is freed before the batch is retried."""
    short: Shortage | None = lab.memo.get("shortage")
    if short is None:
        raise Skipped("memory did not run out")
    first, *later = short.watch.calls
    require(bool(later), "nothing was retried")
    leaking = [call for call in later if call.leaking]
    require(not leaking, f"tensors of the failed call are alive at {len(leaking)} of {len(later)} later prompts")
    if not lab.is_cuda:
        return f"tensors of the failed step are freed at all {len(later)} later prompts"
    retry = later[0]
    more = retry.allocated - first.allocated
    require(more < 2**20, f"{more / 2**20:.0f} MiB more allocated at the retry with {retry.rows} rows")
    before, after = first.allocated / 2**20, retry.allocated / 2**20
    return f"{before:.0f} MiB allocated before the failed prompt, {after:.0f} MiB before the next"


def planned_batch(lab: Lab) -> str:
    """The planned batch size fits at full length: nothing is evicted or encoded twice.

    To save time, only the first tokens of each reply are generated, then repeated to 512, the default of
    --max-new-tokens.
    """
    sizes, bench = lab.sizes, lab.bench(lab.sizes.large, lab.dtype)
    reply_tokens, tokens = (512, 16) if lab.is_cuda else (32, 4)
    tokens_each = bench.planned_tokens(sizes.turns, sizes.image_size, reply_tokens)
    columns = buffer_columns(tokens_each)
    question_bytes = work_of(bench.model, lab.dtype.itemsize).kv_bytes_per_token * columns
    lab.free_memory()
    # A CPU's memory would fit more rows than it can compute in reasonable time.
    budget = int(free_bytes(lab.device) * KV_SHARE) if lab.is_cuda else int(question_bytes * (sizes.planned_rows + 0.5))
    rows = fitting_batch(budget, question_bytes, sizes.planned_rows)
    workload = LongReplies(rows, sizes.turns, sizes.image_size, reply_tokens)
    engine = bench.engine(tokens=tokens, kv_bytes=budget, planned_tokens=tokens_each)
    conversations, images, reused = workload.begin(), 0, []
    with counting() as counted:
        for turn in range(sizes.turns):
            result = engine.generate(conversations)
            images += sum(row.images for row in result.rows)
            reused.append(min(row.reused for row in result.rows))
            for conversation, row in zip(conversations, result.rows, strict=True):
                workload.proceed(conversation, row.tokens, turn)
    memory = f"; peak {counted.allocated / 2**30:.1f} GiB allocated, {counted.reserved / 2**30:.1f} reserved"
    summary = f"{rows} rows of {tokens_each} tokens" + (memory if lab.is_cuda else "") + run_notes(counted)
    require(images == rows * sizes.turns, f"{images} images encoded for {rows * sizes.turns} views, {summary}")
    require(all(reused[1:]), f"rows were evicted: reused tokens by turn {reused}, {summary}")
    require(not counted.log, summary)
    return summary


def machine(lab: Lab) -> str:
    """Report versions, the device and its attention kernels."""
    facts: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if lab.is_cuda else None,
        "triton": _version("triton"),
        "flash_attn": _version("flash_attn"),
        "allocator": os.environ.get("PYTORCH_ALLOC_CONF") or os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        "processor": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "device": platform.machine(),
        "attention_flags": lab.memo["attention_flags"],
    }
    if lab.is_cuda:
        properties = torch.cuda.get_device_properties(lab.device)
        facts |= {
            "device": properties.name,
            "memory_gib": round(properties.total_memory / 2**30, 2),
            "free_gib": round(torch.cuda.mem_get_info(lab.device)[0] / 2**30, 2),
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "driver": _driver(),
            "attention_usable": _usable_kernels(lab.device),
        }
    lab.journal.record["machine"] |= facts
    return ", ".join(f"{key} {value}" for key, value in facts.items() if value is not None)


def attention_flags() -> dict[str, bool]:
    """The attention kernels that PyTorch may choose by default."""
    cuda = torch.backends.cuda
    return {
        "flash": cuda.flash_sdp_enabled(),
        "efficient": cuda.mem_efficient_sdp_enabled(),
        "cudnn": cuda.cudnn_sdp_enabled(),
        "math": cuda.math_sdp_enabled(),
    }


def _usable_kernels(device: torch.device) -> dict[str, list[str]]:
    """The kernels that accept a decoding step's attention in bfloat16, without and with a mask."""
    cuda = torch.backends.cuda
    query, key = (torch.zeros(2, 8, columns, 128, device=device, dtype=torch.bfloat16) for columns in (4, 64))
    masks = {
        "unmasked": None,
        "masked": torch.zeros(2, 1, 1, 64, device=device, dtype=torch.bfloat16).expand(2, 8, 4, 64),
    }
    usable = {}
    for name, mask in masks.items():
        params = cuda.SDPAParams(query, key, key, mask, 0.0, False, False)
        checks = {
            "flash": cuda.can_use_flash_attention,
            "efficient": cuda.can_use_efficient_attention,
            "cudnn": cuda.can_use_cudnn_attention,
        }
        usable[name] = [kernel for kernel, can_use in checks.items() if can_use(params)]
    return usable


def _version(module: str) -> str | None:
    """The version of a module; None if it is not installed."""
    if importlib.util.find_spec(module) is None:
        return None
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(module)
    except PackageNotFoundError:
        return "unknown"


def _driver() -> str:
    """The driver version reported by nvidia-smi."""
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown ({error})"
    return " ".join(output.split()) or "unknown"


def egl_devices(lab: Lab) -> str:
    """The GPU under test has an EGL device."""
    try:
        ordinals = cuda_ordinals()
    except OSError as error:
        raise Skipped(f"EGL is not available: {error}") from None
    if not ordinals:
        raise Skipped("EGL has no devices: no EGL driver is installed")
    if not lab.is_cuda:
        return f"CUDA ordinals of EGL devices: {ordinals}"
    index = lab.device.index or 0
    require(index in ordinals, f"no EGL device is CUDA device {index}: {ordinals}")
    return f"EGL device {ordinals.index(index)} is CUDA device {index}, of {ordinals}"


def views(lab: Lab) -> str:
    """pyrender renders on a GPU."""
    missing = [name for name in ("open3d", "pyrender") if importlib.util.find_spec(name) is None]
    if missing:
        raise Skipped(f"{', '.join(missing)} not installed")
    lab.require_cuda()
    from benchmarks.renderers import measure, poses, room
    from rendering.camera import Intrinsics

    row = measure("pyrender", room(200_000), Intrinsics(640, 480, focal_px=300.0), poses(12))
    software = [word for word in ("llvmpipe", "softpipe", "swrast", "software") if word in row.device.lower()]
    require(not software, f"rendered in software by {row.device}")
    return (
        f"{row.view_ms:.1f} ms per view of {row.faces:,} faces, the first {row.first_view_ms:.0f} ms, by {row.device}"
    )
