"""Measurements of speed and memory, run as `python -m roomscout.speed.NAME`."""
