"""Benchmark commands, run as `python -m benchmarks.NAME`."""
