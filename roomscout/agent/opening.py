"""Opens what turns need: the one way for run folders, runs in memory, sessions of questions, people and training."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from roomscout.agent.policies import Policy
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.spec import RunSpec
from roomscout.base.waiting import step
from roomscout.envs.films import FilmLibrary
from roomscout.envs.library import ScanLibrary, SceneLibrary, cache_for
from roomscout.models.engines import make_backend
from roomscout.models.transformers.backend import SET_BY_LOADING, TransformersBackend
from roomscout.rendering.renderers import Renderer, RendererStart
from roomscout.runs.reader import RunReader


@dataclass
class Opened:
    """What turns need, which several runs may share."""

    library: SceneLibrary | FilmLibrary  # the scans or films of the questions
    policy: Policy | None  # who decides; None if the caller has the replies
    resources: ExitStack = field(default_factory=ExitStack)  # closes all of it

    def close(self) -> None:
        """Release the model, the scans and the renderer. Can be called twice."""
        self.resources.close()


def open_run(spec: RunSpec) -> Opened:
    """Load the renderer, the policy with its model, and the library of scans or films; make the scans of a benchmark
    that makes them. CUDA requires Open3D after PyTorch (`make_renderer`). RenderError, ModelError or QuestionError."""
    with ExitStack() as stack:
        library: SceneLibrary | FilmLibrary
        if spec.world.films is not None:
            library = FilmLibrary(spec.world.films, cache_bytes(), _films_before(spec.record.folder))
            stack.callback(library.close)
        else:
            starting = RendererStart(spec.world.renderer, spec.world.cuda_device)
            stack.callback(starting.close)
            if spec.engine.options is not None and spec.engine.server is None:
                from roomscout.models.transformers import runner  # noqa: F401 (loads PyTorch)
            with step("Starting the renderer"):
                renderer = starting.renderer()
            stack.callback(renderer.close)
            library = _library_of(spec, renderer, stack)
        policy = _policy_of(spec, stack)
        if spec.world.makes_scans:
            with step("Making the scans that are missing"):
                spec.questions.benchmark.make(spec.questions.here)
        return Opened(library, policy, stack.pop_all())


def _films_before(folder: Path | None) -> Mapping[tuple[str, str], str]:
    """The hashes of the videos that the finished questions of a run were about, by dataset and scene."""
    if folder is None:
        return {}
    reader = RunReader(folder)
    hashes = dict[tuple[str, str], str]()
    for row in reader.rows:
        for turn in reader.turns(row.episode)[:1]:
            if turn.frames:
                hashes[row.dataset, row.scene_name] = turn.frames.sha256
    return hashes


def _library_of(spec: RunSpec, renderer: Renderer, stack: ExitStack) -> SceneLibrary:
    world = spec.world
    if world.make_library is not None:
        return world.make_library(world, renderer)
    scenes = cache_for(renderer, cache_bytes(), world.up_axis, world.scale)
    library = ScanLibrary(renderer, world.camera, world.scan_root, world.ply, world.layouts, scenes)
    stack.callback(library.close)
    if world.ply is not None:
        library.load_ahead(spec.questions.here)  # while the weights are loaded
    return library


def _policy_of(spec: RunSpec, stack: ExitStack) -> Policy | None:
    """The policy that is given, open until the end, or the model that is named; None if the caller has the replies."""
    engine = spec.engine
    if engine.policy is not None:
        stack.enter_context(engine.policy.open())
        return engine.policy
    if engine.options is None:
        return None
    backend = make_backend(engine.name, engine.options, engine.server, engine.vllm)
    policy = ModelPolicy(backend, spec.rules.prompts)
    stack.callback(policy.close)
    return policy


def cache_bytes() -> int:
    """The memory for scans that no question in progress uses: an eighth of the machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8


def taken_over(before: RunSpec, opened: Opened, spec: RunSpec) -> Opened | None:
    """What an earlier run has opened, for one with its scans and its model, with any prompts; None if it has others."""
    engine = spec.engine
    policy = opened.policy
    backend = policy.backend if isinstance(policy, ModelPolicy) else None
    if before.world != spec.world or engine.policy is not None or not isinstance(backend, TransformersBackend):
        return None
    as_loaded = attrgetter("name", *(f"options.{name}" for name in SET_BY_LOADING), "options.memory_fraction")
    if engine.options is None or as_loaded(before.engine) != as_loaded(engine):
        return None
    again = ModelPolicy(backend.with_options(engine.options), spec.rules.prompts)
    return replace(opened, policy=again)
