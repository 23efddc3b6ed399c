"""Measurements of speed and memory in a checkout, run as `python -m benchmarks.NAME`."""
