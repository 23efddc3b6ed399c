"""From resolved settings to a complete and checked run: `plan`."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from roomscout.agent.policies import Policy
from roomscout.agent.spec import RunSpec
from roomscout.base.errors import ConfigError, SettingError, in_words
from roomscout.base.text import counted
from roomscout.data.questions import Question, Selection
from roomscout.data.scans import ScanNotFound
from roomscout.edge.basis import Basis, basis_of
from roomscout.edge.engine import engine_of, memory_of, schedule_of
from roomscout.edge.memory import MemoryPlan, as_bytes
from roomscout.edge.money import money_lines
from roomscout.edge.record import record_of
from roomscout.edge.request import NEW_RUN, Request
from roomscout.edge.rules import rules_of
from roomscout.edge.settings import Settings, flags_giving
from roomscout.edge.world import require_scans, world_of

log = logging.getLogger(__name__)


def plan(settings: Settings, policy: Policy | None = None, request: Request = NEW_RUN) -> RunSpec:
    """The run that these settings ask for, complete and checked: whatever can be refused is refused here. A given
    policy replaces the model. Loads no weights, writes nothing. ConfigError, QuestionError, ScanNotFound, ModelError or
    RunError."""
    with config_errors():
        basis = basis_of(settings, policy, request)
        world = world_of(basis)
        rules = rules_of(basis, world)
        require_scans(basis, world)
        memory = memory_of(basis, rules)
        level = logging.WARNING if memory.exceeds_memory else logging.DEBUG
        log.log(level, "%s", memory.why)
        engine = engine_of(basis, memory)
        schedule = schedule_of(basis, memory)
        record = record_of(basis, world, rules)
        return RunSpec(basis.questions, world, rules, engine, schedule, record, memory.tensor_parallel)


@contextmanager
def config_errors() -> Iterator[None]:
    """Raise a setting's error of the parts that read it as ConfigError, with its flag."""
    try:
        yield
    except SettingError as error:
        raise ConfigError(in_words(error)) from error


def look_ahead(settings: Settings, request: Request) -> tuple[Basis, MemoryPlan]:
    """What a run follows from, and what it takes, without beginning it; logs its scans. Raises the errors of `plan`."""
    with config_errors():
        basis = basis_of(settings, None, replace(request, previews=True))
        world = world_of(basis, chooses_renderer=False)
        rules = rules_of(basis, world)
        if world.makes_scans:
            log.info("Scans: made when the run begins, if they are not there")
        else:
            try:
                require_scans(basis, world)
            except ScanNotFound as error:
                what = "Scans" if basis.video is None else "Videos"
                log.info("%s: none yet (%s)", what, error)
        return basis, memory_of(basis, rules)


def memory_lines(settings: Settings, request: Request = NEW_RUN) -> list[str]:
    """The size, memory and batch size of a run, and what it costs, as lines; raises the errors of `plan`."""
    basis, memory = look_ahead(settings, request)
    settings = basis.settings
    questions = basis.questions.here
    scans = {question.scene for question in questions}
    what = "video" if settings.on_video else "scan"
    episodes = len(questions) * settings.samples
    width, height = settings.view_size
    times = f", {settings.samples} times each" if settings.samples > 1 else ""
    turns = counted(settings.most_moves + 1, "turn")
    beside = [flag for flag, asks in (("--anytime", settings.anytime), ("--probe", settings.probe != "none")) if asks]
    replies = f", and with {' and '.join(beside)} {1 + len(beside)} replies a turn" if beside else ""
    lines = [
        f"Questions: {len(questions)} on {counted(len(scans), what)}{times}, at most {turns} each{replies}",
        f"Images: at most {episodes * (settings.most_images + basis.questions.pictures)} of {width}x{height}",
    ]
    model = memory.model
    size = memory.conversation
    money = [] if size is None else money_lines(basis, size)
    if model is None or size is None or settings.engine == "vllm":
        return [*lines, *money, memory.why]
    return [
        *lines,
        *money,
        f"Tokens: at most {size.tokens} a question, {size.tokens * episodes} in all "
        f"({size.image_tokens // settings.images_a_turn} an image, {size.reply_tokens} a reply)",
        f"Memory on {model.device}: {as_bytes(model.free_bytes)} usable with --memory-fraction "
        f"{settings.memory_fraction:g}, {as_bytes(model.weight_bytes)} for {model.parameters / 1e6:,.1f} million "
        f"parameters in {settings.quantize or model.dtype}",
        memory.why,
    ]


def again(spec: RunSpec, question: Question) -> RunSpec:
    """The run `spec` with another question about its scan, and all else as planned."""
    selection = Selection.all_of([question])
    questions = replace(spec.questions, asked=selection, here=selection.questions)
    words = {"question": question.question, "options": list(question.options), "ground_truth": question.ground_truth}
    asked = spec.record.asked | words
    return replace(spec, questions=questions, record=replace(spec.record, asked=asked, flags=flags_giving(asked)))
