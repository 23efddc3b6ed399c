"""From what was asked to a complete and checked run: `plan`."""

import logging
from dataclasses import replace
from pathlib import Path

from roomscout.agent.actions import find_space
from roomscout.agent.play.policy import HUMAN, HumanPolicy
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.named import named_policy, policy_name
from roomscout.agent.policies.prompts import Prompts, model_prompts, recorded_prompts
from roomscout.agent.policies.replies import action_format
from roomscout.agent.scans import report_scans
from roomscout.agent.spec import EngineSpec, QuestionSpec, RunSpec, ScheduleSpec, WorldSpec
from roomscout.agent.state import Rules
from roomscout.base.errors import ConfigError
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.parts import Part
from roomscout.data.questions import Selection
from roomscout.data.scans import ScanNotFound
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.memory import (
    MemoryPlan,
    frame_size,
    memory_lines,
    planned_memory,
    seems_to_reason,
    suited_to_model,
)
from roomscout.edge.parts import (
    asked_of,
    controls_of,
    cuda_device_of,
    films_of,
    layouts_of,
    model_options,
    mover_of,
    renderer_of,
    server_options,
    video_protocol,
)
from roomscout.edge.paths import absolute_paths
from roomscout.edge.reading import changed
from roomscout.edge.recording import of_one, record_of
from roomscout.edge.resuming import as_begun, part_of, questions_to_resume, saved_settings
from roomscout.edge.settings import DEFAULTS, Settings, flags_giving
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings
from roomscout.models import ReplyFormat
from roomscout.models.engines import checkpoint_of
from roomscout.models.transformers.source import existing_source
from roomscout.models.views import ViewSettings, own_view_settings
from roomscout.models.vllm import VllmOptions
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.runs.writer import named_folder

log = logging.getLogger(__name__)

TOKENS_FOR_THOUGHTS = 8192
"""Room for a thought and a reply."""


def plan(
    settings: Settings, policy: Policy | None = None, asked: Selection | None = None, folder: Path | None = None
) -> RunSpec:
    """The run that these settings ask for, complete and checked: whatever can be refused is refused here.

    `policy` replaces the model that the settings name, `asked` the questions that they name for a new run; `folder` is
    that of a run to resume. Reads files and the checkpoint's configuration; loads no weights, starts no process and
    writes nothing. Raises ConfigError, QuestionError, ScanNotFound, ModelError or RunError.
    """
    policy, settings, questions = asking(settings, policy, asked, folder)
    settings, video, world, rules = episode_parts(settings, policy, questions, folder)
    if not world.makes_scans:
        report_scans(questions, world, required=folder is None, boxes=bool(settings.given))
    if folder is not None and not settings.retry_failed and not _is_pending(folder, questions):
        memory = MemoryPlan(1, "every question is finished")
    else:
        memory = planned_memory(settings, policy is None, questions, rules.prompts, video)
    log.log(logging.WARNING if memory.exceeds_memory else logging.DEBUG, "%s", memory.why)
    reads = (policy is None or policy.reads_prompts) and video is None
    record = record_of(settings, questions, rules.prompts if reads else None, video, folder)
    engine, schedule = engine_of(settings, policy, memory), _schedule_of(settings, memory)
    return RunSpec(questions, world, rules, engine, schedule, record, memory.tensor_parallel)


def memory_of(settings: Settings, folder: Path | None) -> list[str]:
    """The size, memory and batch size of a run, as lines; raises the errors of `plan`."""
    policy, settings, questions = asking(settings, None, None, folder)
    settings, video, world, rules = episode_parts(settings, policy, questions, folder)
    if world.makes_scans:
        log.info("Scans: made when the run begins, if they are not there")
    else:
        try:
            report_scans(questions, world, required=False)
        except ScanNotFound as error:
            log.info("%s: none yet (%s)", "Scans" if video is None else "Videos", error)
    memory = planned_memory(settings, policy is None, questions, rules.prompts, video)
    return memory_lines(settings, memory, questions.here)


def asking(
    settings: Settings, policy: Policy | None, asked: Selection | None, folder: Path | None
) -> tuple[Policy | None, Settings, QuestionSpec]:
    """Who answers what in a run, with the settings of both."""
    require_no_conflict(settings)
    policy, settings = with_policy(policy, changed(settings, **absolute_paths(settings)))
    benchmark = find_benchmark(settings.benchmark)
    if folder is not None:
        settings = _as_begun_in(folder, settings)
        asked = Selection.all_of(questions_to_resume(folder, settings, benchmark))
    asked = asked or asked_of(settings)
    here = part_of(asked.questions, settings.shard)
    questions = QuestionSpec(asked, here, settings.samples, benchmark, settings.ply is not None)
    _require_answers(settings, policy, questions, folder)
    return policy, settings, questions


