"""From what was asked to a complete and checked run: `plan`."""

import logging
from dataclasses import replace
from pathlib import Path

from roomscout.agent.console import lines_kept_for_log
from roomscout.agent.policies import Policy
from roomscout.agent.running import Outcome, main_vsi_bench_loop, report_scans
from roomscout.agent.spec import RunSpec
from roomscout.base.text import counted
from roomscout.data.questions import Selection
from roomscout.data.scans import ScanNotFound
from roomscout.edge.draft import Draft, of_one
from roomscout.edge.memory import as_bytes
from roomscout.edge.settings import Settings, flags_giving

log = logging.getLogger(__name__)


def plan(
    settings: Settings, policy: Policy | None = None, asked: Selection | None = None, folder: Path | None = None
) -> RunSpec:
    """The run that these settings ask for, complete and checked: whatever can be refused is refused here. `policy`
    replaces the model, `asked` the questions of a new run; `folder` is that of a run to resume. Loads no weights and
    writes nothing. Raises ConfigError, QuestionError, ScanNotFound, ModelError or RunError."""
    draft = Draft.of(settings, policy, asked, folder).resolved()
    questions = draft.questions
    world = draft.world
    rules = draft.rules
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
    return _memory_lines(draft)


def _memory_lines(draft: Draft) -> list[str]:
    settings = draft.settings
    plan = draft.memory
    questions = draft.questions.here
    scans = {question.scene for question in questions}
    what = "video" if settings.on_video else "scan"
    episodes = len(questions) * settings.samples
    (width, height) = settings.view_size
    times = f", {settings.samples} times each" if settings.samples > 1 else ""
    turns = counted(settings.most_moves + 1, "turn")
    lines = [
        f"Questions: {len(questions)} on {counted(len(scans), what)}{times}, at most {turns} each",
        f"Images: at most {episodes * (settings.most_images + draft.questions.pictures)} of {width}x{height}",
    ]
    if (model := plan.model) is None or (size := plan.conversation) is None or settings.engine == "vllm":
        return [*lines, plan.why]
    return [
        *lines,
        f"Tokens: at most {size.tokens} a question, {size.tokens * episodes} in all "
        f"({size.image_tokens // settings.images_a_turn} an image, {size.reply_tokens} a reply)",
        f"Memory on {model.device}: {as_bytes(model.free_bytes)} usable with --memory-fraction "
        f"{settings.memory_fraction:g}, {as_bytes(model.weight_bytes)} for {model.parameters / 1e6:,.1f} million "
        f"parameters in {settings.quantize or model.dtype}",
        plan.why,
    ]


def again(spec: RunSpec, asked: Selection) -> RunSpec:
    """The run `spec` with the one question that is `asked` instead of its own, and all else as planned."""
    questions = replace(spec.questions, asked=asked, here=asked.questions)
    values = spec.record.settings | of_one(asked.questions[0])
    return replace(spec, questions=questions, record=replace(spec.record, settings=values, flags=flags_giving(values)))
