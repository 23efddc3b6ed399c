"""What the hardware did in a run: where the time went, how full batches were, and what its GPUs did."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Annotated, Any

from pydantic import Field

from roomscout.runs.costs import MODEL_PARTS, PART_NAMES, WAITS
from roomscout.runs.records import Record

HARDWARE_FILE = "hardware.jsonl"
"""What the GPUs did, in a run's folder."""
FIGURES = ("utilisation_percent", "memory_mib", "power_w")
"""The figures of a GPU."""
Values = Annotated[tuple[Annotated[int, Field(ge=0, le=10**9)] | None, ...], Field(max_length=10_000)]


@dataclass(frozen=True)
class GpuSamples(Record):
    """A line of hardware.jsonl: what a GPU did, a value per second from the time `at` on, None where it is unknown.

    `gpu` is its entry in CUDA_VISIBLE_DEVICES, by default its index.
    """

    at: str
    host: str
    gpu: str
    name: str
    utilisation_percent: Values
    memory_mib: Values
    power_w: Values


def hardware_of(
    cost: Mapping[str, Any], sessions: Sequence[Mapping[str, Any]], samples: Sequence[GpuSamples]
) -> dict[str, Any]:
    """What the hardware did, for summary.json, from `costs`; {} without turns.

    `tokens_per_second` counts generated tokens, for an engine that takes batches while it had a call, else over the
    wall time of the `sessions`.
    """
    if not (turns := cost["turn_seconds"]):
        return {}
    busy = cost["generate_seconds"] if _takes_batches(cost["seconds"]) else sum(each["seconds"] for each in sessions)
    on_gpu = any(each.get("peak_device_memory_bytes") for each in sessions) if sessions else bool(samples)
    engine = "the engine" if cost["generated_tokens"] else "the policy"
    p95 = quantiles(turns, n=20, method="inclusive")[-1] if len(turns) > 1 else turns[0]
    found = {
        "seconds": dict(cost["seconds"]),
        "turn_seconds": {"median": round(median(turns), 3), "p95": round(p95, 3)},
        "mean_batch": cost["mean_batch"],
        "batch_fill": cost["batch_fill"],
        "tokens_per_second": round(cost["generated_tokens"] / busy, 1) if busy else 0,
        "bottleneck": bottleneck(cost["seconds"], "the GPU" if on_gpu else engine),
        "gpus": gpus_of(samples),
    }
    return {name: value for name, value in found.items() if value}


def _takes_batches(seconds: Mapping[str, float]) -> bool:
    return seconds["prefill"] + seconds["decode"] + sum(seconds[part] for part in WAITS) > 0


def bottleneck(seconds: Mapping[str, float], who: str) -> str:
    """What took most of the time, and how much of it `who` waited for views; empty where that is not recorded, as in
    earlier versions."""
    together = _takes_batches(seconds)
    views, *others = WAITS if together else ("render",)
    parts = {part: seconds[part] for part in (*MODEL_PARTS, "replies", views, *others)}
    total, longest = sum(parts.values()), max(parts, key=parts.__getitem__)
    if not total or (together and not sum(seconds[part] for part in WAITS)):
        return ""
    share = "" if longest == views else f" ({100 * parts[longest] / total:.0f} % of the time)"
    of_views = f"{100 * parts[views] / total:.0f} %"
    waited = f"{who} waited {of_views} for views" if together else f"views took {of_views}"
    return f"The bottleneck is {PART_NAMES[longest]}{share}; {waited}"


def gpus_of(samples: Sequence[GpuSamples]) -> dict[str, Any]:
    """The mean and the largest value of each figure over all GPUs, and their names; {} if none is known."""
    found: dict[str, Any] = {}
    for figure in FIGURES:
        if known := [value for each in samples for value in getattr(each, figure) if value is not None]:
            found[figure] = {"mean": round(fmean(known), 1), "max": max(known)}
    return found and {"names": list(dict.fromkeys(each.name for each in samples)), **found}
