"""Splits of procedural rooms: each is a series of rooms with its own seed."""

SPLITS = {"training": 1_000_000, "validation": 2_000_000, "test": 3_000_000}
"""The test split is for final results only and must not influence any choice."""
