"""Starts a run: resolves its settings on this machine, then makes what all its turns share."""

import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from roomscout.agent.builders import (
    api_key_of,
    cuda_device_of,
    films_of,
    library_of,
    model_policy,
    mover_of,
    renderer_name,
    rules_of,
)
from roomscout.agent.config import ModelSettings, RunConfig
from roomscout.agent.planning import Plan, fitted_to_model, frame_size, plan_run, plan_without_model
from roomscout.agent.play.policy import HumanPolicy
from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.prompts import Prompts, run_prompts
from roomscout.agent.prepared import Prepared
from roomscout.agent.run_folder import saved_prompts
from roomscout.agent.state import QuestionState, Rules
from roomscout.agent.timing import seems_to_reason
from roomscout.agent.turns import VIEW_THREADS, Run
from roomscout.base.wording import named
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import ScanLibrary, SceneLibrary
from roomscout.models import ReplyFormat
from roomscout.models.engines import checkpoint_of
from roomscout.models.transformers.source import existing_source
from roomscout.models.views import ViewSettings, own_view_settings
from roomscout.rendering.renderers import Renderer, RendererStart
from roomscout.runs.journal import Journal
from roomscout.runs.reader import RunReader

log = logging.getLogger(__name__)

TOKENS_FOR_THOUGHTS = 8192
"""Room for a thought and a reply."""


class Resolved(NamedTuple):
    """A configuration with each "auto" resolved on this machine, and the plan and renderer that resolved it."""

    config: RunConfig
    plan: Plan
    renderer: Renderer | None
    """None for frames of videos."""


@dataclass(frozen=True)
class Started:
    """A run that can begin: its resolved configuration, its plan, and what its turns share except the journal."""

    config: RunConfig
    plan: Plan
    library: SceneLibrary | FilmLibrary
    policy: Policy
    rules: Rules
    pool: Executor

    @property
    def prompts(self) -> Prompts | None:
        """The prompts that the policy's model reads; None without a model, and for frames of videos."""
        return self.rules.prompts if self.policy.reads_prompts and self.rules.video is None else None

    def run(self, journal: Journal, turn_begins: Callable[[QuestionState], None] = lambda state: None) -> Run:
        """The run, recorded in a journal."""
        return Run(self.library, self.policy, journal, self.pool, self.config.controls.anytime, turn_begins)


def resolve(asking: Prepared, prompts: Prompts, stack: ExitStack) -> Resolved:
    """Plan a run and start its renderer, which `stack` closes; loads no weights.

    The renderer's process starts and tests itself while this one imports PyTorch and transformers for the plan. Open3D
    is loaded after PyTorch, as CUDA requires (see `make_renderer`). Raises ConfigError, ModelError or RenderError.
    """
    config, questions, policy = asking.config, asking.questions, asking.policy
    start = None
    if not config.controls.on_video:
        start = RendererStart(renderer_name(config, asking.asked.questions), cuda_device_of(config.model.device))
        stack.callback(start.close)
    if policy is None and config.model.loads_weights:
        # A wrong name is refused before seconds of imports.
        existing_source(checkpoint_of(config.model.model, config.model.revision))
        _import_model_libraries()
    config = fitted_to_model(config, policy)
    if policy is None:
        if config.model.engine == "openai":
            api_key_of(config.server)  # refuses a missing one
        plan = plan_run(config, questions, prompts)
    else:
        plan = plan_without_model(config.model.model, config.schedule, asking.episodes)
    if start is None:
        return Resolved(config, plan, None)
    renderer = start.renderer()
    stack.callback(renderer.close)
    return Resolved(config.having(renderer=renderer.name), plan, renderer)


