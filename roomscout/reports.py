"""The report that the command writes at the end of a run."""

import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.agent.config import RunConfig

if TYPE_CHECKING:
    from roomscout.agent.evaluation import Outcome
    from roomscout.runs.records import RunFacts

log = logging.getLogger(__name__)


def finish(outcome: "Outcome", config: RunConfig) -> int:
    """Write the report of a finished run of several answers or of --ply, unless --no-report.

    Returns the exit status of the run, also if there is no report.
    """
    several = len(outcome.rows) > 1 or config.what_to_run.ply is not None
    if outcome.folder is not None and outcome.status in (0, 1) and several and config.output.report:
        write_after_run(outcome.folder)
    return outcome.status


def write_after_run(folder: Path) -> None:
    """Write the report of a run, and log its path; logs one warning if that fails, since the run is complete."""
    from roomscout.analysis.report.command import log_report
    from roomscout.analysis.report.writer import write_report

    try:
        log_report(write_report(folder, repeat_command_of))
    except KeyboardInterrupt:
        log.warning("Interrupted: the run is complete, but its report is not written. To write it: %s", _again(folder))
    except Exception as error:  # noqa: BLE001 (whatever it is, the run is complete and keeps its exit status)
        log.warning(
            "The report is not written (%s: %s); the run is complete. To try again: %s",
            type(error).__name__,
            error,
            _again(folder),
        )


def repeat_command_of(facts: "RunFacts") -> str:
    """The command that repeats a run; raises ConfigError if this version lacks one of its settings."""
    from roomscout.agent.resuming import repeat_command

    return repeat_command(facts.config)


def _again(folder: Path) -> str:
    return shlex.join([sys.executable, "-m", "roomscout", "report", str(folder)])
