"""The verb `resume`: continues a run where it stopped."""

import logging
from collections.abc import Sequence
from pathlib import Path

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.loop import main_vsi_bench_loop
from roomscout.base.errors import UsageError
from roomscout.base.text import RESULT
from roomscout.cluster.in_parts import Workers, answer_in_parts
from roomscout.command import ask, words
from roomscout.command import eval as evaluation
from roomscout.command.reports import complete
from roomscout.edge.dividing import divide
from roomscout.edge.plan import plan
from roomscout.edge.request import Request
from roomscout.edge.resolve import absolute, resolve
from roomscout.edge.resuming import folder_to_resume, saved_scan, saved_settings
from roomscout.edge.settings import DEFAULTS
from roomscout.runs import NEWEST
from roomscout.runs.reader import RunReader

log = logging.getLogger(__name__)

TAKES = ("retry_failed", "batch")


def main(arguments: Sequence[str], workers: Workers | None = None) -> int:
    """Resume the newest run, or the one that is named; returns the exit status."""
    runs, flags = words.split(arguments)
    if len(runs) > 1:
        raise UsageError(f"resume takes one run, got {' '.join(runs)}: resume one after the other")
    given = words.read("resume", flags, TAKES)
    root = absolute(Path(given.settings.get("log_root", DEFAULTS["log_root"])))
    name = given.settings.pop("name", None)
    batch = bool(given.words["batch"])
    wanted = runs[0] if runs else NEWEST
    folder = folder_to_resume(wanted, root, given.settings.get("shard"), name, batch)
    if folder is None:  # a part that has not begun
        return evaluation.main([flag for flag in flags if flag != "--batch"])
    scan = saved_scan(folder)
    settings = resolve(given.settings, saved_settings(folder), given.sources, scan is not None)
    words.print_lines(settings)
    retry = bool(given.words["retry_failed"])
    request = Request(ply=scan, folder=folder, questions_named="questions" in given.settings, retry_failed=retry)
    answered = len(RunReader(folder).rows)
    with lines_kept_for_log():
        if settings.in_parts:
            outcome = answer_in_parts(divide(settings, request), workers=workers)
        else:
            show_view = ask.shown_turns(settings) if scan is not None else None
            outcome = main_vsi_bench_loop(plan(settings, request=request), settings.log_level != "result", show_view)
        if outcome.status == 1 and len(outcome.rows) == answered and not retry:
            log.log(RESULT, "Some questions failed; to retry them, add --retry-failed")
    return complete(outcome, settings, scan is not None)
