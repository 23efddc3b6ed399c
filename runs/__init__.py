"""The run folder: one module writes it, one module reads it."""


class RunError(Exception):
    """A run folder cannot be read or written. The message names it and says what to do."""


class RunInUse(RunError):
    """Another process is writing the run folder."""
