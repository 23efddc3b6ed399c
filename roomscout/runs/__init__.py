"""The run folder: one module writes it, one module reads it."""

from pathlib import Path

from roomscout.base.errors import Refusal

LOG_ROOT = Path("experiment_logs")  # the folder of run folders, unless the setting log_root names another one
NEWEST = "recent"  # what the setting continue_from takes for the newest run


class RunError(Refusal):
    """A run folder cannot be read or written. The message names it and says what to do."""


class RunInUse(RunError):
    """Another process is writing the run folder."""
