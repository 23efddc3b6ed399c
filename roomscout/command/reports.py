"""What the command writes at the end of a run: what its answers had in view, a judge's marks, and its report."""

import logging
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.agent.config import RunConfig
from roomscout.base.text import escaped
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


def rescore(arguments: Sequence[str]) -> int:
    """The verb `rescore`, whose judge, and users' code for actions and answers, may fail; returns its exit status."""
    from roomscout.agent.actions.space import ActionSpaceError
    from roomscout.agent.policies.recorded_replies import parser_of
    from roomscout.analysis.rescore import main
    from roomscout.data.questions import QuestionError
    from roomscout.models import ModelError

    try:
        return main(arguments, parser_of, open_judge=open_judge, when_judged=renew_report)
    except (ModelError, ActionSpaceError, QuestionError) as error:
        judge = "the judge: " if isinstance(error, ModelError) else ""
        sys.stderr.write(escaped(f"error: {judge}{error}") + "\n")
        return 2


def split_after_run(folder: Path) -> None:
    """Work out what was in view in the answers of a run about scans with boxes, and log how many errors never saw."""
    from roomscout.analysis.failures import log_split

    with _complete_without(
        folder, "It is not known what was in view", "not what was in view. To work it out", "failures"
    ):
        log_split(folder)


def write_after_run(folder: Path) -> None:
    """Write the report of a run, and log its path."""
    from roomscout.analysis.report.command import log_report
    from roomscout.analysis.report.writer import write_report

    with _complete_without(folder, "The report is not written", "its report is not written. To write it", "report"):
        log_report(write_report(folder))


@contextmanager
def _complete_without(folder: Path, failed: str, interrupted: str, verb: str) -> Iterator[None]:
    """Log one warning, with the command to try again, if what is inside fails: the run is complete all the same.

    The traceback is in its run.log.
    """
    from roomscout.agent.console import log_to_file
    from roomscout.runs import RunError

    again = shlex.join([sys.executable, "-m", "roomscout", verb, str(folder)])
    try:
        yield
    except KeyboardInterrupt:
        log.warning("Interrupted: the run is complete, but %s: %s", interrupted, again)
    except Exception as error:  # whatever it is, the run keeps its exit status
        kind = type(error).__name__
        log.warning("%s (%s: %s); the run is complete. To try again: %s", failed, kind, error, again)
        with suppress(RunError), log_to_file(folder / "run.log"):
            log.debug("%s", failed, exc_info=error)


def renew_report(folder: Path) -> None:
    """Write the report of a run again if it has one."""
    from roomscout.analysis.report.writer import REPORT_FILE

    if (folder / REPORT_FILE).exists():
        write_after_run(folder)
