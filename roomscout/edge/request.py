"""What is asked of a run beside its settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that the Python API is imported in no time
    from roomscout.agent.spec import MakeLibrary
    from roomscout.data.questions import Selection


@dataclass(frozen=True)
class Request:
    """What is asked of a run beside its settings."""

    questions: "Selection | None" = None
    """The questions of a new run, in place of those that the settings name."""
    ply: Path | None = None
    """The scan file that they are about."""
    folder: Path | None = None
    """The folder of a run to resume."""
    questions_named: bool = False
    """Whether its question file was named again, and so is read again."""
    retry_failed: bool = False
    """Whether its failed questions are asked again."""
    make_library: "MakeLibrary | None" = None
    """Makes the library of scenes that are no files."""
    caller_replies: bool = False
    """Whether the caller has the replies, as trainers do, so that no model is loaded."""
    previews: bool = False
    """Whether the run is only described: what it lacks is said, and does not refuse it."""


NEW_RUN = Request()
"""A new run of what the settings name."""
