"""What is asked of a run beside its settings."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that the Python API is imported in no time
    from roomscout.agent.spec import MakeLibrary
    from roomscout.data.questions import Selection
    from roomscout.runs.reader import RunReader


@dataclass(frozen=True)
class Request:
    """What is asked of a run beside its settings."""

    questions: "Selection | None" = None  # the questions of a new run, in place of those that the settings name
    ply: Path | None = None  # the scan file that they are about
    run: "RunReader | None" = None  # the run to resume
    questions_named: bool = False  # whether its question file was named again, and so is read again
    retry_failed: bool = False  # whether its failed questions are asked again
    make_library: "MakeLibrary | None" = None  # makes the library of scenes that are no files
    caller_replies: bool = False  # whether the caller has the replies, as trainers do, so that no model is loaded
    previews: bool = False  # whether the run is only described: what it lacks is said, and does not refuse it


NEW_RUN = Request()  # a new run of what the settings name
