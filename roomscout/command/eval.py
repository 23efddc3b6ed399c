"""The verb `eval`: answers the questions of a benchmark or a file."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from roomscout.agent.console import lines_kept_for_log
from roomscout.command import words
from roomscout.command.reports import complete
from roomscout.edge.request import NEW_RUN, Request
from roomscout.edge.settings import Settings

if TYPE_CHECKING:
    from roomscout.agent.session import Outcome, ShowView
    from roomscout.agent.spec import RunSpec
    from roomscout.cluster.in_parts import Workers

TAKES = ("continue_from",)


def main(arguments: Sequence[str], verb: str = "eval", workers: "Workers | None" = None) -> int:
    """Answer questions and score them, in a new run or one to continue, in parts by `workers`; returns the status."""
    given = words.read(verb, arguments, TAKES)
    with words.waiting(given, "Reading questions"):
        from roomscout.edge.resuming import begun_or_resumed

        settings, request = begun_or_resumed(given, given.words["continue_from"], batch=True)
        words.print_lines(settings)
        with lines_kept_for_log():
            answer = planned(settings, request, workers)
            outcome = answer()
    return complete(outcome, settings)


def plan(settings: Settings, request: Request) -> "RunSpec":
    """See `plan` of the edge, which takes a while to import."""
    from roomscout.edge.plan import plan as of_edge

    return of_edge(settings, request=request)


def planned(
    settings: Settings,
    request: Request = NEW_RUN,
    workers: "Workers | None" = None,
    show_view: "ShowView | None" = None,
) -> "Callable[[], Outcome]":
    """What answers the questions of a run, in parts if the settings say so; raises the errors of `plan`."""
    if settings.in_parts:
        from roomscout.cluster.in_parts import answer_in_parts
        from roomscout.edge.dividing import divide

        return partial(answer_in_parts, divide(settings, request), workers=workers)
    from roomscout.agent.loop import main_vsi_bench_loop

    return partial(main_vsi_bench_loop, plan(settings, request), settings.log_level != "result", show_view)
