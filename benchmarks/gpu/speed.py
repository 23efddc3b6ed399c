"""Times decoding steps and schedules on this device and compares them with their rooflines."""

import re
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any
from unittest.mock import patch

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from benchmarks.gpu.attention import one_query_a_row
from benchmarks.gpu.lab import UNLIMITED, Bench, Counted, Lab, LongReplies, SameReplies, counting
from benchmarks.gpu.report import Results
from benchmarks.roofline import work_of
from benchmarks.turns import SCHEDULES, Measured, Schedule, Workload, equal_share, measure, roofline_s
from roomscout.models import OutOfMemory
from roomscout.models.transformers import attention, library, steps
from roomscout.models.transformers.runner import Steps
from roomscout.models.transformers.steps import DecodingSteps

_PROGRAMS = 12  # the parts of a layer around attention, for one token and for several
_ATTENTION = re.compile(r"fmha|flash|attention|sdpa|_sdp_|cudnn_generated", re.IGNORECASE)
_COPIES = ("Memcpy", "Memset")
Measure = Callable[[Lab, Results], str]
"""Adds figures to the results; returns a summary. Raises an error if the device cannot do what is measured."""


def measurements(lab: Lab) -> list[tuple[str, Measure]]:
    """All measurements in order, the most important first, by name."""
    large = lab.sizes.large
    second = lab.sizes.second

    def schedule(shape: str, name: str, steps: Steps) -> tuple[str, Measure]:
        return f"schedule: {shape}, {name}, {steps}", partial(time_schedule, shape=shape, name=name, steps=steps)

    def timed(steps: Steps) -> tuple[str, Measure]:
        return f"steps: {large}, {steps}", partial(steps_at_all_rows, steps=steps)

    def kernel_counts(steps: Steps) -> tuple[str, Measure]:
        return f"kernels: {steps}", partial(kernels, steps=steps)

    attention_alone: list[tuple[str, Measure]] = [("attention: one query a row", one_query_a_row)]
    only_on_cuda: list[tuple[str, Measure]] = [
        ("synchronizations: eager", partial(synchronizations, steps="eager")),
        ("synchronizations: graphs", partial(synchronizations, steps="graphs")),
    ]
    compiled: list[tuple[str, Measure]] = [
        timed("compiled"),
        timed("compiled graphs"),
        schedule(large, "lockstep", "compiled graphs"),
        kernel_counts("compiled graphs"),
    ]
    chosen: list[tuple[str, Measure]] = [
        *(attention_alone if lab.is_cuda else []),
        ("bfloat16 replies, alone and in a batch", alone_and_in_a_batch),
        (f"load: {large}", partial(load, shape=large)),
        timed("eager"),
        timed("graphs"),
        *(only_on_cuda if lab.is_cuda else []),
        kernel_counts("eager"),
        kernel_counts("graphs"),
        ("parts", parts),
        schedule(large, "alone", "eager"),
        schedule(large, "lockstep", "graphs"),
        schedule(large, "lockstep", "eager"),
        schedule(large, "first4", "eager"),
        schedule(large, "first4-kv", "eager"),
        *(compiled if lab.is_cuda else []),
    ]
    if second != large:
        chosen += [
            (f"load: {second}", partial(load, shape=second)),
            (f"warm-up: {second}", partial(warm_up, shape=second)),
            schedule(second, "alone", "eager"),
            schedule(second, "lockstep", "graphs"),
            schedule(second, "lockstep", "eager"),
        ]
    return chosen


def load(lab: Lab, results: Results, shape: str) -> str:
    """Build a model of this shape on the device."""
    bench = lab.bench(shape, lab.dtype)
    size = bench.model.get_memory_footprint() / 2**30
    memory = f", {torch.cuda.memory_allocated() / 2**30:.2f} GiB allocated" if lab.is_cuda else ""
    return f"{bench.model.num_parameters() / 1e6:,.1f} M parameters, {size:.2f} GiB{memory}"


