"""Check the package on a GPU and measure its speed in one command: `python -m benchmarks.gpu`.

Needs only torch, transformers, numpy and Pillow. The most important checks come first. Each result is written to the
--json file immediately, and checks that do not fit in --minutes are recorded as skipped. On a CPU the same code runs
with tiny models. The exit status is 1 if a check failed.
"""

import argparse
import faulthandler
import json
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from pathlib import Path

import torch

from benchmarks.gpu import checks, speed
from benchmarks.gpu.lab import (
    CPU_SIZES,
    GPU_SIZES,
    Check,
    CheckFailed,
    Clock,
    Journal,
    Lab,
    Needs,
    OutOfTime,
    Sizes,
    Skipped,
    cudnn_attention,
)
from benchmarks.gpu.report import markdown
from models.transformers.runner import Steps

# A check is stopped after this multiple of its estimate, plus half a minute.
_PATIENCE = 4
# The process is killed this many seconds after the deadline, because a call that hangs on the device cannot be stopped.
_HANGING_S = 30


@dataclass(frozen=True)
class Record:
    """The outcome of a check. `passed` is None if it was skipped; `detail` is the findings, or why it did not run."""

    name: str
    passed: bool | None
    seconds: float
    detail: str


def plan(sizes: Sizes) -> list[Check]:
    """All checks in order. Their estimates are guesses for an H100."""
    large, second = sizes.large, sizes.second

    def way(shape: str, name: str, steps: Steps, needs_s: float) -> Check:
        return Check(
            f"way: {shape}, {name}, {steps}", needs_s, partial(speed.whole_way, shape=shape, name=name, steps=steps)
        )

    def lockstep(shape: str, steps: Steps) -> Check:
        def needs_s(lab: Lab) -> float:
            needs_s = speed.lockstep_needs_s(lab, shape, steps, sizes.sample_tokens)
            return after_compiling(lab, needs_s) if "compiled" in steps else needs_s

        run = partial(speed.whole_way, shape=shape, name="lockstep", steps=steps)
        return Check(f"way: {shape}, lockstep, {steps}", needs_s, run)

    def exact(steps: Steps, needs_s: float) -> Check:
        return Check(f"float32 replies: {steps}", needs_s, partial(checks.exact, steps=steps))

    def after_compiling(lab: Lab, needs_s: float) -> float:
        """The estimate, plus the time to compile the large shape's programs unless a check already did."""
        compiled = any(one["shape"] == large and one["steps"] == "compiled" for one in lab.journal.record["steps"])
        return needs_s + (0 if compiled else 130)

    def timed(steps: Steps, needs_s: Needs) -> Check:
        return Check(f"steps: {large}, {steps}", needs_s, partial(speed.steps_at_all_rows, steps=steps))

    def agreement(steps: Steps, needs_s: float, cudnn: bool = False) -> Check:
        name = f"bfloat16 replies: {steps}{', cuDNN attention' if cudnn else ''}"
        return Check(name, needs_s, partial(checks.agreement, steps=steps, cudnn=cudnn))

    all_checks = [
        Check("machine", 2, checks.machine),
        exact("eager", 15),
        exact("graphs", 10),
        exact("compiled", 45),
        exact("compiled graphs", 15),
        Check("fully masked rows", 3, checks.masked_rows),
        Check("sampling", 8, checks.sampling),
        agreement("eager", 15),
        agreement("eager", 10, cudnn=True),
        agreement("graphs", 10),
        Check("out of memory: replies", 15, checks.halving),
        Check("out of memory: retry", 0, checks.retry_frees_memory),
        Check(f"load: {large}", 20, partial(speed.load, shape=large)),
        timed("eager", 30),
        timed("graphs", 25),
        Check("steps: cuDNN attention", 10, speed.cudnn_effect),
        Check("synchronizations: eager", 5, partial(speed.synchronizations, steps="eager")),
        Check("synchronizations: graphs", 5, partial(speed.synchronizations, steps="graphs")),
        Check("kernels: eager", 8, partial(speed.kernels, steps="eager")),
        Check("kernels: graphs", 8, partial(speed.kernels, steps="graphs")),
        way(large, "alone", "eager", 20),
        lockstep(large, "graphs"),
        lockstep(large, "eager"),
        way(large, "first4", "eager", 35),
        way(large, "first4-kv", "eager", 25),
        Check("planned batch", 25, checks.planned_batch),
        timed("compiled", 130),
        timed("compiled graphs", partial(after_compiling, needs_s=30)),
        lockstep(large, "compiled graphs"),
        Check(
            "kernels: compiled graphs",
            partial(after_compiling, needs_s=10),
            partial(speed.kernels, steps="compiled graphs"),
        ),
        agreement("compiled", 45),
        agreement("compiled graphs", 10),
        Check("EGL devices", 2, checks.egl_devices),
        Check("views", 30, checks.views),
    ]  # fmt: skip
    if second != large:
        all_checks += [
            Check(f"load: {second}", 10, partial(speed.load, shape=second)),
            Check(f"warm-up: {second}", 8, partial(speed.warm_up, shape=second)),
            way(second, "alone", "eager", 15),
            lockstep(second, "graphs"),
            lockstep(second, "eager"),
        ]
    return all_checks


