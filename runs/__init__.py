"""The run folder: what a run leaves on disk, written in one place and read in one place."""


class RunError(Exception):
    """A run folder cannot be read or written; the message names it and what to do."""