@dataclass(frozen=True)
class StepFigures:
    """Timings of one turn of several conversations; graphs, programs and peak memory cover three turns."""

    shape: str  # of the model, in `benchmarks.turns.SHAPES`
    steps: Steps  # how decoding steps are run
    rows: int  # conversations
    columns: int  # tokens of each
    step_ms: float  # the median decoding step
    roofline_step_ms: float  # the least that a step can take
    mean_step_ms: float  # the mean, which includes graph capture
    image_ms: float  # prefill per image, with the turn's text and the previous reply's last token
    roofline_image_ms: float  # the least that it can take
    graphs_captured: int  # 0 without graphs
    programs: int  # compiled
    allocated_gib: float  # at the peak, 0 on a CPU
    reserved_gib: float  # at the peak, 0 on a CPU


def steps_at_all_rows(lab: Lab, results: Results, steps: Steps) -> str:
    """Time the steps of several batch sizes.

    Fails if a batch does not fit, if graphs are not replayed, or if more than _PROGRAMS programs are compiled.
    """
    bench = lab.bench(lab.sizes.large, lab.dtype)
    summaries = []
    failed = []
    programs = 0
    for count in lab.sizes.rows:
        lab.free_memory()
        try:
            figures, counted = _time_steps(lab, bench, steps, count)
        except OutOfMemory as error:
            failed.append(f"{count} rows: {error}")
            continue
        counted.require_graphs(lab, steps)
        programs += figures.programs
        results.steps.append(asdict(figures))
        results.save()
        step = figures.step_ms / figures.roofline_step_ms
        image = figures.image_ms / figures.roofline_image_ms
        summaries.append(
            f"{count} rows {figures.step_ms:.1f} ms per step ({step:.1f} x roofline), {figures.image_ms:.1f} per image "
            f"({image:.1f} x){counted.notes}"
        )
    assert not failed, "; ".join([*failed, *summaries])
    assert programs <= _PROGRAMS, f"{programs} programs compiled; {'; '.join(summaries)}"
    return "; ".join(summaries)


def _time_steps(lab: Lab, bench: Bench, steps: Steps, rows: int) -> tuple[StepFigures, Counted]:
    """Run three turns after `history` turns and time the last; the first loads kernels and compiles."""
    sizes = lab.sizes
    workload = LongReplies(rows, sizes.history + 3, sizes.image_size, sizes.tokens)
    planned = bench.planned_tokens(workload.turns, sizes.image_size, sizes.tokens)
    engine = bench.engine(steps, sizes.step_tokens, planned_tokens=planned)
    conversations = workload.begin()
    for turn in range(sizes.history):
        for conversation in conversations:
            workload.proceed(conversation, (40,), turn)
    with counting() as counted:
        for turn in range(sizes.history, sizes.history + 3):
            last = engine.generate(conversations)
            tokens = [len(engine.encoder.encode(conversation).ids) for conversation in conversations]
            for conversation, row in zip(conversations, last, strict=True):
                workload.proceed(conversation, row.tokens, turn)
    new = sum(tokens) - sum(row.reused_tokens for row in last)
    step_count = sizes.step_tokens - 1
    work = work_of(bench.model, lab.dtype.itemsize)
    rates = lab.rates
    step_s = work.least_seconds(rates, rows, 0, 0, sum(tokens), step_count) / step_count
    prefill_s = work.least_seconds(rates, rows, new, rows * workload.patches, 0, 0)
    figures = StepFigures(
        shape=bench.shape,
        steps=steps,
        rows=rows,
        columns=sum(tokens) // rows,
        step_ms=1000 * counted.step_s,
        roofline_step_ms=1000 * step_s,
        mean_step_ms=1000 * mean(row.decode_seconds for row in last) / step_count,
        image_ms=1000 * last[0].prefill_seconds / rows,
        roofline_image_ms=1000 * prefill_s / rows,
        graphs_captured=counted.graphs_captured,
        programs=counted.programs,
        allocated_gib=counted.allocated / 2**30,
        reserved_gib=counted.reserved / 2**30,
    )
    return figures, counted


_SHORT, _LONG = 3, 7
Counts = dict[str, float]


