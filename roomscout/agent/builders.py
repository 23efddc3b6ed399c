"""Builds the questions, the scans, the model and the policy of a run from its configuration."""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pkgutil import resolve_name

from roomscout.agent.actions import find_space
from roomscout.agent.config import (
    ConfigError,
    ControlSettings,
    ModelSettings,
    QuestionSettings,
    RenderSettings,
    RunConfig,
    ServerSettings,
    VllmSettings,
    WhatToRun,
)
from roomscout.agent.planning import Plan
from roomscout.agent.play.policy import HUMAN, HumanPolicy
from roomscout.agent.policies import Policy
from roomscout.agent.policies.controls import CONTROLS, SCRIPTED
from roomscout.agent.policies.model import ModelPolicy
from roomscout.agent.policies.movers import Mover
from roomscout.agent.policies.named import make_policy, named_policy, policy_name
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.policies.recorded_moves import RecordedMoves
from roomscout.agent.policies.replies import action_format
from roomscout.agent.state import Rules
from roomscout.base.extras import require
from roomscout.base.wording import named
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.parts import Part, cut
from roomscout.data.questions import Question, Selection, questions_asked
from roomscout.data.scans import LAYOUTS, OWN_ROOTS, Layouts, ScanNotFound, scan_of
from roomscout.data.video_frames import FrameSize
from roomscout.data.video_protocol import VideoProtocol
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings, ScanLibrary
from roomscout.models import ModelOptions, ReplyFormat, ServerOptions
from roomscout.models.engines import make_backend
from roomscout.models.views import ViewSettings
from roomscout.models.vllm import VLLM_PYTHON, VllmOptions
from roomscout.rendering.ply import has_splats
from roomscout.rendering.readers import reader_of
from roomscout.rendering.renderers import Renderer
from roomscout.rendering.renderers.splats import why_no_gsplat
from roomscout.rendering.scene import SceneError
from roomscout.runs.movers import GIVEN_PATH, MOVERS


def layouts_of(benchmark: str) -> Layouts:
    """The paths below the root of each dataset at which scans are searched for; raises QuestionError."""
    record = find_benchmark(benchmark)
    own_roots = {OWN_ROOTS: (str(record.folder()),)} if record.folder else {}
    return {**LAYOUTS, **record.scan_layouts, **own_roots}


def questions_of(what: WhatToRun, asked: QuestionSettings) -> list[Question]:
    """The questions of a run in the order of their file; raises QuestionError or ConfigError."""
    return list(asked_of(what, asked).questions)


def asked_of(what: WhatToRun, asked: QuestionSettings) -> Selection:
    """The questions of a run, and all those of their source; raises QuestionError or ConfigError."""
    if what.ply is not None and what.question is not None:
        try:
            reader_of(what.ply)
        except SceneError as error:
            raise ConfigError(named(scan=error)) from None
    return questions_asked(vars(what) | vars(asked), find_benchmark(asked.benchmark))


def part_of(whole: Sequence[Question], shard: str | None) -> Sequence[Question]:
    """The questions of `whole` to ask: all, or those of --shard; raises ConfigError if there are too few scenes."""
    if shard is None:
        return whole
    part = Part.parse(shard)
    try:
        return cut(whole, part.of)[part.number - 1]
    except ValueError as error:
        raise ConfigError(f"{named(shard=part)}: {error}") from None


def camera_of(view: ViewSettings, views: RenderSettings) -> CameraSettings:
    """The settings of a run's views, with the size and focal length of `view`."""
    height_m, pitch_deg = views.camera_height, views.camera_pitch
    return CameraSettings(view.image_size, view.focal, height_m, pitch_deg, views.first_view, views.see)


def library_of(config: RunConfig, renderer: Renderer) -> ScanLibrary:
    """The library of a configuration's scans."""
    views, camera = config.views, camera_of(config.view, config.views)
    cache_bytes, layouts = int(views.scene_cache_gib * 2**30), layouts_of(config.questions.benchmark)
    return ScanLibrary(
        renderer, camera, views.scan_root, config.what_to_run.ply, views.up_axis, cache_bytes, layouts, views.scale
    )


def renderer_name(config: RunConfig, questions: Sequence[Question]) -> str:
    """The renderer to start; for "auto", one of Gaussian splats if any of the scans consists of them."""
    views, ply, layouts = config.views, config.what_to_run.ply, layouts_of(config.questions.benchmark)
    if views.renderer == "auto":
        for question in {question.scene: question for question in questions}.values():
            with suppress(ScanNotFound):
                if has_splats(ply or scan_of(question, views.scan_root, layouts)):
                    return "splats" if why_no_gsplat() else "gsplat"
    return views.renderer


def films_of(config: RunConfig, video: VideoProtocol, size: FrameSize) -> FilmSettings:
    """Which frames a run on videos shows, and of which size; raises ConfigError without the package that reads them."""
    videos, folder = config.controls.videos, config.controls.frames_of
    if videos:
        require(named("videos"), "av", error=ConfigError)
    root = videos or folder
    assert root is not None, "a run on videos has a folder of them"
    return FilmSettings(root, video.file if videos else "", config.frames, size)


