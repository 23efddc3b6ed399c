"""The verb `resume`: continues a run where it stopped."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from roomscout.agent.console import lines_kept_for_log
from roomscout.base.errors import UsageError
from roomscout.base.text import RESULT
from roomscout.command import ask, words
from roomscout.command.eval import planned
from roomscout.command.reports import complete
from roomscout.runs import NEWEST

if TYPE_CHECKING:
    from roomscout.cluster.in_parts import Workers

log = logging.getLogger(__name__)

TAKES = ("retry_failed", "batch")


def main(arguments: Sequence[str], workers: "Workers | None" = None) -> int:
    """Resume the newest run, or the one that is named; returns the exit status."""
    runs, flags = words.split(arguments)
    if len(runs) > 1:
        raise UsageError(f"resume takes one run, got {' '.join(runs)}: resume one after the other")
    given = words.read("resume", flags, TAKES)
    wanted = runs[0] if runs else NEWEST
    with words.waiting(given, "Reading the run"):
        from roomscout.edge.resuming import begun_or_resumed

        settings, request = begun_or_resumed(given, wanted, given.words["batch"], given.words["retry_failed"])
        words.print_lines(settings)
        before = 0 if request.run is None else len(request.run.rows)
        show_view = None if request.ply is None else ask.shown_turns(settings)
        with lines_kept_for_log():
            answer = planned(settings, request, workers, show_view)
            outcome = answer()
            if outcome.status == 1 and len(outcome.rows) == before and not request.retry_failed:
                log.log(RESULT, "Some questions failed; to retry them, add --retry-failed")
    return complete(outcome, settings, request.ply is not None)
