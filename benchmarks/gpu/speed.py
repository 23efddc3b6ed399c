"""Measures decoding steps and whole ways on this device and compares them with their rooflines."""

import re
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.checks import how_taken, not_taken
from benchmarks.gpu.lab import (
    EVERYTHING,
    Bench,
    Counted,
    Lab,
    LongReplies,
    counting,
    cudnn_attention,
    require,
)
from benchmarks.turns import WAYS, Measured, Way, Workload, measure, roofline_s
from models import OutOfMemory
from models.transformers.footprint import work_of
from models.transformers.runner import Steps

_PROGRAMS = 2  # one for a single row, one for more
_ATTENTION = re.compile(r"fmha|flash|attention|sdpa|_sdp_|cudnn_generated", re.IGNORECASE)
_COPIES = ("Memcpy", "Memset")


def load(lab: Lab, shape: str) -> str:
    """Build a model of the shape on the device, and measure the device's rates."""
    bench = lab.bench(shape, lab.dtype)
    rates = lab.rates()
    size = bench.model.get_memory_footprint() / 2**30
    memory = f", {torch.cuda.memory_allocated() / 2**30:.2f} GiB allocated" if lab.is_cuda else ""
    return (
        f"{bench.model.num_parameters() / 1e6:,.1f} M parameters, {size:.2f} GiB{memory}; copies "
        f"{rates.bytes_per_s / 1e9:,.0f} GB/s, multiplies {rates.flop_per_s / 1e12:,.1f} TFLOP/s"
    )


@dataclass(frozen=True)
class StepFigures:
    """Timings of one turn of `rows` conversations of `columns` tokens each.

    `step_ms` is the median decoding step, `mean_step_ms` the mean, which includes capturing graphs. `image_ms` is
    prefill per image, including the turn's text and the tail of the previous reply. Graphs, programs and peak memory
    cover three turns.
    """

    shape: str
    steps: Steps
    attention: str
    rows: int
    columns: int
    step_ms: float
    roofline_step_ms: float
    mean_step_ms: float
    image_ms: float
    roofline_image_ms: float
    graphs_captured: int
    programs: int
    allocated_gib: float
    reserved_gib: float


def steps_at_all_rows(lab: Lab, steps: Steps, cudnn: bool = False, rows: tuple[int, ...] | None = None) -> str:
    """Time the steps of several batch sizes.

    Fails if a batch does not fit, if graphs are not replayed, or if more programs are compiled than one for a single
    row and one for more.
    """
    bench = lab.bench(lab.sizes.large, lab.dtype)
    said, failed, programs = [], [], 0
    for count in rows or lab.sizes.rows:
        lab.tidy()
        try:
            figures, counted = _time_steps(lab, bench, steps, count, cudnn)
        except OutOfMemory as error:
            failed.append(f"{count} rows: {error}")
            continue
        if problem := not_taken(lab, steps, counted):
            failed.append(f"{count} rows: {problem}")
        programs += figures.programs
        lab.journal.record["steps"].append(asdict(figures))
        lab.journal.save()
        lab.memo[f"step_s {bench.shape} {steps} {count}"] = figures.step_ms / 1000
        step, image = figures.step_ms / figures.roofline_step_ms, figures.image_ms / figures.roofline_image_ms
        said.append(
            f"{count} rows {figures.step_ms:.1f} ms a step ({step:.1f} x roofline), {figures.image_ms:.1f} an image "
            f"({image:.1f} x){how_taken(counted)}"
        )
    require(not failed, "; ".join([*failed, *said]))
    require(programs <= _PROGRAMS, f"{programs} programs compiled; {'; '.join(said)}")
    return "; ".join(said)