def _counts_per_step(lab: Lab, steps: Steps, observe: Callable[[Callable[[], object]], Counter[str]]) -> Counts:
    """What `observe` counts, per decoding step.

    Uses the difference between replies of _LONG and of _SHORT tokens, which cancels prefill and other costs per call.
    """
    bench = lab.bench(lab.sizes.large, lab.dtype)
    rows = lab.sizes.rows[0]
    workload = Workload(rows, 2, lab.sizes.image_size)
    counts = []
    for tokens in (_SHORT, _LONG):
        engine = bench.engine(steps, tokens)
        conversations = workload.begin()
        first = engine.generate(conversations)
        for conversation, row in zip(conversations, first, strict=True):
            workload.proceed(conversation, row.tokens, 0)
        counts.append(observe(partial(engine.generate, conversations)))
    short, long = counts
    return {name: count / (_LONG - _SHORT) for name, count in (long - short).most_common()}


def synchronizations(lab: Lab, results: Results, steps: Steps) -> str:
    """Count a step's synchronizations with the device, by line of code."""

    def observe(run: Callable[[], object]) -> Counter[str]:
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run()
        finally:
            torch.cuda.set_sync_debug_mode("default")
        waits = [warning for warning in caught if "called a synchronizing" in str(warning.message)]
        return Counter(f"{Path(warning.filename).name}:{warning.lineno}" for warning in waits)

    counts = _counts_per_step(lab, steps, observe)
    results.machine[f"synchronizations a step, {steps}"] = counts
    where = ", ".join(f"{place} {count:.2g}" for place, count in counts.items())
    return f"{sum(counts.values()):.2g} per step: {where or 'none'}"


def kernels(lab: Lab, results: Results, steps: Steps) -> str:
    """Count a step's kernels and name the attention kernels; on a CPU, PyTorch operators."""
    kind = DeviceType.CUDA if lab.is_cuda else DeviceType.CPU

    def observe(run: Callable[[], object]) -> Counter[str]:
        on_device = [ProfilerActivity.CUDA] if lab.is_cuda else []
        with profile(activities=[ProfilerActivity.CPU, *on_device]) as profiled:
            run()
        events = (event for event in profiled.events() if not getattr(event, "is_user_annotation", False))
        return Counter(event.name for event in events if event.device_type == kind)

    counts = _counts_per_step(lab, steps, observe)
    copies = sum(count for name, count in counts.items() if name.startswith(_COPIES))
    attention = {name: count for name, count in counts.items() if _ATTENTION.search(name)}
    assert attention, f"no attention among {len(counts)} names: {[*counts][:8]}"
    launched = sum(counts.values()) - copies
    record = {"kernels": launched, "copies": copies, "attention": attention, "most frequent": [*counts.items()][:12]}
    results.machine[f"kernels a step, {steps}"] = record
    named = ", ".join(f"{name[:80]} {count:.0f}" for name, count in attention.items())
    return f"{launched:.0f} and {copies:.0f} copies per step; attention: {named}"


@dataclass(frozen=True)
class ScheduleFigures:
    """Seconds of a schedule."""

    shape: str  # of the model, in `benchmarks.turns.SHAPES`
    schedule: str  # its long name
    steps: Steps  # how decoding steps are run
    work: str  # questions x turns x tokens
    seconds: float  # of all
    prefill_s: float  # seconds in the model, of prompts and views
    decode_s: float  # seconds in the model, of replies
    host_s: float  # seconds outside the model: processing images and texts
    scaled: str  # the sample from which all times are extrapolated, empty for none
    measured_s: float  # the sample's time
    roofline_s: float | None = None  # the least that it can take, of lockstep
    behind: float | None = None  # `seconds` as a multiple of it
    ratio: float | None = None  # the speed-up over one question at a time, re-encoding, of the same shape


