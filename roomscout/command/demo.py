"""The verb `demo`: the embedded model on procedural rooms, compared with the same model blind."""

import logging
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.session import Outcome
from roomscout.base.errors import UsageError, flag
from roomscout.base.text import RESULT
from roomscout.command import words
from roomscout.command.eval import planned
from roomscout.command.reports import complete
from roomscout.data.scans import LAYOUTS, scan_of
from roomscout.edge.flags import Given
from roomscout.edge.resolve import resolve
from roomscout.edge.settings import Settings
from roomscout.models import EMBEDDED
from roomscout.rooms import QUESTIONS_FILE, QUESTIONS_PER_TYPE, kept_rooms
from roomscout.runs.reader import RunReader

log = logging.getLogger(__name__)

DEMO_ROOMS = 4
NOT_OF_DEMO = ("questions", "name", "shard", "gpus", "ray")
"""Settings that make no sense where the demo has its own rooms, and two runs."""


def main(arguments: Sequence[str]) -> int:
    """The verb `demo`; returns its exit status."""
    given = words.read("demo", arguments)
    settings = demo_settings(given)
    words.print_lines(settings)
    return [complete(outcome, settings) for outcome in run_demo(settings)][-1]


def demo_settings(given: Given) -> Settings:
    """The given settings over the demo's: the embedded model unless a policy is given, all turns batched, and rooms of
    `kept_rooms` with a question of each type. Raises UsageError if those cannot be written, or for other questions."""
    chosen = [name for name in NOT_OF_DEMO if given.settings.get(name) not in (None, False)]
    if chosen:
        raise UsageError(f"{flag(chosen[0])} conflicts with the demo, which has rooms of its own: leave it out")
    usual: dict[str, Any] = {"max_batched_turns": "all"}
    if given.settings.get("policy") is None:
        usual["model"] = EMBEDDED
    settings = resolve({**usual, **given.settings}, source=given.sources)
    if settings.on_video:
        raise UsageError("the demo has no videos: leave out --present video")
    root = settings.log_root
    one_each = dict.fromkeys(QUESTIONS_PER_TYPE, 1)
    try:
        rooms = kept_rooms(root, DEMO_ROOMS, settings.seed, one_each)
    except OSError as error:
        raise UsageError(f"--log-root {root}: rooms cannot be written there ({error.strerror})") from None
    return replace(settings, questions=rooms / QUESTIONS_FILE, scan_root=rooms)


def run_demo(settings: Settings) -> list[Outcome]:
    """Ask about generated rooms, blind and then with views, and log both scores; the last outcome has the status."""
    if settings.renderer == "blind":
        return [_answered(settings)]
    log.log(RESULT, "BLIND: the questions with grey views, as a baseline")
    blind = _answered(replace(settings, renderer="blind"))
    if blind.status:
        return [blind]
    log.log(RESULT, "SEEING: the same questions with real views")
    seeing = _answered(settings)
    if seeing.status < 2 and seeing.folder is not None:
        for line in (overalls(seeing.folder), *next_steps(seeing.folder, settings.scan_root)):
            log.log(RESULT, "%s", line)
    return [blind, seeing]


def _answered(settings: Settings) -> Outcome:
    with lines_kept_for_log():
        answer = planned(settings)
        return answer()


def overalls(folder: Path) -> str:
    """The overall of a finished run beside those of its baselines."""
    summary = RunReader(folder).summary
    assert summary is not None, "a finished run has a summary"
    words = {"blind": "blind", "most_frequent": "always giving the most frequent answer in other rooms"}
    known = [(summary.baselines[name].overall, what) for name, what in words.items() if name in summary.baselines]
    beside = [f"{overall:.1f} % {what}" for overall, what in known if overall is not None]
    return ", ".join([f"Overall: {summary.asked.overall:.1f} % exploring", *beside])


def next_steps(folder: Path, rooms: Path) -> list[str]:
    """What to open after the demo, and what to try next, as commands."""
    first = RunReader(folder).questions[0]
    scan = scan_of(first, rooms, LAYOUTS)
    roomscout = f"{shlex.quote(sys.executable)} -m roomscout"
    return [
        f"To open: {folder}/q001 has the views of the first question, {folder}/results.csv all answers",
        f"To see the room: {roomscout} preview {shlex.quote(str(scan))}",
        f"To ask about it: {roomscout} ask {shlex.quote(str(scan))} {shlex.quote(first.question)} --model {EMBEDDED}",
    ]