def _time_steps(lab: Lab, bench: Bench, steps: Steps, rows: int, cudnn: bool) -> tuple[StepFigures, Counted]:
    """Run three turns after some history and time the last; the first loads kernels and compiles."""
    sizes = lab.sizes
    workload = LongReplies(rows, sizes.history + 3, sizes.image_size, sizes.tokens)
    planned = bench.planned_tokens(workload.turns, sizes.image_size, sizes.tokens)
    taker = bench.taker(steps, sizes.step_tokens, planned_tokens=planned)
    conversations = workload.begin()
    for turn in range(sizes.history):
        for conversation in conversations:
            workload.proceed(conversation, (40,), turn)
    with counting() as counted, cudnn_attention(cudnn):
        for turn in range(sizes.history, sizes.history + 3):
            last = taker.take(conversations)
            tokens = [len(taker.encoder.encode(conversation).ids) for conversation in conversations]
            for conversation, row in zip(conversations, last.rows, strict=True):
                workload.proceed(conversation, row.tokens, turn)
    new = sum(tokens) - sum(row.reused for row in last.rows)
    steps_taken, work, rates = sizes.step_tokens - 1, work_of(bench.model, lab.dtype.itemsize), lab.rates()
    step_s = work.least_seconds(rates, rows, 0, 0, sum(tokens), steps_taken) / steps_taken
    prefill_s = work.least_seconds(rates, rows, new, rows * workload.patches, 0, 0)
    figures = StepFigures(
        shape=bench.shape,
        steps=steps,
        attention="cuDNN allowed" if cudnn else "no cuDNN",
        rows=rows,
        columns=sum(tokens) // rows,
        step_ms=1000 * median(after - before for before, after in pairwise(counted.token_times)),
        roofline_step_ms=1000 * step_s,
        mean_step_ms=1000 * last.decode_s / steps_taken,
        image_ms=1000 * last.prefill_s / rows,
        roofline_image_ms=1000 * prefill_s / rows,
        graphs_captured=counted.graphs_captured,
        programs=counted.programs,
        allocated_gib=counted.allocated / 2**30,
        reserved_gib=counted.reserved / 2**30,
    )
    return figures, counted


def cudnn_effect(lab: Lab) -> str:
    """Time eager steps with cuDNN attention allowed; the difference is the cost of its plans."""
    lab.require_cuda()
    rows, shape = lab.sizes.rows[0], lab.sizes.large
    said = steps_at_all_rows(lab, "eager", cudnn=True, rows=(rows,))
    without = next(
        (one["step_ms"] for one in lab.journal.record["steps"]
         if (one["shape"], one["steps"], one["attention"], one["rows"]) == (shape, "eager", "no cuDNN", rows)),
        None,
    )  # fmt: skip
    return said if without is None else f"{said}; without cuDNN {without:.1f} ms a step"


_SHORT, _LONG = 3, 7
Counts = dict[str, float]


def _of_a_step(lab: Lab, steps: Steps, observe: Callable[[Callable[[], object]], Counter[str]]) -> Counts:
    """The counts of `observe` per decoding step.

    Takes the difference between replies of _LONG and of _SHORT tokens, which cancels prefill and other costs per call.
    """
    bench, rows = lab.bench(lab.sizes.large, lab.dtype), lab.sizes.rows[0]
    workload = Workload(rows, 2, lab.sizes.image_size)
    counts = []
    for tokens in (_SHORT, _LONG):
        taker, conversations = bench.taker(steps, tokens), workload.begin()
        first = taker.take(conversations)
        for conversation, row in zip(conversations, first.rows, strict=True):
            workload.proceed(conversation, row.tokens, 0)
        counts.append(observe(partial(taker.take, conversations)))
    short, long = counts
    return {name: count / (_LONG - _SHORT) for name, count in (long - short).most_common()}


def synchronizations(lab: Lab, steps: Steps) -> str:
    """Count how often a step waits for the device, by line of code."""
    lab.require_cuda()

    def observe(run: Callable[[], object]) -> Counter[str]:
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        places = (
            f"{Path(each.filename).name}:{each.lineno}"
            for each in caught
            if "called a synchronizing" in str(each.message)
        )
        return Counter(places)

    counts = _of_a_step(lab, steps, observe)
    lab.journal.record["machine"][f"synchronizations a step, {steps}"] = counts
    where = ", ".join(f"{place} {count:.2g}" for place, count in counts.items())
    return f"{sum(counts.values()):.2g} a step: {where or 'none'}"