def again(spec: RunSpec, settings: Settings) -> RunSpec:
    """The run `spec` with the question that `settings` ask instead of its own, and all else as planned.

    Raises ConfigError or QuestionError.
    """
    asked = asked_of(settings)
    questions = replace(spec.questions, asked=asked, here=asked.questions)
    values = spec.record.settings | of_one(asked.questions[0])
    return replace(spec, questions=questions, record=replace(spec.record, settings=values, flags=flags_giving(values)))


def episode_parts(
    settings: Settings, policy: Policy | None, questions: QuestionSpec, folder: Path | None = None, loads: bool = True
) -> tuple[Settings, VideoProtocol | None, WorldSpec, Rules]:
    """What episodes need of a run: its settings with each "auto" resolved but the renderer, its world and its rules.

    Views suit the checkpoint of the settings if it `loads` one.
    """
    video = video_protocol(settings, questions.benchmark)
    if loads and policy is None:
        _warn_of_short_replies(settings)
    loads = loads and policy is None and settings.loads_weights
    if loads:  # a wrong name is refused before seconds of imports
        existing_source(checkpoint_of(settings.model, settings.revision))
    if policy is None or isinstance(policy, ModelPolicy):
        _warn_of_new_images(settings)
    settings = changed(settings, **suited_to_model(settings, video, loads))
    films = None
    if video is not None:
        films = films_of(settings, video, questions.here, frame_size(settings, policy))
    world = world_of(settings, questions, films)
    if video is not None:
        return settings, video, world, Rules(video=video)
    form = action_format(settings.constrained) if policy is None else ReplyFormat()
    form = policy.reply_format if isinstance(policy, ModelPolicy) else form
    controls, space = controls_of(settings), find_space(settings.actions)
    if form.grammar is not None:
        form = action_format(True, space if settings.translation else space.at_place)
    prompts = saved_prompts(folder) if folder is not None else model_prompts(settings.prompts, settings.model)
    if isinstance(policy, ModelPolicy) or folder is None:
        base = policy.prompts if isinstance(policy, ModelPolicy) else prompts
        prompts = base.with_advice_of(questions.benchmark).under(controls)
    rules = Rules(
        prompts=prompts,
        form=form,
        mover=mover_of(settings, world.camera, questions),
        at_once=settings.present == "once",
        min_turns=settings.min_turns,
        translation=settings.translation,
        space=space,
        boxes=settings.boxes,
        keep_views=settings.keep_views,
    )
    return settings, None, world, rules


def world_of(settings: Settings, questions: QuestionSpec, films: FilmSettings | None = None) -> WorldSpec:
    """Where the scans are, and how views are drawn; the size and focal length of views are usual ones if "auto"."""
    usual, layouts = ViewSettings(), layouts_of(settings.benchmark)
    return WorldSpec(
        scan_root=settings.scan_root,
        ply=settings.ply,
        layouts=layouts,
        up_axis=settings.up_axis,
        scale=settings.scale,
        camera=CameraSettings(
            usual.image_size if settings.image_size == "auto" else settings.image_size,
            usual.focal if settings.focal == "auto" else settings.focal,
            settings.camera_height,
            settings.camera_pitch,
            see=settings.see,
        ),
        renderer=renderer_of(settings.renderer, questions.asked.questions, settings.scan_root, settings.ply, layouts),
        cuda_device=cuda_device_of(settings.device),
        films=films,
        makes_scans=settings.ply is None and not settings.on_video and questions.benchmark.make_scans is not None,
    )


def with_policy(policy: Policy | None, settings: Settings) -> tuple[Policy | None, Settings]:
    """The given policy or the one that --policy names, if any, and the settings with its name and settings."""
    if policy is None and settings.policy is not None:
        if settings.policy == HUMAN:
            host, _, port = settings.address.rpartition(":")
            policy = HumanPolicy(settings.annotator, host, int(port), settings.samples)
        else:
            policy = named_policy(settings.policy, settings.seed)
        if settings.model not in (DEFAULTS["model"], policy_name(policy)):
            raise ConfigError(f"--policy {settings.policy} replaces the model: leave out --model {settings.model}")
    if policy is None:
        return None, settings
    return policy, changed(settings, model=policy_name(policy), **policy.settings)


