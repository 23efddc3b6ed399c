"""The results file, and its tables for docs/development/speed.md."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MIN_SPEEDUP = {"eager": 25, "graphs": 50}
"""Target speed-ups of lockstep with KV reuse over one question at a time, re-encoding, by type of step."""
MAX_ROOFLINE_MULTIPLE = 2  # target: the fastest schedule takes at most this multiple of its roofline


@dataclass
class Results:
    """All results so far, in a file that is never incomplete."""

    path: Path | None = None  # the file, None to write none
    settings: dict[str, Any] = field(default_factory=dict)  # the command, its date and the sizes
    machine: dict[str, Any] = field(default_factory=dict)  # what it was measured on, and how fast that is
    outcomes: list[dict[str, Any]] = field(default_factory=list)  # one entry per test and measurement
    steps: list[dict[str, Any]] = field(default_factory=list)  # timings of decoding steps
    schedules: dict[str, dict[str, Any]] = field(default_factory=dict)  # timings of schedules by name
    tracebacks: dict[str, str] = field(default_factory=dict)  # those of failures by name

    def add(self, name: str, passed: bool | None, seconds: float, detail: str) -> None:
        """Add and print an outcome. `passed` is None if it was skipped; `detail` says what was found, or why not."""
        self.outcomes.append({"name": name, "passed": passed, "seconds": round(seconds, 3), "detail": detail})
        label = {True: "passed ", False: "FAILED ", None: "skipped"}[passed]
        print(f"{label} {seconds:6.1f} s  {name}: {detail}", flush=True)
        self.save()

    @property
    def record(self) -> dict[str, Any]:
        """The contents of the file."""
        return {key: value for key, value in asdict(self).items() if key != "path"}

    def save(self) -> None:
        """Replace the file atomically."""
        if self.path:
            partial = self.path.with_name(self.path.name + ".partial")
            partial.write_text(json.dumps(self.record, indent=1, default=str) + "\n")
            partial.replace(self.path)


def markdown(record: dict[str, Any]) -> str:
    """A summary of outcomes, and tables of steps, schedules and targets."""
    parts = [_machine(record), _outcomes(record["outcomes"])]
    if attention := record["machine"].get("attention"):
        parts.append(_attention(attention["ms"]))
    if record["steps"]:
        parts.append(_steps(record["steps"]))
    if record["schedules"]:
        parts += [_schedules(record["schedules"].values()), _targets(record["schedules"].values())]
    return "\n\n".join(parts)


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "/") for cell in line) + " |" for line in lines)


def _machine(record: dict[str, Any]) -> str:
    machine = record["machine"]
    settings = record["settings"]
    rates = machine.get("rates")
    measured = (
        f"; copies {rates['bytes_per_s'] / 1e9:,.0f} GB/s, multiplies {rates['flop_per_s'] / 1e12:,.1f} TFLOP/s"
        if rates
        else ""
    )
    names = {"torch": "torch", "CUDA": "cuda", "cuDNN": "cudnn", "transformers": "transformers", "Python": "python"}
    versions = ", ".join(f"{name} {machine.get(key)}" for name, key in {**names, "driver": "driver"}.items())
    return f"`{settings.get('command')}`, {settings.get('date')}: {machine.get('device')}, {versions}{measured}"


def _outcomes(outcomes: Sequence[dict[str, Any]]) -> str:
    """The numbers of passed, failed and skipped tests and measurements, and the names of failed ones."""
    failed = [outcome["name"] for outcome in outcomes if outcome["passed"] is False]
    skipped = sum(outcome["passed"] is None for outcome in outcomes)
    named = f" ({', '.join(failed)})" if failed else ""
    passed = len(outcomes) - len(failed) - skipped
    return f"{len(outcomes)} tests and measurements: {passed} passed, {len(failed)} failed{named}, {skipped} skipped."


def _attention(times: dict[str, dict[Any, float]]) -> str:
    rows = [(name, *(f"{ms:.2f}" for ms in by_rows.values())) for name, by_rows in times.items()]
    return _table(("attention, ms per step", *(f"{count} rows" for count in times["roofline"])), rows)


def _steps(steps: Iterable[dict[str, Any]]) -> str:
    rows = [
        (
            one["shape"], one["steps"], one["rows"], one["columns"], f"{one['step_ms']:.2f}",
            f"{one['roofline_step_ms']:.2f}", f"{one['step_ms'] / one['roofline_step_ms']:.1f}",
            f"{one['mean_step_ms']:.2f}", f"{one['image_ms']:.1f}", f"{one['roofline_image_ms']:.1f}",
            one["graphs_captured"], one["programs"], f"{one['allocated_gib']:.1f}", f"{one['reserved_gib']:.1f}",
        )
        for one in steps
    ]  # fmt: skip
    columns = (
        "shape", "steps", "rows", "columns", "ms per step", "roofline", "ratio", "mean", "ms per image",
        "roofline", "graphs", "programs", "GiB allocated", "reserved",
    )  # fmt: skip
    return _table(columns, rows)


def _schedules(schedules: Iterable[dict[str, Any]]) -> str:
    rows = [
        (
            one["shape"], one["schedule"], one["steps"], one["work"], f"{one['seconds']:.1f}",
            f"{one['prefill_s']:.1f}", f"{one['decode_s']:.1f}", f"{one['host_s']:.1f}", _number(one["ratio"]),
            _number(one["roofline_s"]), _number(one["behind"]),
            f"scaled from {one['scaled']} ({one['measured_s']:.1f} s)" if one["scaled"] else "in full",
        )
        for one in schedules
    ]  # fmt: skip
    columns = (
        "shape", "schedule", "steps", "questions x turns x tokens", "seconds", "prefill", "decoding",
        "images and texts", "times faster than one at a time", "roofline, seconds", "times the roofline", "measured",
    )  # fmt: skip
    return _table(columns, rows)


def _targets(schedules: Iterable[dict[str, Any]]) -> str:
    """Targets for lockstep with the large shape, which is measured first."""
    schedules = list(schedules)
    lockstep = {one["steps"]: one for one in schedules if one["shape"] == schedules[0]["shape"] and one["behind"]}
    rows = []
    for steps, least in MIN_SPEEDUP.items():
        ratio = lockstep.get(steps, {}).get("ratio")
        reached = ratio is not None and ratio >= least
        name = f"lockstep with KV reuse, {steps}, against one question at a time"
        rows.append((name, f"at least {least} x", *_outcome(ratio, reached)))
    best = min((one["behind"] for one in lockstep.values()), default=None)
    reached = best is not None and best <= MAX_ROOFLINE_MULTIPLE
    name = "the fastest of them against its roofline"
    rows.append((name, f"at most {MAX_ROOFLINE_MULTIPLE} x", *_outcome(best, reached)))
    return _table(("target", "", "measured", ""), rows)


def _outcome(value: float | None, reached: bool) -> tuple[str, str]:
    if value is None:
        return "-", "not measured"
    return f"{value:.1f} x", "reached" if reached else "missed"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"