def kernels(lab: Lab, steps: Steps) -> str:
    """Count the kernels of a step and name those of attention; on a CPU, PyTorch operators."""
    kind = DeviceType.CUDA if lab.is_cuda else DeviceType.CPU

    def observe(run: Callable[[], object]) -> Counter[str]:
        on_device = [ProfilerActivity.CUDA] if lab.is_cuda else []
        with profile(activities=[ProfilerActivity.CPU, *on_device]) as profiled:
            run()
        events = (each for each in profiled.events() if not getattr(each, "is_user_annotation", False))
        return Counter(each.name for each in events if each.device_type == kind)

    counts = _of_a_step(lab, steps, observe)
    copies = sum(count for name, count in counts.items() if name.startswith(_COPIES))
    attention = {name: count for name, count in counts.items() if _ATTENTION.search(name)}
    require(bool(attention), f"no attention among {len(counts)} names: {[*counts][:8]}")
    launched = sum(counts.values()) - copies
    record = {"kernels": launched, "copies": copies, "attention": attention, "most frequent": [*counts.items()][:12]}
    lab.journal.record["machine"][f"kernels a step, {steps}"] = record
    named = ", ".join(f"{name[:80]} {count:.0f}" for name, count in attention.items())
    return f"{launched:.0f} a step and {copies:.0f} copies; attention: {named}"


@dataclass(frozen=True)
class WayFigures:
    """Seconds of a whole way.

    `host_s` is the part outside the model: processing images and texts. If `scaled` is not empty, it names the sample
    from which all times are extrapolated; `measured_s` is the time of the sample.
    `ratio` compares with one question at a time, re-encoding, of the same shape; `behind` is the multiple of
    `roofline_s`.
    """

    shape: str
    way: str
    steps: Steps
    work: str
    seconds: float
    prefill_s: float
    decode_s: float
    host_s: float
    scaled: str
    measured_s: float
    roofline_s: float | None = None
    behind: float | None = None
    ratio: float | None = None


class _Taken:
    """Runs turns of a way, generates only the first `tokens` of each reply, and scales times to full replies."""

    def __init__(self, lab: Lab, bench: Bench, way: Way, steps: Steps, tokens: int) -> None:
        self._sizes, self._bench, self._way, self._steps = lab.sizes, bench, way, steps
        self._tokens = tokens
        self.factor = (self._sizes.tokens - 1) / (tokens - 1)

    def turns(self, questions: int, turns: int) -> Measured:
        """Run these turns; conversations contain replies of full length."""
        sizes = self._sizes
        workload = LongReplies(questions, turns, sizes.image_size, sizes.tokens)
        planned = self._bench.planned_tokens(turns, sizes.image_size, sizes.tokens)

        def make(way: Way) -> tuple[Any, Any]:
            taker = self._bench.taker(
                self._steps, self._tokens, kv_bytes=EVERYTHING if way.reuse else 0, planned_tokens=planned
            )
            return taker.encoder, taker.runner

        return measure(self._way, workload, make)

    def seconds(self, measured: Measured, turns: slice) -> dict[str, float]:
        """Seconds that these turns would take with full replies, by WayFigures' names."""
        taken, prefill_s = sum(measured.turn_seconds[turns]), sum(measured.turn_prefill_seconds[turns])
        decode_s = sum(measured.turn_decode_seconds[turns])
        parts = {"prefill_s": prefill_s, "decode_s": self.factor * decode_s, "host_s": taken - prefill_s - decode_s}
        return {**parts, "seconds": sum(parts.values())}


