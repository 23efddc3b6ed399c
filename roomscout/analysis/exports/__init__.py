"""Writes the answers of a run in the formats of other evaluation and training tools."""