def run_check(check: Check, lab: Lab) -> Record:
    """Run one check; errors become a failed record."""
    needs_s = check.needs_s(lab) if callable(check.needs_s) else check.needs_s
    needs_s = needs_s if lab.is_cuda else 0.0  # tiny models need almost no time
    left_s = lab.clock.left_s
    if left_s <= needs_s:
        return Record(check.name, None, 0.0, f"no time: needs about {needs_s:.0f} s, {max(0, left_s):.0f} s left")
    started = time.monotonic()
    limit_s = min(left_s, _PATIENCE * needs_s + 30) if lab.is_cuda else left_s
    passed: bool | None = True
    try:
        with lab.clock.limiting(limit_s):
            detail = check.run(lab)
    except Skipped as reason:
        passed, detail = None, str(reason)
    except OutOfTime:
        passed, detail = None, f"no time: stopped after {limit_s:.0f} s, expected {needs_s:.0f} s"
    except CheckFailed as reason:
        passed, detail = False, str(reason)
    except Exception as error:  # noqa: BLE001 (a crash must not stop the other checks)
        lab.journal.record["tracebacks"][check.name] = traceback.format_exc()
        where = traceback.extract_tb(error.__traceback__)[-1]
        # Later lines of CUDA errors are boilerplate.
        first = traceback.format_exception_only(error)[-1].partition("\n")[0]
        passed, detail = False, f"{first} ({Path(where.filename).name}:{where.lineno})"
    return Record(check.name, passed, round(time.monotonic() - started, 3), detail)


def run_checks(chosen: Sequence[Check], lab: Lab) -> None:
    """Run checks in order; record and print each result immediately."""
    labels = {True: "passed ", False: "FAILED ", None: "skipped"}
    for check in chosen:
        record = run_check(check, lab)
        if not record.passed:
            lab.free_memory()
        lab.journal.record["checks"].append(asdict(record))
        lab.journal.save()
        print(f"{labels[record.passed]} {record.seconds:6.1f} s  {record.name}: {record.detail}", flush=True)


def exit_status(journal: Journal) -> int:
    """1 if a check failed, else 0."""
    return int(any(record["passed"] is False for record in journal.record["checks"]))


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--minutes", type=float, default=9, help="time budget; skip checks that would exceed it (default 9)"
    )
    parser.add_argument("--json", type=Path, help="write results here after every check")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", metavar="WORD", help="run only checks whose names contain one of these")
    parser.add_argument("--table", type=Path, metavar="JSON", help="only print the tables of this earlier run")
    return parser.parse_args()


def main() -> int:
    """Run the checks and print the tables; returns the exit status."""
    args = arguments()
    if args.table:
        print(markdown(json.loads(args.table.read_text())))
        return 0
    device = torch.device(args.device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", 0)  # some torch.cuda functions need an index
    sizes = GPU_SIZES if device.type == "cuda" else CPU_SIZES
    lab = Lab(device, sizes, Clock.of_minutes(args.minutes), Journal(args.json))
    command = " ".join(["python -m benchmarks.gpu", *sys.argv[1:]])
    lab.journal.record["settings"] = {
        "command": command, "date": datetime.now().isoformat(timespec="minutes"), "sizes": asdict(sizes),
    }  # fmt: skip
    lab.memo["attention_flags"] = checks.attention_flags()
    if lab.is_cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)  # more threads are slower on tensors this small
    torch.backends.cudnn.allow_tf32 = False  # as for checkpoints in float32
    chosen = [each for each in plan(sizes) if not args.only or any(word in each.name for word in args.only)]
    faulthandler.dump_traceback_later(60 * args.minutes + _HANGING_S, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        with cudnn_attention(False):  # as when a checkpoint is loaded: cuDNN would build a plan at each step
            run_checks(chosen, lab)
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(f"\n{markdown(lab.journal.record)}")
    return exit_status(lab.journal)


if __name__ == "__main__":
    sys.exit(main())
