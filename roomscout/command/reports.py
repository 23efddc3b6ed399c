"""What the command writes at the end of a run: what its answers had in view, a judge's marks, and its report."""

import logging
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.agent.config import RunConfig
from roomscout.base.text import escaped
from roomscout.base.wording import words_of, words_of_judge
from roomscout.command.judges import judge_after_run, open_judge

if TYPE_CHECKING:
    from roomscout.agent.evaluation import Outcome

log = logging.getLogger(__name__)


def finish(outcome: "Outcome", config: RunConfig) -> int:
    """Write what was in view (unless --no-failures), the marks of --judge and the report (unless --no-report).

    Only for a finished run, what was in view and the report only for several answers or --ply. Returns the exit status
    of the run, also if they cannot be written.
    """
    if outcome.folder is None or outcome.status not in (0, 1):
        return outcome.status
    several = len(outcome.rows) > 1 or config.what_to_run.ply is not None
    if config.output.failures and several:
        split_after_run(outcome.folder)
    if config.judge.judge is not None:
        judge_after_run(outcome.folder, config.judge)
    if config.output.report and several:
        write_after_run(outcome.folder)
    return outcome.status


def merge(arguments: Sequence[str]) -> int:
    """The verb `merge`, which also writes what was in view, and the report, of the merged run."""
    from roomscout.runs.__main__ import main

    def complete(folder: Path) -> None:
        split_after_run(folder)
        write_after_run(folder)

    return main(["merge", *arguments], prog="roomscout", then=complete)


def rescore(arguments: Sequence[str]) -> int:
    """The verb `rescore`, whose judge, and users' code for actions and answers, may fail; returns its exit status."""
    from roomscout.agent.actions.space import ActionSpaceError
    from roomscout.agent.policies.recorded_replies import parser_of
    from roomscout.analysis.rescore import main
    from roomscout.data.questions import QuestionError
    from roomscout.models import ModelError

    try:
        with words_of(words_of_judge()):
            return main(arguments, parser_of, open_judge=open_judge, when_judged=renew_report)
    except (ModelError, ActionSpaceError, QuestionError) as error:
        judge = "the judge: " if isinstance(error, ModelError) else ""
        sys.stderr.write(escaped(f"error: {judge}{error}") + "\n")
        return 2


def split_after_run(folder: Path) -> None:
    """Work out what was in view in the answers of a run about scans with boxes, and log how many errors never saw.

    Logs one warning if that fails, since the run is complete.
    """
    from roomscout.analysis.failures import log_split

    again = shlex.join([sys.executable, "-m", "roomscout", "failures", str(folder)])
    try:
        log_split(folder)
    except KeyboardInterrupt:
        log.warning("Interrupted: the run is complete, but not what was in view. To work it out: %s", again)
    except Exception as error:  # noqa: BLE001 (whatever it is, the run is complete and keeps its exit status)
        _warn(folder, "It is not known what was in view", error, again)


def write_after_run(folder: Path) -> None:
    """Write the report of a run, and log its path; logs one warning if that fails, since the run is complete."""
    from roomscout.analysis.report.command import log_report
    from roomscout.analysis.report.writer import write_report

    try:
        log_report(write_report(folder))
    except KeyboardInterrupt:
        log.warning("Interrupted: the run is complete, but its report is not written. To write it: %s", _again(folder))
    except Exception as error:  # noqa: BLE001 (whatever it is, the run is complete and keeps its exit status)
        _warn(folder, "The report is not written", error, _again(folder))


def _warn(folder: Path, what: str, error: Exception, again: str) -> None:
    """Log that something of a complete run is not written; the traceback is in its run.log."""
    from roomscout.agent.console import log_to_file
    from roomscout.runs import RunError

    log.warning("%s (%s: %s); the run is complete. To try again: %s", what, type(error).__name__, error, again)
    with suppress(RunError), log_to_file(folder / "run.log"):
        log.debug("%s", what, exc_info=error)


def renew_report(folder: Path) -> None:
    """Write the report of a run again if it has one."""
    from roomscout.analysis.report.writer import REPORT_FILE

    if (folder / REPORT_FILE).exists():
        write_after_run(folder)


def _again(folder: Path) -> str:
    return shlex.join([sys.executable, "-m", "roomscout", "report", str(folder)])
