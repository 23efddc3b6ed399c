"""The benchmarks: records in modules here or ELSEWHERE, in a file of yours (path/to/file.py:NAME), and folders."""

import importlib
from functools import cache
from pathlib import Path

from roomscout.base.loading import NotLoadable, load_attribute
from roomscout.base.text import on_disk
from roomscout.data.benchmark import Benchmark, BenchmarkError, QuestionType
from roomscout.data.benchmark_names import DEFAULT, ELSEWHERE, benchmark_names

__all__ = ["DEFAULT", "Benchmark", "BenchmarkError", "QuestionType", "benchmark_names", "find_benchmark"]

_loaded_code: dict[str, Benchmark] = {}


def is_code(name: str) -> bool:
    """Whether a benchmark of this name is code of a user's: a file or a module with a record."""
    return name not in benchmark_names() and ":" in name and not on_disk(Path(name).expanduser()).is_dir()


def loaded_code(name: str) -> Benchmark | None:
    """The benchmark of a user's code that this process has loaded by this name; None if it has not."""
    return _loaded_code.get(name)


@cache
def find_benchmark(name: str) -> Benchmark:
    """The benchmark of this name: one here, a folder, or a file's, read once; raises BenchmarkError."""
    if name in benchmark_names():
        module = ELSEWHERE.get(name, f"{__name__}.{name.replace('-', '_')}")
        return importlib.import_module(module).BENCHMARK
    from roomscout.data.benchmark_folders import BENCHMARK_YAML, read_benchmark  # which brings YAML

    folder = on_disk(Path(name).expanduser())
    if folder.is_dir():
        try:
            return read_benchmark(folder)
        except ValueError as error:
            raise BenchmarkError(str(error), setting="benchmark") from None
    if ":" not in name:
        raise BenchmarkError(
            f"there is no benchmark {name}; there is {', '.join(benchmark_names())}, or name your own as "
            f"path/to/file.py:NAME or as a folder with a {BENCHMARK_YAML}",
            setting="benchmark",
        )
    try:
        benchmark = load_attribute(name)
    except NotLoadable as error:
        raise BenchmarkError(f"{name}: {error}", setting="benchmark") from error
    if not isinstance(benchmark, Benchmark):
        raise BenchmarkError(f"{name}: {type(benchmark).__name__} is not a Benchmark", setting="benchmark")
    _loaded_code[name] = benchmark
    return benchmark