class _TimedSchedule:
    """Runs turns of a schedule; generates only the first `tokens` of each reply and scales times to full replies."""

    def __init__(self, lab: Lab, bench: Bench, schedule: Schedule, steps: Steps, tokens: int) -> None:
        self._sizes = lab.sizes
        self._bench = bench
        self._schedule = schedule
        self._steps = steps
        self._tokens = tokens
        self.factor = (self._sizes.tokens - 1) / (tokens - 1)

    def turns(self, questions: int, turns: int) -> Measured:
        """Run these turns; conversations contain replies of full length."""
        sizes = self._sizes
        workload = LongReplies(questions, turns, sizes.image_size, sizes.tokens)
        planned = self._bench.planned_tokens(turns, sizes.image_size, sizes.tokens)

        def make(schedule: Schedule) -> tuple[Any, Any]:
            engine = self._bench.engine(
                self._steps, self._tokens, kv_bytes=UNLIMITED if schedule.reuse else 0, planned_tokens=planned
            )
            return engine.encoder, engine.runner

        return measure(self._schedule, workload, make)

    def seconds(self, measured: Measured, turns: slice) -> dict[str, float]:
        """Estimated seconds of these turns with full replies, by field of ScheduleFigures."""
        total_s = sum(measured.turn_seconds[turns])
        prefill_s = sum(measured.turn_prefill_seconds[turns])
        decode_s = sum(measured.turn_decode_seconds[turns])
        parts = {"prefill_s": prefill_s, "decode_s": self.factor * decode_s, "host_s": total_s - prefill_s - decode_s}
        return {**parts, "seconds": sum(parts.values())}


def time_schedule(lab: Lab, results: Results, shape: str, name: str, steps: Steps) -> str:
    """Time a schedule: lockstep in full, others extrapolated from a sample."""
    bench = lab.bench(shape, lab.dtype)
    lab.free_memory()
    with counting() as counted:
        time_turns = _lockstep if name == "lockstep" else _sampled
        figures = time_turns(lab, bench, SCHEDULES[name], steps)
    memory = {"allocated_gib": counted.allocated / 2**30, "reserved_gib": counted.reserved / 2**30}
    record = results.schedules
    record[f"{shape} {name} {steps}"] = asdict(figures) | memory
    baseline = record.get(f"{shape} alone eager")
    for one in record.values():
        if baseline and one["shape"] == shape:
            one["ratio"] = baseline["seconds"] / one["seconds"]
    results.save()
    counted.require_graphs(lab, steps)
    ratio = record[f"{shape} {name} {steps}"]["ratio"]
    behind = f", {figures.behind:.1f} x its roofline of {figures.roofline_s:.2f} s" if figures.behind else ""
    faster = f", {ratio:.1f} x as fast as one at a time" if ratio else ""
    scaled = f", SCALED from {figures.scaled}, {figures.measured_s:.1f} s" if figures.scaled else ""
    return f"{figures.seconds:.1f} s ({figures.decode_s:.1f} decoding){behind}{faster}{scaled}{counted.notes}"


def _lockstep(lab: Lab, bench: Bench, schedule: Schedule, steps: Steps) -> ScheduleFigures:
    """All turns of all questions."""
    sizes = lab.sizes
    timed = _TimedSchedule(lab, bench, schedule, steps, sizes.tokens)
    measured = timed.turns(sizes.questions, sizes.turns)
    images = measured.images_encoded
    views = sizes.questions * sizes.turns
    assert images == views, f"{images} images encoded for {views} views: conversations were evicted"
    least_s = roofline_s(bench.model, lab.rates, measured, sizes.tokens)
    figures = _figures(lab, bench, schedule, steps, timed.seconds(measured, slice(None)), "", measured.seconds)
    return replace(figures, roofline_s=least_s, behind=figures.seconds / least_s)