def engine_of(settings: Settings, policy: Policy | None, memory: MemoryPlan) -> EngineSpec:
    """What decides in a run, with the options of its engine; raises ConfigError if the key of a server is missing."""
    if policy is not None:
        return EngineSpec(settings.model, policy)
    return EngineSpec(
        settings.model,
        options=model_options(settings, memory),
        server=server_options(settings) if settings.engine == "openai" else None,
        vllm=VllmOptions(images=settings.most_shown, tensor_parallel_size=memory.tensor_parallel)
        if settings.engine == "vllm"
        else None,
        constrained=settings.constrained,
    )


def _schedule_of(settings: Settings, memory: MemoryPlan) -> ScheduleSpec:
    few = None if settings.concurrency == "auto" else settings.concurrency
    if few is None and memory.model is not None and not memory.model.mixes_turns:
        few = memory.batch_size
    steps = settings.most_moves if settings.on_video else settings.steps
    return ScheduleSpec(steps, memory.batch_size, settings.last_batched_turn + 1, few, settings.anytime)


def _as_begun_in(folder: Path, settings: Settings) -> Settings:
    """The settings with each "auto" as resolved when the run in `folder` began; raises ConfigError or RunError."""
    saved = saved_settings(folder)
    if saved.model != settings.model:
        raise ConfigError(f"{folder} was begun with {saved.model}, not {settings.model}: resume it with {saved.model}")
    return as_begun(saved, settings)


def _is_pending(folder: Path, questions: QuestionSpec) -> bool:
    """Whether the run in a folder has answers to come."""
    reader = RunReader(folder)
    done = {(row.id, row.sample) for row in reader.rows}
    return any((each.id, sample) not in done for each in questions.here for sample in range(1, questions.samples + 1))


def saved_prompts(folder: Path) -> Prompts:
    """The prompts of the run in a folder; raises RunError."""
    record = RunReader(folder).facts.prompts
    try:
        return recorded_prompts(record) if record else Prompts()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'run.json'}: its prompts are damaged ({error}); start a new run") from None


def _require_answers(settings: Settings, policy: Policy | None, questions: QuestionSpec, folder: Path | None) -> None:
    """Raise ConfigError if a policy cannot answer as asked, a judge has nothing to mark, or the name is taken."""
    if settings.on_video and policy is not None and not isinstance(policy, ModelPolicy):
        raise ConfigError(f"--present video shows frames to a model, and {policy_name(policy)} is not one")
    # A policy without a temperature among its settings is trusted to draw at random.
    temperature = settings.temperature if policy is None else policy.settings.get("temperature")
    if settings.samples > 1 and temperature == 0:
        raise ConfigError(
            f"--samples {settings.samples} would repeat one answer {settings.samples} times, since replies at "
            "--temperature 0 are always the same: add --temperature, such as 0.7"
        )
    if settings.anytime and policy is not None and policy.answer_now([]) is None:
        raise ConfigError(
            f"--anytime asks a model for an answer after each turn, and {policy_name(policy)} cannot be asked: leave "
            "out --anytime, or give the policy a method answer_now"
        )
    if settings.judge is not None and not any(each.kind.needs_judge for each in questions.asked.questions):
        raise ConfigError("--judge marks answers in free text, and no question has one: leave it out")
    if folder is not None:
        return
    own_scans = questions.benchmark.folder is not None and not Path(settings.benchmark).is_dir()
    if own_scans and settings.questions is None and settings.scan_root != DEFAULTS["scan_root"].absolute():
        raise ConfigError(
            f"--benchmark {settings.benchmark} has its own scans: leave out --scan-root {settings.scan_root}"
        )
    if settings.name is not None:
        part = Part.parse(settings.shard) if settings.shard is not None else None
        named_folder(settings.log_root, settings.name, (part.number, part.of) if part else None)


def _warn_of_short_replies(settings: Settings) -> None:
    """Log a warning if the model has the name of one that reasons first, and nobody chose the length of replies."""
    chosen = settings.max_new_tokens != "auto" or own_view_settings(settings.model) is not None
    if not chosen and seems_to_reason(settings.model):
        log.warning(
            "%s seems to reason before it replies: add --max-new-tokens %d, or its thoughts leave no room for a reply",
            settings.model, TOKENS_FOR_THOUGHTS,
        )  # fmt: skip


def _warn_of_new_images(settings: Settings) -> None:
    """Log a warning if a model that was trained on its own views is shown other images or told boxes, too."""
    more = " and ".join([*settings.see[1:], *(["boxes of objects"] if settings.boxes else [])])
    if more and own_view_settings(settings.model) is not None:
        log.warning("%s was trained on views alone, without %s: do not rely on its answers", settings.model, more)
