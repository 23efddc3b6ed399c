"""The verb `resume`: continues a run where it stopped."""

import logging
from collections.abc import Sequence

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.loop import main_vsi_bench_loop
from roomscout.base.errors import UsageError
from roomscout.base.text import RESULT
from roomscout.cluster.in_parts import Workers, answer_in_parts
from roomscout.command import ask, words
from roomscout.command.reports import complete
from roomscout.edge.dividing import divide
from roomscout.edge.plan import plan
from roomscout.edge.request import NEW_RUN
from roomscout.edge.resolve import resolve
from roomscout.edge.resuming import resumed
from roomscout.runs import NEWEST

log = logging.getLogger(__name__)

TAKES = ("retry_failed", "batch")


def main(arguments: Sequence[str], workers: Workers | None = None) -> int:
    """Resume the newest run, or the one that is named; returns the exit status."""
    runs, flags = words.split(arguments)
    if len(runs) > 1:
        raise UsageError(f"resume takes one run, got {' '.join(runs)}: resume one after the other")
    given = words.read("resume", flags, TAKES)
    wanted = runs[0] if runs else NEWEST
    earlier = resumed(given, wanted, given.words["batch"], given.words["retry_failed"])
    settings, request = earlier or (resolve(given.settings, source=given.sources), NEW_RUN)  # a part that begins
    words.print_lines(settings)
    answered = 0 if request.run is None else len(request.run.rows)
    with lines_kept_for_log():
        if settings.in_parts:
            outcome = answer_in_parts(divide(settings, request), workers=workers)
        else:
            show_view = None if request.ply is None else ask.shown_turns(settings)
            outcome = main_vsi_bench_loop(plan(settings, request=request), settings.log_level != "result", show_view)
        if outcome.status == 1 and len(outcome.rows) == answered and not request.retry_failed:
            log.log(RESULT, "Some questions failed; to retry them, add --retry-failed")
    return complete(outcome, settings, request.ply is not None)
