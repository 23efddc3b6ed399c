"""What the hardware did in a run: where the time went, how full batches were, and what its GPUs did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles

from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record
from roomscout.runs.costs import MODEL_PARTS, PART_NAMES, WAITS, Cost

HARDWARE_FILE = "hardware.jsonl"  # what the GPUs did, in a run's folder
Values = tuple[int | None, ...]


@dataclass(frozen=True)
class GpuSamples(Record):
    """What a GPU did, second by second; None for unknown values."""

    at: str  # the time of the first value
    host: str  # its machine
    gpu: str  # its entry of CUDA_VISIBLE_DEVICES
    name: str  # its model
    utilisation_percent: Values  # share of the time in which it worked
    memory_mib: Values  # memory that is taken, of all processes
    power_w: Values  # watts


@dataclass(frozen=True, kw_only=True)
class Session(Record):
    """The figures of a process that worked on a run."""

    seconds: float  # wall time
    questions: int  # that it finished
    questions_per_hour: float  # of wall time
    batch_size: int | None  # None where questions are not asked in batches
    peak_memory_bytes: int  # of the process, on the machine
    peak_device_memory_bytes: int | None  # of the process, on its GPU; None without one


@dataclass(frozen=True, kw_only=True)
class TurnPercentiles(Record):
    """The seconds of a turn, with the whole of its call: the median and the 95th percentile."""

    median: float
    p95: float


@dataclass(frozen=True, kw_only=True)
class GpuFigure(Record):
    """A figure over all GPUs."""

    mean: float
    max: float


@dataclass(frozen=True, kw_only=True)
class Gpus(Record):
    """The names and the figures of the GPUs of a run; None for a figure that is not known."""

    names: tuple[str, ...]
    utilisation_percent: OmittedIfNone[GpuFigure | None] = None
    memory_mib: OmittedIfNone[GpuFigure | None] = None
    power_w: OmittedIfNone[GpuFigure | None] = None


@dataclass(frozen=True, kw_only=True)
class Hardware(Record):
    """What the hardware did in a run."""

    seconds: dict[str, float]  # by part, as in the costs
    turn_seconds: TurnPercentiles  # how long turns took
    mean_batch: float | None  # questions per call; None without calls
    batch_fill: OmittedIfEmpty[float | None] = None  # mean_batch over the batch size
    tokens_per_second: OmittedIfEmpty[float] = 0.0  # in calls of an engine that takes batches, else in wall time
    bottleneck: OmittedIfEmpty[str] = ""  # a sentence; empty where it is not known
    gpus: OmittedIfNone[Gpus | None] = None  # None without GPUs


def hardware_of(cost: Cost, sessions: Sequence[Session], samples: Sequence[GpuSamples]) -> Hardware | None:
    """What the hardware did in a run; None without turns."""
    turns = cost.turn_seconds
    if not turns:
        return None
    busy = cost.generate_seconds if _takes_batches(cost.seconds) else sum(session.seconds for session in sessions)
    on_gpu = any(session.peak_device_memory_bytes for session in sessions) if sessions else bool(samples)
    engine = "the engine" if cost.generated_tokens else "the policy"
    who = "the GPU" if on_gpu else engine
    p95 = quantiles(turns, n=20, method="inclusive")[-1] if len(turns) > 1 else turns[0]
    return Hardware(
        seconds=cost.seconds,
        turn_seconds=TurnPercentiles(median=round(median(turns), 3), p95=round(p95, 3)),
        mean_batch=cost.mean_batch,
        batch_fill=cost.batch_fill,
        tokens_per_second=round(cost.generated_tokens / busy, 1) if busy else 0.0,
        bottleneck=bottleneck(cost.seconds, who),
        gpus=gpus_of(samples),
    )


def _takes_batches(seconds: Mapping[str, float]) -> bool:
    return seconds["prefill"] + seconds["decode"] + sum(seconds[part] for part in WAITS) > 0


def bottleneck(seconds: Mapping[str, float], who: str) -> str:
    """What took most of the time, and how much of it `who` waited for views."""
    together = _takes_batches(seconds)
    views, *others = WAITS if together else ("render",)
    parts = {part: seconds[part] for part in (*MODEL_PARTS, "replies", views, *others)}
    total = sum(parts.values())
    longest = max(parts, key=parts.__getitem__)
    if not total:
        return ""
    share = "" if longest == views else f" ({100 * parts[longest] / total:.0f} % of the time)"
    of_views = f"{100 * parts[views] / total:.0f} %"
    waited = f"{who} waited {of_views} for views" if together else f"views took {of_views}"
    return f"The bottleneck is {PART_NAMES[longest]}{share}; {waited}"


def gpus_of(samples: Sequence[GpuSamples]) -> Gpus | None:
    """The mean and the largest value of each figure over all GPUs, and their names; None if no figure is known."""
    figures = {}
    for name in ("utilisation_percent", "memory_mib", "power_w"):
        values = [value for gpu in samples for value in getattr(gpu, name) if value is not None]
        if values:
            figures[name] = GpuFigure(mean=round(fmean(values), 1), max=max(values))
    return Gpus(names=tuple(dict.fromkeys(gpu.name for gpu in samples)), **figures) if figures else None
