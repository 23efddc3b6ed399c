"""What is asked of a run, who answers, and the settings that follow: what all parts of a spec begin with."""

import logging
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.agent.play.policy import HUMAN, HumanPolicy
from roomscout.agent.play.texts import Texts
from roomscout.agent.policies import Policy, named_policy, policy_name
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.spec import QuestionSpec
from roomscout.base.errors import ConfigError, SettingError
from roomscout.data.benchmark import Benchmark, VideoProtocol
from roomscout.data.benchmarks import benchmark_names, find_benchmark
from roomscout.data.parts import part_of
from roomscout.data.questions import Selection, select_questions
from roomscout.edge.memory import require_random, suited_to_model
from roomscout.edge.request import Request
from roomscout.edge.resolve import changed
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import DEFAULTS, Settings
from roomscout.edge.types import CHECKPOINT
from roomscout.models.checkpoint_files import ViewSettings, own_view_settings
from roomscout.models.engines import known_checkpoint
from roomscout.models.transformers.source import checkpoint_of
from roomscout.rendering.readers import reader_of
from roomscout.rendering.scene import SceneError
from roomscout.runs.records import RunFacts
from roomscout.runs.writer import named_folder

if TYPE_CHECKING:  # the module itself loads torch
    from roomscout.models.transformers.footprint import Checkpoint

log = logging.getLogger(__name__)

TOKENS_FOR_THOUGHTS = 8192  # room for a thought and a reply
NAMES_OF_REASONERS = re.compile(r"(?<!non)(?<!non[-_])think|reason|q[wv]q|\br1\b|\bo[134]\b|gpt-5", re.IGNORECASE)


@dataclass(frozen=True)
class Basis:
    """What all parts of a spec follow from."""

    settings: Settings  # the settings, without an "auto" that model, benchmark or policy decide
    policy: Policy | None  # who decides; None for the model that the settings name
    checkpoint: "Checkpoint | None"  # the checkpoint that the run loads on this machine, if any
    views: ViewSettings  # what the model was trained on, or the defaults
    questions: QuestionSpec  # what is asked
    video: VideoProtocol | None  # how frames of videos are shown, if they are shown in place of views
    request: Request  # what was asked for
    facts: RunFacts | None  # what the run that resumes has recorded of itself

    @property
    def model(self) -> ModelPolicy | None:
        """The policy, if it asks a model."""
        return self.policy if isinstance(self.policy, ModelPolicy) else None


def basis_of(settings: Settings, policy: Policy | None, request: Request, loads: bool = True) -> Basis:
    """Who answers which questions, with settings that suit the checkpoint, if this machine `loads` it; raises
    ConfigError, QuestionError, ModelError or RunError."""
    benchmark = find_benchmark(settings.benchmark)
    video = _video_of(settings, benchmark)
    if request.ply is not None:
        try:
            reader_of(request.ply)
        except SceneError as error:
            raise ConfigError(f"--ply {error}") from None
    questions = asked_of(settings, benchmark, request)
    if policy is None and settings.policy is not None:
        policy = _named_policy(settings, questions)
    if policy is not None and request.run is not None and settings.model != policy_name(policy):
        raise ConfigError(f"the run was begun with {settings.model}, not {policy_name(policy)}: resume it with that")
    if policy is not None:
        settings = changed(settings, {"model": policy_name(policy), **policy.settings})
    _require_answers(settings, policy, questions)
    if request.run is None:
        _require_new(settings, benchmark)
    own_views = own_view_settings(settings.model)
    source = checkpoint_of(settings.model, settings.revision) if policy is None and settings.loads_weights else None
    is_here = loads and not (request.caller_replies and settings.model == DEFAULTS["model"])
    checkpoint = None
    if is_here and source is not None:
        checkpoint = known_checkpoint(source, settings.device, settings.dtype, settings.engine)
    suited = changed(settings, suited_to_model(settings, own_views, video, checkpoint))
    if is_here:
        _warn_of_model(settings, policy, own_views is not None)
    facts = None if request.run is None else request.run.facts
    return Basis(suited, policy, checkpoint, own_views or ViewSettings(), questions, video, request, facts)


def _video_of(settings: Settings, benchmark: Benchmark) -> VideoProtocol | None:
    if not settings.on_video:
        return None
    if benchmark.video is None:
        having = ", ".join(name for name in benchmark_names() if find_benchmark(name).video)
        raise ConfigError(f"--present video: {benchmark.title} has no field video; those that have one are {having}")
    return benchmark.video


