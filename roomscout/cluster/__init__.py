"""Runs on several machines: workers on a Ray cluster answer parts of a run."""
