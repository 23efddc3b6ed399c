"""Benchmark commands, run as `python -m roomscout.speed.NAME`."""