def _sampled(lab: Lab, bench: Bench, schedule: Schedule, steps: Steps) -> ScheduleFigures:
    """Batched turns of all questions, other turns of one question only; only the first tokens of replies."""
    sizes = lab.sizes
    batched = schedule.batched_turns
    timed = _TimedSchedule(lab, bench, schedule, steps, sizes.sample_tokens)
    timed.turns(1, 2)  # loads kernels
    alone = timed.turns(1, sizes.turns)
    one_question = timed.seconds(alone, slice(batched, None))
    seconds = {part: sizes.questions * part_s for part, part_s in one_question.items()}
    measured_s = sum(alone.turn_seconds[batched:])
    sample = f"{'turns alone of ' if batched else ''}1 of {sizes.questions} questions"
    if batched:
        together = timed.turns(sizes.questions, batched)
        all_questions = timed.seconds(together, slice(None))
        seconds = {part: part_s + all_questions[part] for part, part_s in seconds.items()}
        measured_s += together.seconds
    sample += f", {sizes.sample_tokens} of {sizes.tokens} tokens per reply"
    return _figures(lab, bench, schedule, steps, seconds, sample, measured_s)


def _figures(
    lab: Lab, bench: Bench, schedule: Schedule, steps: Steps, seconds: dict[str, float], scaled: str, measured_s: float
) -> ScheduleFigures:
    work = f"{lab.sizes.questions} x {lab.sizes.turns} x {lab.sizes.tokens}"
    return ScheduleFigures(bench.shape, schedule.name, steps, work, **seconds, scaled=scaled, measured_s=measured_s)


def parts(lab: Lab, results: Results) -> str:
    """Time three turns whose replies have different lengths, as CUDA graphs, without each of what makes them fast."""
    bench = lab.bench(lab.sizes.large, lab.dtype)
    sizes = lab.sizes
    without: dict[str, AbstractContextManager] = {
        "nothing": nullcontext(),
        "reading several steps at once": patch.object(steps, "STEPS_PER_READ", 1),
        "letting rows leave": patch.object(DecodingSteps, "size", lambda steps, rows: sizes.rows[0]),
        "pinned memory": patch.object(library, "_on", lambda device, tensor: tensor.to(device)),
        "pixels made on the device": patch.object(bench, "pixels_on", None),
    }

    def seconds() -> float:
        engine = bench.engine("graphs", sizes.tokens, forced=False)
        workload = Workload(sizes.rows[0], 3, sizes.image_size)
        return measure(SCHEDULES["lockstep"], workload, lambda schedule: (engine.encoder, engine.runner)).seconds

    seconds()  # loads kernels
    times = dict[str, float]()
    for name, left_out in without.items():
        with left_out:
            times[name] = seconds()
    results.machine["seconds of three turns without"] = times
    return ", ".join(f"without {name} {turns_s:.2f} s" for name, turns_s in times.items())


def alone_and_in_a_batch(lab: Lab, results: Results) -> str:
    """Count the replies that are the same alone as in a batch of 8, and time both, by the splits of a row's keys: one,
    as always, or as many as PyTorch chooses for the batch."""
    bench = lab.bench(lab.sizes.middle, torch.bfloat16)

    def play(batched_turns: int) -> Measured:
        engine = bench.engine("graphs")
        schedule = Schedule("KV reuse", batched_turns, reuse=True)
        return measure(schedule, SameReplies(8, 4, lab.sizes.image_size), lambda _: (engine.encoder, engine.runner))

    found = dict[str, dict[str, float]]()
    for splits in (None, None, 1):  # at first kernels are loaded
        with patch.object(attention, "SPLITS", splits):
            alone = play(0)
            batch = play(4)
        equal = equal_share(alone, batch)
        found[f"{splits or 'chosen'} splits"] = {"equal": equal, "alone_s": alone.seconds, "batch_s": batch.seconds}
    results.machine["bfloat16 replies, alone and in a batch"] = found
    return "; ".join(
        f"{name}: {one['equal']:.0%} equal, {one['alone_s']:.2f} s alone, {one['batch_s']:.2f} s in a batch"
        for name, one in found.items()
    )


def warm_up(lab: Lab, results: Results, shape: str) -> str:
    """Load the kernels of a shape before its schedules are timed."""
    timed = _TimedSchedule(lab, lab.bench(shape, lab.dtype), SCHEDULES["lockstep"], "eager", lab.sizes.sample_tokens)
    return f"{timed.turns(lab.sizes.questions, 2).seconds:.1f} s for two turns"
