"""--demo: the embedded model on procedural rooms, compared with the same model blind."""

import logging
import shlex
import sys
from pathlib import Path

from roomscout.agent.builders import layouts_of, questions_of
from roomscout.agent.checking import look_ahead
from roomscout.agent.config import ConfigError, QuestionSettings, RunConfig, WhatToRun
from roomscout.agent.evaluation import Outcome, main_vsi_bench_loop
from roomscout.base.text import RESULT
from roomscout.command.command_line import Given
from roomscout.data.scans import scan_of
from roomscout.models import EMBEDDED
from roomscout.rooms import QUESTIONS_FILE, QUESTIONS_PER_TYPE, kept_rooms
from roomscout.runs.reader import RunReader

log = logging.getLogger(__name__)

DEMO_ROOMS = 4


def demo_defaults(given: Given) -> RunConfig:
    """The given settings over the demo's defaults: the embedded model unless a policy is given, all turns batched."""
    defaults = RunConfig.of(demo=True, max_batched_turns="all")
    config = given.over(defaults.having(model=EMBEDDED))
    return config if config.model.policy is None else given.over(defaults)


def run_demo(config: RunConfig) -> list[Outcome]:
    """Ask a model about generated rooms, first blind, then with real views, and log both scores.

    Returns the outcomes, of which the last one has the exit status; raises the errors of `main_vsi_bench_loop`.
    """
    config = demo_config(config.checked())
    what = config.what_to_run
    if what.plan or what.check_data:
        return [look_ahead(config)]
    if config.views.renderer == "blind":
        return [main_vsi_bench_loop(config)]
    log.log(RESULT, "BLIND: the questions with grey views, as a baseline")
    blind = main_vsi_bench_loop(config.having(renderer="blind"))
    if blind.status:
        return [blind]
    log.log(RESULT, "SEEING: the same questions with real views")
    seeing = main_vsi_bench_loop(config)
    if seeing.status < 2 and seeing.folder is not None:
        for line in [
            overalls(seeing.folder),
            *next_steps(config.what_to_run, config.questions, config.views.scan_root, seeing.folder),
        ]:
            log.log(RESULT, "%s", line)
    return [blind, seeing]


def overalls(folder: Path) -> str:
    """The overall of a finished run beside those of its baselines."""
    summary = RunReader(folder).summary
    assert summary is not None, "a finished run has a summary"
    baselines = summary.get("baselines", {})
    words = {"blind": "blind", "most_frequent": "always giving the most frequent answer in other rooms"}
    found = ((baselines.get(name, {}).get("overall"), what) for name, what in words.items())
    known = [f"{overall:.1f} % {what}" for overall, what in found if overall is not None]
    return ", ".join([f"Overall: {summary['asked'][summary['asked']['overall_label']]:.1f} % exploring", *known])


def next_steps(what: WhatToRun, asked: QuestionSettings, scan_root: Path, folder: Path) -> list[str]:
    """What to open after the demo, and what to try next, as commands."""
    first = questions_of(what, asked)[0]
    scan = scan_of(first, scan_root, layouts_of(asked.benchmark))
    roomscout = f"{shlex.quote(sys.executable)} -m roomscout"
    return [
        f"To open: {folder}/q001 has the views of the first question, {folder}/results.csv all answers",
        f"To see the room: {roomscout} preview {shlex.quote(str(scan))}",
        f"To ask about it: {roomscout} ask {shlex.quote(str(scan))} {shlex.quote(first.question)} --model {EMBEDDED}",
    ]


def demo_config(config: RunConfig) -> RunConfig:
    """The demo as a batch run, with rooms that `kept_rooms` writes below `config.log_root` or finds there.

    Each room has at most one question of each type. Raises ConfigError if rooms cannot be written.
    """
    root, one_each = config.output.log_root, dict.fromkeys(QUESTIONS_PER_TYPE, 1)
    try:
        rooms = kept_rooms(root, DEMO_ROOMS, config.model.seed, one_each)
    except OSError as error:
        raise ConfigError(f"--log-root {root}: rooms cannot be written there ({error.strerror})") from None
    return config.having(demo=False, batch=True, questions=rooms / QUESTIONS_FILE, scan_root=rooms)
