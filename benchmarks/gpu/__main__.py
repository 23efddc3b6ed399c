"""Run the GPU tests and measure speed in one command: `python -m benchmarks.gpu`.

Needs only torch, transformers, numpy, Pillow, pydantic, rich and pytest. Runs tests/gpu first, then the
measurements of speed.py. Each result is written to the --json file immediately. On a CPU the same code runs with tiny
models. The exit status is 1 if a test or a measurement failed.
"""

import argparse
import json
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import pytest

from benchmarks import new_file
from roomscout.base.extras import importing

with importing("torch", "this measurement", SystemExit):
    import torch
from benchmarks.gpu.lab import Lab, open_lab
from benchmarks.gpu.machine import machine
from benchmarks.gpu.report import Results, markdown
from benchmarks.gpu.speed import measurements

TESTS = Path(__file__).parents[2] / "tests" / "gpu"


def is_chosen(name: str, words: Sequence[str] | None) -> bool:
    """Whether a name contains one of the words of --only."""
    return not words or any(word in name for word in words)


class Recorder:
    """A pytest plugin that selects tests by name and adds their outcomes to the results."""

    def __init__(self, results: Results, words: Sequence[str] | None) -> None:
        self._results = results
        self._words = words

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the chosen tests."""
        items[:] = [item for item in items if is_chosen(item.name, self._words)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a test once it has run, was skipped or has failed."""
        if report.passed and report.when != "call":
            return
        name = report.nodeid.partition("::")[2]
        detail = str(dict(report.user_properties).get("finding", ""))
        if report.skipped:
            detail = report.longrepr[2].removeprefix("Skipped: ")  # type: ignore[index]
        elif report.failed:
            self._results.tracebacks[name] = report.longreprtext
            crash = getattr(report.longrepr, "reprcrash", None)
            detail = (crash.message if crash else report.longreprtext).partition("\n")[0]
        passed = None if report.skipped else report.passed
        self._results.add(name, passed, report.duration, detail)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str]:
        """Count outcomes as usual, but print no letters between the lines of the results."""
        outcome = "" if report.passed and report.when != "call" else report.outcome
        return outcome, "", ""


def run_tests(device: str, results: Results, words: Sequence[str] | None) -> bool:
    """Run the chosen tests; returns whether none failed."""
    # tests/conftest.py needs more packages.
    options = ["-q", "--confcutdir", str(TESTS), "--show-capture=no", "-p", "no:cacheprovider", "-p", "no:warnings"]
    status = pytest.main([str(TESTS), "--device", device, *options], plugins=[Recorder(results, words)])
    for name in ("last_exc", "last_type", "last_value", "last_traceback"):
        sys.__dict__.pop(name, None)  # the error of a failed test keeps its tensors alive
    return status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def run_measurements(lab: Lab, results: Results, words: Sequence[str] | None) -> bool:
    """Run the chosen measurements in order; returns whether none failed."""
    chosen = [(name, measure) for name, measure in measurements(lab) if is_chosen(name, words)]
    if chosen:
        results.machine["rates"] = asdict(lab.rates)
    succeeded = True
    for name, measure in chosen:
        started = time.monotonic()
        passed = True
        try:
            detail = measure(lab, results)
        except Exception as error:  # noqa: BLE001 (a crash must not stop the other measurements)
            results.tracebacks[name] = traceback.format_exc()
            # Later lines of CUDA errors are boilerplate.
            detail = traceback.format_exception_only(error)[-1].partition("\n")[0]
            passed = False
        if not passed:
            succeeded = False
            lab.free_memory()
        results.add(name, passed, time.monotonic() - started, detail)
    return succeeded


def arguments() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=new_file, help="write results here after every test and measurement")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", help="run only tests and measurements whose names contain one of these"
    )
    parser.add_argument("--table", type=Path, metavar="JSON", help="only print the tables of this earlier run")
    return parser.parse_args()


def main() -> int:
    """Run tests and measurements and print the tables; returns the exit status."""
    args = arguments()
    if args.table:
        print(markdown(json.loads(args.table.read_text())))
        return 0
    results = Results(args.json, machine=machine(torch.device(args.device)))
    results.settings = {
        "command": " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]),
        "date": datetime.now().isoformat(timespec="minutes"),
    }
    succeeded = run_tests(args.device, results, args.only)
    with open_lab(args.device) as lab:
        results.settings["sizes"] = asdict(lab.sizes)
        succeeded &= run_measurements(lab, results, args.only)
    results.save()
    print(f"\n{markdown(results.record)}")
    return int(not succeeded)


if __name__ == "__main__":
    sys.exit(main())
