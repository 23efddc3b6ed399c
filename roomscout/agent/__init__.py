"""The evaluation loop: scheduling, turns and policies."""

MAX_BATCHED_TURNS = 4
"""The number of turns that a run takes in lockstep batches, unless it is told otherwise."""
