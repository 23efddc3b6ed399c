"""Which procedural rooms serve for what: each split is a series of rooms with a seed of its own."""

SPLITS = {"training": 1_000_000, "validation": 2_000_000, "test": 3_000_000}
"""Explorers learn from the first and are compared on the second while they are made. The third is for the figures that
are given in the end: nothing is chosen by it."""