def start(asking: Prepared, stack: ExitStack) -> Started:
    """Resolve a run's settings, load its model unless a policy is given, and make the library and the threads of its
    views; last of all, the scans of a benchmark that makes them, which can take minutes, as weights can.

    The model reads the prompts of the run, a given policy its own under the controls of the run. `stack` closes
    everything. Logs the plan, on the console only if it needs more memory than there is. Raises the errors of
    `resolve`, and ConfigError or RunError if --moves-of names a run that cannot be repeated.
    """
    questions, policy = asking.questions, asking.policy
    prompts = run_prompts(asking.config) if asking.folder is None else saved_prompts(asking.folder)
    if policy is None and asking.config.model.asks_model:
        warn_of_short_replies(asking.config.model, asking.config.view.max_new_tokens)
    if policy is None or isinstance(policy, ModelPolicy):
        warn_of_new_images(asking.config.model.model, asking.config.views.see, asking.config.controls.boxes)
    config, plan, renderer = resolve(asking, prompts, stack)
    mover = mover_of(config, questions)
    log.log(logging.WARNING if plan.exceeds_memory else logging.DEBUG, "%s", plan.why)
    library: ScanLibrary | FilmLibrary
    if (video := config.video) is not None:
        films = films_of(config, video, frame_size(config, policy))
        shown = {} if asking.folder is None else frames_shown(asking.folder)
        library = FilmLibrary(films, _cache_bytes(config), shown)
    else:
        assert renderer is not None, "scans are rendered"
        library = library_of(config, renderer)
    stack.callback(library.close)
    if config.what_to_run.ply is not None:
        library.load_ahead(questions)  # while the weights are loaded
    if policy is None:
        policy = model_policy(config, plan, prompts)
        stack.callback(policy.close)
    elif isinstance(policy, HumanPolicy):
        stack.enter_context(policy.serving())
    elif isinstance(policy, ModelPolicy):
        prompts = policy.prompts.with_advice_of(asking.benchmark)
        prompts = prompts.under(config.controls, config.view.tell, config.views.see)
    form = policy.reply_format if isinstance(policy, ModelPolicy) else ReplyFormat()
    rules = rules_of(config.controls, prompts, form, mover, video)
    pool = stack.enter_context(ThreadPoolExecutor(VIEW_THREADS, thread_name_prefix="view"))
    if asking.makes_scans:
        asking.make_scans()
        asking.report_scans()
    return Started(config, plan, library, policy, rules, pool)


def start_part(started: Started, asking: Prepared) -> Started:
    """What `start` returned for a part of a run, for another part of it: loads no model again.

    Raises ConfigError or RunError if --moves-of names a run that cannot be repeated.
    """
    config, library = asking.config, started.library
    if isinstance(library, FilmLibrary) and asking.folder is not None:
        library = FilmLibrary(library.settings, _cache_bytes(config), frames_shown(asking.folder))
    policy = started.policy if asking.policy is None else asking.policy
    rules = replace(started.rules, mover=mover_of(config, asking.questions))
    return replace(started, config=config, library=library, policy=policy, rules=rules)


def _cache_bytes(config: RunConfig) -> int:
    return int(config.views.scene_cache_gib * 2**30)


def frames_shown(folder: Path) -> dict[tuple[str, str], str]:
    """The hashes of the videos that the finished questions of a run were about, by scene."""
    reader = RunReader(folder)
    firsts = [(row, turn) for row in reader.rows for turn in reader.turns(row.episode)[:1]]
    return {(row.dataset, row.scene_name): turn.frames.sha256 for row, turn in firsts if turn.frames}


def warn_of_short_replies(model: ModelSettings, longest: int = ViewSettings.max_new_tokens) -> None:
    """Log a warning if the model is named like one that reasons before it replies, and nobody chose the reply's length,
    which is `longest` then.

    Raises ModelError if the checkpoint's views.json is damaged.
    """
    if model.max_new_tokens != "auto" or own_view_settings(model.model) is not None:
        return
    if seems_to_reason(model.model):
        log.warning(
            "%s seems to reason before it replies, and replies end after %d tokens: add %s, or its "
            "thoughts leave no room for a reply",
            model.model, longest, named(max_new_tokens=TOKENS_FOR_THOUGHTS),
        )  # fmt: skip


def warn_of_new_images(model: str, see: Sequence[str], boxes: str = "") -> None:
    """Log a warning if a model that was trained on its own views is shown other images or told boxes, too.

    Raises ModelError.
    """
    more = " and ".join([*see[1:], *(["boxes of objects"] if boxes else [])])
    if more and own_view_settings(model) is not None:
        log.warning("%s was trained on views alone, without %s: do not rely on its answers", model, more)


def _import_model_libraries() -> None:
    """Import PyTorch and transformers, which takes a tenth less without looking for garbage in what they define."""
    with _garbage_kept():
        from roomscout.models.transformers import footprint, runner  # noqa: F401


@contextmanager
def _garbage_kept() -> Iterator[None]:
    """Pause the cyclic garbage collector inside this block, unless it is off already."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
