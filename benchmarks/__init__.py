"""Benchmark commands, run as `python -m roomscout.benchmarks.NAME`."""
