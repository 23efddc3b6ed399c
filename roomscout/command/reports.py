"""What the command writes at the end of a run: what its answers had in view, a judge's marks, and its report."""

import logging
import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from roomscout.base.interrupts import ignored_interrupts, interrupts_first, raise_if_interrupted
from roomscout.base.text import RESULT

if TYPE_CHECKING:
    from roomscout.agent.session import Outcome
    from roomscout.data.judged import Ask
    from roomscout.edge.settings import Settings

log = logging.getLogger(__name__)


def complete(outcome: "Outcome", settings: "Settings", one_scan: bool = False) -> int:
    """Write the marks of --judge and, of a finished run of several questions or about `one_scan`, what was in view and
    the report, unless that is not wanted. Returns the exit status of the run, also if they cannot be written, and 130
    after an interrupt."""
    if outcome.folder is None or outcome.status not in (0, 1):
        return outcome.status
    reported = settings.report and (len(outcome.rows) > 1 or one_scan)
    try:
        if reported:
            split_after_run(outcome.folder)
        if settings.judge is not None:
            judge_after_run(outcome.folder, settings.judge, settings.prices)
        if reported:
            write_after_run(outcome.folder)
    except KeyboardInterrupt:
        from roomscout.agent.session import resume_command
        from roomscout.edge.record import resume_words

        with ignored_interrupts():
            log.log(RESULT, "Interrupted: all questions are finished, but not what follows. To continue:")
            log.log(RESULT, "%s", resume_command(resume_words(), outcome.folder, []))
        return 130
    return outcome.status


def rescore(arguments: Sequence[str]) -> int:
    """The verb `rescore`, whose judge, and users' code for actions, may fail; returns its exit status."""
    from roomscout.agent.actions.space import ActionSpaceError
    from roomscout.analysis.rescore import main
    from roomscout.base.errors import UsageError
    from roomscout.models import EngineLost, ModelError

    try:
        return main(arguments, open_judge=open_judge, when_judged=renew_report)
    except (ModelError, EngineLost, ActionSpaceError) as error:
        judge = "" if isinstance(error, ActionSpaceError) else "the judge: "
        raise UsageError(f"{judge}{error}") from None


def open_judge(model: str, url: str, key_env: str) -> "Ask":
    """What asks a model behind an OpenAI-compatible server for marks; raises ModelError."""
    from roomscout.data.judged import MAX_TOKENS, SEED, TEMPERATURE
    from roomscout.models import ModelOptions, ServerOptions
    from roomscout.models.judge import Judge

    logging.getLogger("httpx2").setLevel(logging.WARNING)  # it logs each request
    options = ModelOptions(max_new_tokens=MAX_TOKENS, temperature=TEMPERATURE, seed=SEED)
    key = os.environ.get(key_env, "").strip() or None
    return Judge(model, options, ServerOptions((url,), key, key_env)).ask


def judge_after_run(folder: Path, judge: str, prices: Path | None) -> None:
    """Have the judge mark the answers of a run in free text, and log the scores."""
    from roomscout.data.judged import JUDGE_URL
    from roomscout.models import ServerOptions

    url = os.environ.get("OPENAI_BASE_URL", JUDGE_URL)
    with _complete_without("marks for every answer", "rescore", folder, "--judge", judge, "--judge-url", url):
        from roomscout.analysis.judging import judge_run
        from roomscout.runs.export import money_lines
        from roomscout.runs.reader import RunReader
        from roomscout.scoring.summary import format_summary

        ask = open_judge(judge, url, ServerOptions.key_env)
        log.log(RESULT, "%s: %s", judge, judge_run(folder, judge, ask, prices=prices))
        reader = RunReader(folder)
        assert reader.summary is not None, "a judged run has a summary"
        scores = format_summary(reader.summary, reader.benchmark)
        for line in (*scores, *money_lines(reader.summary, len(reader.rows), reader.facts.price)):
            log.log(RESULT, "%s", line)


def split_after_run(folder: Path) -> None:
    """Work out what was in view in the answers of a run about scans with boxes, and log how many errors never saw."""
    with _complete_without("what was in view", "failures", folder):
        from roomscout.analysis.failures import log_split

        log_split(folder)


def write_after_run(folder: Path) -> None:
    """Write the report of a run, and log its path."""
    with _complete_without("its report", "report", folder):
        from roomscout.analysis.report.writer import log_report, write_report

        log_report(write_report(folder))


@contextmanager
def _complete_without(what: str, verb: str, folder: Path, *flags: str) -> Iterator[None]:
    """If what is inside fails, log one warning with the command to try again: the run is complete all the same."""
    from roomscout.agent.console import log_to_file
    from roomscout.runs import RunError

    again = shlex.join([sys.executable, "-m", "roomscout", verb, str(folder), *flags])
    try:
        raise_if_interrupted()
        with interrupts_first():
            yield
    except Exception as error:  # whatever it is, the run keeps its exit status
        why = f"{type(error).__name__}: {error}"
        log.warning("The run is complete, but without %s (%s). To try again: %s", what, why, again)
        with suppress(RunError), log_to_file(folder / "run.log"):
            log.debug("Without %s", what, exc_info=error)


def renew_report(folder: Path) -> None:
    """Write the report of a run again if it has one."""
    from roomscout.analysis.report.writer import REPORT_FILE

    if (folder / REPORT_FILE).exists():
        write_after_run(folder)