def _named_policy(settings: Settings, questions: QuestionSpec) -> Policy:
    """The policy that the settings name; raises ConfigError or SettingError."""
    policy: Policy
    if settings.policy != HUMAN:
        policy = named_policy(str(settings.policy), settings.seed)
    else:
        host, _, port = settings.address.rpartition(":")
        texts = Texts.read(settings.words, settings.instructions, settings.thanks, bool(settings.annotator))
        policy = HumanPolicy(settings.annotator, host, int(port), settings.samples, texts)
        policy.deal(questions.asked.questions, questions.benchmark)
    if settings.model not in (DEFAULTS["model"], policy_name(policy)):
        raise ConfigError(f"--policy {settings.policy} replaces the model: leave out --model {settings.model}")
    return policy


def _require_new(settings: Settings, benchmark: Benchmark) -> None:
    """Raise ConfigError for other scans than a benchmark's own, RunError if the name of the run is taken."""
    root = settings.scan_root
    own_scans = benchmark.folder is not None and not Path(settings.benchmark).is_dir()
    if own_scans and settings.questions is None and root != DEFAULTS["scan_root"].absolute():
        raise ConfigError(f"--benchmark {settings.benchmark} has its own scans: leave out --scan-root {root}")
    if settings.name is not None:
        named_folder(settings.log_root, settings.name, settings.part)


def _require_answers(settings: Settings, policy: Policy | None, questions: QuestionSpec) -> None:
    """Raise ConfigError if the policy cannot answer as asked, or a judge has nothing to mark."""
    if settings.on_video and policy is not None and not isinstance(policy, ModelPolicy):
        raise ConfigError(f"--present video shows frames to a model, and {policy_name(policy)} is not one")
    # A policy without a temperature among its settings is trusted to draw at random.
    temperature = settings.temperature if policy is None else policy.settings.get("temperature")
    if settings.generation != CHECKPOINT:
        require_random(settings.samples, temperature)
    if settings.anytime and policy is not None and policy.answer_now([]) is None:
        raise ConfigError(
            f"--anytime asks a model for an answer after each turn, and {policy_name(policy)} cannot be asked: "
            "leave out --anytime, or give the policy a method answer_now"
        )
    if settings.probe != "none" and policy is not None and policy.map_now([]) is None:
        raise ConfigError(
            f"--probe map asks a model where objects are after each turn, and {policy_name(policy)} cannot be asked: "
            "leave out --probe, or give the policy a method map_now"
        )
    kinds = [question.kind for question in questions.asked.questions]
    if settings.judge is not None and not any(kind.needs_judge for kind in kinds):
        raise ConfigError("--judge marks answers in free text, and no question has one: leave it out")
    if settings.on_video and questions.pictures:
        raise ConfigError("--present video shows frames alone, and questions have pictures: leave it out")
    if any(kind.judges_camera for kind in kinds):
        others = {"present": settings.on_video, "moves": settings.moves != "model", "moves_of": settings.moves_of}
        others |= {"translation": not settings.translation, "steps": not settings.steps}
        name = next((name for name, is_wrong in others.items() if is_wrong), None)
        if name is not None:
            why = "a pose is scored where the model itself moves the camera: leave it out"
            raise SettingError(why, setting=name, value=getattr(settings, name))


def _warn_of_model(settings: Settings, policy: Policy | None, is_own: bool) -> None:
    """Log what the model was not made for: replies without room for its thoughts, and more images than views, if it
    `is_own`: trained on this package's views."""
    unbounded = policy is None and settings.max_new_tokens == "auto" and not is_own
    if unbounded and NAMES_OF_REASONERS.search(Path(settings.model).name):
        log.warning(
            "%s seems to reason before it replies: add --max-new-tokens %d, or its thoughts leave no room for a reply",
            settings.model, TOKENS_FOR_THOUGHTS,
        )  # fmt: skip
    more = " and ".join([*settings.see[1:], *(["boxes of objects"] if settings.boxes else [])])
    if more and is_own and (policy is None or isinstance(policy, ModelPolicy)):
        log.warning("%s was trained on views alone, without %s: do not rely on its answers", settings.model, more)


def asked_of(settings: Settings, benchmark: Benchmark, request: Request) -> QuestionSpec:
    """The questions of a run: its own copy of them if it resumes, unless their file was named again or is another one;
    those that are given; or those that the settings choose. Raises QuestionError, SettingError for too few scenes, and
    RunError if a run that resumes was begun with others."""
    run = request.run
    begun = run and run.facts.config["questions"]
    is_other_file = settings.questions != (begun and Path(begun))
    if run is None or request.questions_named or is_other_file:
        selection = request.questions or selected(settings, benchmark)
    else:
        selection = Selection.all_of(run.questions)
    here = part_of(selection.questions, settings.shard, benchmark)
    if run is not None:
        run.require_questions(here, selection.questions)
    return QuestionSpec(selection, here, settings.samples, benchmark, request.ply is not None)


def selected(settings: Settings, benchmark: Benchmark) -> Selection:
    """The questions that the settings choose, and all those of their source; raises QuestionError."""
    filters: Any = {name: getattr(settings, name) for name in FILTERS}
    return select_questions(settings.questions, benchmark, **filters)
