"""The names of the benchmarks, which are known without their modules."""

import pkgutil
from pathlib import Path

DEFAULT = "vsi-bench"
ELSEWHERE = {"rooms": "roomscout.rooms.benchmark", "rooms-twins": "roomscout.rooms.twins_benchmark"}
"""The modules of benchmarks whose scans another package makes."""


def benchmark_names() -> list[str]:
    """The names of the benchmarks in this package."""
    folder = str(Path(__file__).with_name("benchmarks"))
    return sorted([*(module.name.replace("_", "-") for module in pkgutil.iter_modules([folder])), *ELSEWHERE])
