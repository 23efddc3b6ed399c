"""--demo: the embedded model on procedural rooms, compared with the same model blind."""

import logging
import shlex
import sys
from pathlib import Path

from roomscout.agent.running import Outcome
from roomscout.base.errors import ConfigError
from roomscout.base.text import RESULT
from roomscout.data.scans import LAYOUTS, scan_of
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.flags import Given
from roomscout.edge.planning import run
from roomscout.edge.reading import changed, located
from roomscout.edge.settings import Settings
from roomscout.models import EMBEDDED
from roomscout.rooms import QUESTIONS_FILE, QUESTIONS_PER_TYPE, kept_rooms
from roomscout.runs.reader import RunReader

log = logging.getLogger(__name__)

DEMO_ROOMS = 4


def demo_settings(given: Given) -> Settings:
    """The given settings over the demo's: the embedded model unless a policy is given, all turns batched, and rooms of
    `kept_rooms` with a question of each type at most. Raises ConfigError if those cannot be written."""
    defaults = Settings(demo=True, max_batched_turns="all", model=EMBEDDED)
    settings = changed(defaults, **given.settings)
    if settings.policy is not None and "model" not in given.settings:
        settings = changed(settings, model=Settings.model)
    settings = located(settings)
    require_no_conflict(settings)
    root = settings.log_root
    one_each = dict.fromkeys(QUESTIONS_PER_TYPE, 1)
    try:
        rooms = kept_rooms(root, DEMO_ROOMS, settings.seed, one_each)
    except OSError as error:
        raise ConfigError(f"--log-root {root}: rooms cannot be written there ({error.strerror})") from None
    return changed(settings, demo=False, batch=True, questions=rooms / QUESTIONS_FILE, scan_root=rooms)


def run_demo(settings: Settings) -> list[Outcome]:
    """Ask about generated rooms, blind and then with views, and log both scores; the last outcome has the status."""
    shows_progress = settings.log_level != "result"
    if settings.renderer == "blind":
        return [run(settings, show_progress=shows_progress)]
    log.log(RESULT, "BLIND: the questions with grey views, as a baseline")
    blind = run(changed(settings, renderer="blind"), show_progress=shows_progress)
    if blind.status:
        return [blind]
    log.log(RESULT, "SEEING: the same questions with real views")
    seeing = run(settings, show_progress=shows_progress)
    if seeing.status < 2 and seeing.folder is not None:
        for line in (overalls(seeing.folder), *next_steps(seeing.folder, settings.scan_root)):
            log.log(RESULT, "%s", line)
    return [blind, seeing]


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
