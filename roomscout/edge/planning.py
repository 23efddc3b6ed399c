"""From what was asked to a complete and checked run: `plan`."""

import logging
from dataclasses import replace
from pathlib import Path

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.policies import Policy
from roomscout.agent.running import Outcome, main_vsi_bench_loop
from roomscout.agent.scans import report_scans
from roomscout.agent.spec import RunSpec
from roomscout.data.questions import Selection
from roomscout.data.scans import ScanNotFound
from roomscout.edge.draft import Draft
from roomscout.edge.memory import memory_lines
from roomscout.edge.recording import of_one
from roomscout.edge.settings import Settings, flags_giving

log = logging.getLogger(__name__)


def plan(
    settings: Settings, policy: Policy | None = None, asked: Selection | None = None, folder: Path | None = None
) -> RunSpec:
    """The run that these settings ask for, complete and checked: whatever can be refused is refused here.

    `policy` replaces the model that the settings name, `asked` the questions that they name for a new run; `folder` is
    that of a run to resume. Reads files and the checkpoint's configuration; loads no weights, starts no process and
    writes nothing. Raises ConfigError, QuestionError, ScanNotFound, ModelError or RunError.
    """
    draft = Draft.of(settings, policy, asked, folder).resolved()
    questions, world, rules = draft.questions, draft.world, draft.rules
    if not world.makes_scans:
        report_scans(questions, world, required=folder is None, boxes=bool(settings.given))
    memory = draft.memory
    log.log(logging.WARNING if memory.exceeds_memory else logging.DEBUG, "%s", memory.why)
    return RunSpec(questions, world, rules, draft.engine, draft.schedule, draft.record, memory.tensor_parallel)


def run(
    settings: Settings,
    policy: Policy | None = None,
    asked: Selection | None = None,
    folder: Path | None = None,
    show_progress: bool = True,
) -> Outcome:
    """Plan a run, as `plan` does, and carry it out; its run.log has what the plan logs."""
    with lines_kept_for_log():
        return main_vsi_bench_loop(plan(settings, policy, asked, folder), show_progress)


def memory_of(settings: Settings, folder: Path | None) -> list[str]:
    """The size, memory and batch size of a run, as lines; raises the errors of `plan`."""
    draft = Draft.of(settings, folder=folder).resolved()
    if draft.world.makes_scans:
        log.info("Scans: made when the run begins, if they are not there")
    else:
        try:
            report_scans(draft.questions, draft.world, required=False)
        except ScanNotFound as error:
            log.info("%s: none yet (%s)", "Scans" if draft.video is None else "Videos", error)
    return memory_lines(draft.settings, draft.memory, draft.questions.here)


def again(spec: RunSpec, asked: Selection) -> RunSpec:
    """The run `spec` with the one question that is `asked` instead of its own, and all else as planned."""
    questions = replace(spec.questions, asked=asked, here=asked.questions)
    values = spec.record.settings | of_one(asked.questions[0])
    return replace(spec, questions=questions, record=replace(spec.record, settings=values, flags=flags_giving(values)))