def whole_way(lab: Lab, shape: str, name: str, steps: Steps) -> str:
    """Time a whole way: lockstep in full if there is time, others from a sample that is scaled up."""
    bench = lab.bench(shape, lab.dtype)
    lab.tidy()
    with counting() as counted:
        figures = (_lockstep if name == "lockstep" else _sampled)(lab, bench, WAYS[name], steps)
    memory = {"allocated_gib": counted.allocated / 2**30, "reserved_gib": counted.reserved / 2**30}
    record = lab.journal.record["ways"]
    record[f"{shape} {name} {steps}"] = asdict(figures) | memory
    original = record.get(f"{shape} alone eager")
    for one in record.values():
        if original and one["shape"] == shape:
            one["ratio"] = original["seconds"] / one["seconds"]
    lab.journal.save()
    require(not (problem := not_taken(lab, steps, counted)), problem)
    ratio = record[f"{shape} {name} {steps}"]["ratio"]
    behind = f", {figures.behind:.1f} x its roofline of {figures.roofline_s:.2f} s" if figures.behind else ""
    faster = f", {ratio:.1f} x as fast as the original way" if ratio else ""
    scaled = f", SCALED from {figures.scaled}, {figures.measured_s:.1f} s" if figures.scaled else ""
    return f"{figures.seconds:.1f} s ({figures.decode_s:.1f} decoding){behind}{faster}{scaled}{how_taken(counted)}"


def lockstep_needs_s(lab: Lab, shape: str, steps: Steps, tokens: int) -> float:
    """Estimate the seconds of lockstep from the steps timed before."""
    step_s = lab.memo.get(f"step_s {shape} {steps} {lab.sizes.questions}", 0.03)
    return 1.1 * lab.sizes.turns * (tokens * step_s + (2.2 if lab.is_cuda else 0.5))


def _lockstep(lab: Lab, bench: Bench, way: Way, steps: Steps) -> WayFigures:
    """All turns of all questions: in full, or if time is short with only the first tokens of each reply."""
    sizes = lab.sizes
    in_time = lockstep_needs_s(lab, bench.shape, steps, sizes.tokens) < lab.clock.left_s
    tokens = sizes.tokens if in_time else sizes.sample_tokens
    taken = _Taken(lab, bench, way, steps, tokens)
    measured = taken.turns(sizes.questions, sizes.turns)
    images, shown = measured.images_encoded, sizes.questions * sizes.turns
    require(images == shown, f"{images} images encoded for {shown} views: conversations were evicted")
    seconds = taken.seconds(measured, slice(None))
    least_s = roofline_s(bench.model, lab.rates(), measured, sizes.tokens)
    scaled = "" if tokens == sizes.tokens else f"{tokens} of {sizes.tokens} tokens a reply"
    figures = _figures(lab, bench, way, steps, seconds, scaled, measured.seconds)
    return replace(figures, roofline_s=least_s, behind=figures.seconds / least_s)


def _sampled(lab: Lab, bench: Bench, way: Way, steps: Steps) -> WayFigures:
    """Batched turns of all questions, the other turns of one question only; only the first tokens of replies."""
    sizes, batched = lab.sizes, way.batched_turns
    taken = _Taken(lab, bench, way, steps, sizes.sample_tokens)
    taken.turns(1, 2)  # loads kernels
    alone = taken.turns(1, sizes.turns)
    of_one = taken.seconds(alone, slice(batched, None))
    seconds = {part: sizes.questions * each for part, each in of_one.items()}
    measured_s = sum(alone.turn_seconds[batched:])
    said = f"{'turns alone of ' if batched else ''}1 of {sizes.questions} questions"
    if batched:
        together = taken.turns(sizes.questions, batched)
        of_all = taken.seconds(together, slice(None))
        seconds = {part: each + of_all[part] for part, each in seconds.items()}
        measured_s += together.seconds
    said += f", {sizes.sample_tokens} of {sizes.tokens} tokens a reply"
    return _figures(lab, bench, way, steps, seconds, said, measured_s)


def _figures(
    lab: Lab, bench: Bench, way: Way, steps: Steps, seconds: dict[str, float], scaled: str, measured_s: float
) -> WayFigures:
    work = f"{lab.sizes.questions} x {lab.sizes.turns} x {lab.sizes.tokens}"
    return WayFigures(bench.shape, way.name, steps, work, **seconds, scaled=scaled, measured_s=measured_s)


def warm_up(lab: Lab, shape: str) -> str:
    """Load the kernels of a shape before its ways are timed."""
    taken = _Taken(lab, lab.bench(shape, lab.dtype), WAYS["lockstep"], "eager", lab.sizes.sample_tokens)
    return f"{taken.turns(lab.sizes.questions, 2).seconds:.1f} s for two turns"
