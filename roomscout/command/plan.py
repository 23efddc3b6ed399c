"""The verb `plan`: prints the size, memory and batch size of a run that does not begin."""

import logging
from collections.abc import Sequence

from roomscout.base.errors import UsageError
from roomscout.command import words
from roomscout.command.ask import question_about
from roomscout.command.demo import demo_settings
from roomscout.data.questions import Selection
from roomscout.edge.plan import memory_lines
from roomscout.edge.request import NEW_RUN, Request
from roomscout.edge.resolve import absolute, resolve

log = logging.getLogger(__name__)

TAKES = ("demo", "ply", "question", "options", "ground_truth")


def main(arguments: Sequence[str]) -> int:
    """Print what a run would take; returns 0. Raises the errors of `plan`."""
    given = words.read("plan", arguments, TAKES)
    scan = given.words["ply"]
    if (scan is None) != (given.words["question"] is None):
        raise UsageError("--question needs --ply, the scan that it is about, and --ply needs --question")
    if given.words["demo"]:
        settings = demo_settings(given)
    else:
        settings = resolve(given.settings, source=given.sources, one_scan=scan is not None)
    words.print_lines(settings, logging.INFO)
    request = NEW_RUN
    if scan is not None:
        scan = absolute(scan)
        asked = [given.words[name] for name in ("question", "options", "ground_truth")]
        question = question_about(scan, settings, *asked)
        request = Request(Selection.all_of([question]), ply=scan)
    for line in memory_lines(settings, request):
        log.info("%s", line)
    if settings.in_parts:
        log.info("With --ray or --gpus, all of this is for one worker; they share the questions")
    return 0
