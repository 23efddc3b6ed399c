"""Checks and measurements for a GPU, as one command; see `__main__`."""