def with_policy(policy: Policy | None, config: RunConfig) -> tuple[Policy | None, RunConfig]:
    """The given policy or the one that --policy names, if any, and the configuration with its name and settings."""
    model = config.model
    if policy is None and model.model.startswith(SCRIPTED) and model.policy is None:
        return control_named(model.model, model.seed), config
    if policy is None and model.policy is not None:
        if model.policy == HUMAN:
            policy = HumanPolicy(config.play, config.questions.samples)
        else:
            policy = named_policy(model.policy, model.seed)
        if model.model not in (ModelSettings.model, policy_name(policy)):
            raise ConfigError(f"{named(policy=model.policy)} replaces the model: leave out {named(model=model.model)}")
    if policy is None:
        return None, config
    return policy, config.having(model=policy_name(policy), **policy.settings)


def control_named(model: str, seed: int) -> Policy:
    """The control that `--model scripted:NAME` names; raises ConfigError for any other name."""
    name = model.removeprefix(SCRIPTED)
    if name not in CONTROLS:
        known = ", ".join(f"{SCRIPTED}{each}" for each in CONTROLS)
        raise ConfigError(f"{named(model=model)}: there is no scripted policy {name!r}: use {known}")
    return make_policy(CONTROLS[name], seed)


def rules_of(
    controls: ControlSettings,
    prompts: Prompts,
    form: ReplyFormat,
    mover: Mover | None,
    video: VideoProtocol | None = None,
) -> Rules:
    """The rules of a run's questions for a model that reads `prompts` and replies in this form; or those of `video`."""
    if video is not None:
        return Rules(video=video, native=controls.video_input == "native")
    space = find_space(controls.actions)
    if form.grammar is not None:
        form = action_format(True, space if controls.translation else space.at_place)
    rules = Rules(prompts, form, mover, controls.at_once, controls.min_turns, controls.translation, space)
    return replace(rules, boxes=controls.boxes, keep_views=controls.keep_views)


def mover_of(config: RunConfig, questions: Sequence[Question]) -> Mover | None:
    """Who moves the camera instead of the policy, None if nobody does; raises ConfigError or RunError for --moves-of.

    The settings of views must be resolved.
    """
    controls = config.controls
    if controls.moves_of is not None:
        samples, steps = config.questions.samples, config.schedule.steps
        return RecordedMoves.of(controls.moves_of, config.as_json, questions, samples, steps)
    entry = GIVEN_PATH if "path" in controls.given else MOVERS.get(controls.moves)
    if entry is None:
        return None
    camera = camera_of(config.view, config.views).intrinsics
    kind: type[Mover] = resolve_name(entry.target)
    return kind(config.model.seed, camera, controls.translation)


def model_policy(config: RunConfig, plan: Plan, prompts: Prompts) -> ModelPolicy:
    """A policy that asks the model of a configuration, which it loads, in these words; raises ModelError."""
    model, images = config.model, config.most_shown
    server = None
    if model.engine == "openai":
        a_turn, on_video = config.images_a_turn, config.controls.on_video
        server = server_options(config.server, model.constrained, images, a_turn, on_video)
    vllm = vllm_options(config.vllm, images, plan.tensor_parallel) if model.engine == "vllm" else None
    backend = make_backend(model.model, model_options(model, config.view.max_new_tokens, plan), server, vllm)
    return ModelPolicy(backend, action_format(model.constrained), prompts)


def model_options(model: ModelSettings, max_new_tokens: int, plan: Plan) -> ModelOptions:
    """The options of a model with the longest reply as resolved, and with the planned memory."""
    return ModelOptions(
        dtype=model.dtype,
        device=model.device,
        quantize=model.quantize,
        memory_fraction=model.memory_fraction,
        max_new_tokens=max_new_tokens,
        temperature=model.temperature,
        seed=model.seed,
        attention=model.attention,
        compile=model.compile,
        kv_reuse=model.kv_reuse,
        tiles_per_view=model.tiles_per_view,
        logprobs=model.logprobs,
        revision=model.revision,
        adapter=model.adapter,
        kv_cache_bytes=plan.kv_bytes,
        planned_tokens=plan.conversation.tokens if plan.conversation else 0,
    )


def server_options(
    server: ServerSettings, constrained: bool, images: int, images_a_turn: int, on_video: bool = False
) -> ServerOptions:
    """The servers of --engine openai, for conversations of at most `images` images, `images_a_turn` in each turn, with
    the API key from the environment; raises ConfigError as `api_key_of` does.
    """
    return ServerOptions(
        server.base_url,
        key=api_key_of(server),
        key_env=server.api_key_env,
        timeout_s=server.request_timeout,
        constrained=constrained,
        extra_body=json.loads(server.extra_body or "{}"),
        system_role=server.system_role,
        images=images,
        images_a_turn=images_a_turn,
        on_video=on_video,
    )


def api_key_of(server: ServerSettings) -> str | None:
    """The API key in the environment, None for servers without; raises ConfigError if the variable is not set."""
    key = os.environ.get(server.api_key_env, "").strip()
    if not key and server.api_key_env != ServerOptions.key_env:
        raise ConfigError(
            f"{named('api_key_env')} names an environment variable that is not set: export it with the API key"
        )
    return key or None


def vllm_options(vllm: VllmSettings, images: int, gpus: int) -> VllmOptions:
    """The server of --engine vllm on so many GPUs, for conversations of at most `images` images."""
    return VllmOptions(
        images=images,
        python=vllm.vllm_python or VLLM_PYTHON,
        tensor_parallel_size=gpus,
        max_model_len=vllm.max_model_len,
    )


def cuda_device_of(device: str) -> int | None:
    """The CUDA ordinal in a `--device` value: 0 for "auto" and "cuda", None for all other values.

    Does not validate the value or check that the GPU exists; the backend does.
    """
    named = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    return int(named[1] or 0) if named else None
