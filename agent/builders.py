"""Builds the questions, the scans, the model and the policy of a run from its configuration."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace

from agent.config import API_KEY_ENV, ConfigError, RunConfig
from agent.parts import Part, cut
from agent.planning import Plan
from agent.policies import Policy
from agent.policies.controls import CONTROLS, SCRIPTED
from agent.policies.model import ModelPolicy
from agent.policies.named import make_policy, named_policy, policy_name
from agent.policies.prompts import Prompts
from agent.policies.replies import action_format
from data.benchmarks import Benchmark, find_benchmark
from data.questions import Question, questions_asked
from data.scans import LAYOUTS, Layouts
from envs.library import CameraSettings, ScanLibrary
from models import Backend, ModelOptions, ServerOptions
from models.engines import make_backend
from models.vllm import VLLM_PYTHON, VllmOptions
from rendering.readers import reader_of
from rendering.renderers import Renderer
from rendering.scene import SceneError


def benchmark_of(config: RunConfig) -> Benchmark:
    """The benchmark that --benchmark names; raises QuestionError."""
    return find_benchmark(config.benchmark)


def layouts_of(config: RunConfig) -> Layouts:
    """The paths below the root of each dataset at which scans are searched for."""
    return {**LAYOUTS, **benchmark_of(config).scan_layouts}


def questions_of(config: RunConfig) -> list[Question]:
    """The questions of a run in the order of their file; raises QuestionError or ConfigError."""
    if config.ply is not None and config.question is not None:
        try:
            reader_of(config.ply)
        except SceneError as error:
            raise ConfigError(f"--ply {error}") from None
    return questions_asked(vars(config), benchmark_of(config))


def part_of(whole: Sequence[Question], config: RunConfig) -> Sequence[Question]:
    """The questions of `whole` to ask: all, or those of --shard; raises ConfigError if there are too few scenes."""
    if config.shard is None:
        return whole
    part = Part.parse(config.shard)
    try:
        return cut(whole, part.of)[part.number - 1]
    except ValueError as error:
        raise ConfigError(f"--shard {part}: {error}") from None


def camera_of(config: RunConfig) -> CameraSettings:
    """The settings of a configuration's views."""
    view = config.view
    return CameraSettings(view.image_size, view.focal, config.camera_height, config.camera_pitch, config.first_view)


def library_of(config: RunConfig, renderer: Renderer) -> ScanLibrary:
    """The library of a configuration's scans."""
    cache_bytes = int(config.scene_cache_gib * 2**30)
    layouts = layouts_of(config)
    return ScanLibrary(renderer, camera_of(config), config.scan_root, config.ply, config.up_axis, cache_bytes, layouts)


def with_policy(policy: Policy | None, config: RunConfig) -> tuple[Policy | None, RunConfig]:
    """The given policy or the one that --policy names, if any, and the configuration with its name and settings."""
    if policy is None and config.model.startswith(SCRIPTED) and config.policy is None:
        return control_named(config.model, config.seed), config
    if policy is None and config.policy is not None:
        policy = named_policy(config.policy, config.seed)
        if config.model not in (RunConfig.model, policy_name(policy)):
            raise ConfigError(f"--policy {config.policy} replaces the model: leave out --model {config.model}")
    if policy is None:
        return None, config
    return policy, replace(config, model=policy_name(policy), **policy.settings)


def control_named(model: str, seed: int) -> Policy:
    """The control that `--model scripted:NAME` names; raises ConfigError for any other name."""
    name = model.removeprefix(SCRIPTED)
    if name not in CONTROLS:
        known = ", ".join(f"{SCRIPTED}{each}" for each in CONTROLS)
        raise ConfigError(f"--model {model}: there is no scripted policy {name!r}: use {known}")
    return make_policy(CONTROLS[name], seed)


def model_policy(config: RunConfig, plan: Plan, prompts: Prompts) -> ModelPolicy:
    """A policy that asks the model of a configuration, which it loads; raises ModelError."""
    return ModelPolicy(backend_of(config, plan), action_format(config.constrained), prompts)


def backend_of(config: RunConfig, plan: Plan) -> Backend:
    """Load the model of a configuration, with the planned memory; raises ModelError."""
    return make_backend(config.model, model_options_of(config, plan), server_of(config), vllm_of(config))


def model_options_of(config: RunConfig, plan: Plan) -> ModelOptions:
    """The options of a configuration's model, with the planned memory."""
    return ModelOptions(
        dtype=plan.model.dtype if plan.model else config.dtype,
        device=config.device,
        max_new_tokens=config.view.max_new_tokens,
        temperature=config.temperature,
        seed=config.seed,
        attention=config.attention,
        compile=config.compile,
        kv_reuse=config.kv_reuse,
        tiles_per_view=config.tiles_per_view,
        kv_cache_bytes=plan.kv_bytes,
        planned_tokens=plan.conversation.tokens if plan.conversation else 0,
    )


def server_of(config: RunConfig) -> ServerOptions | None:
    """The servers of --engine openai with the API key from the environment; None for other engines.

    Raises ConfigError if --api-key-env names a variable that is not set.
    """
    if config.engine != "openai":
        return None
    key = os.environ.get(config.api_key_env, "").strip()
    if not key and config.api_key_env != API_KEY_ENV:
        raise ConfigError("--api-key-env names an environment variable that is not set: export it with the API key")
    return ServerOptions(
        config.base_url,
        key=key or None,
        key_env=config.api_key_env,
        timeout_s=config.request_timeout,
        constrained=config.constrained,
    )


def vllm_of(config: RunConfig) -> VllmOptions | None:
    """The options of --engine vllm; None for other engines."""
    if config.engine != "vllm":
        return None
    return VllmOptions(
        images=config.steps + 1,
        python=config.vllm_python or VLLM_PYTHON,
        tensor_parallel_size=config.tensor_parallel_size,
        memory_share=config.gpu_memory_utilization,
        max_model_len=config.max_model_len,
    )


def cuda_device_of(device: str) -> int | None:
    """The CUDA ordinal in a `--device` value: 0 for "auto" and "cuda", None for all other values.

    Does not validate the value or check that the GPU exists; the backend does.
    """
    named = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    return int(named[1] or 0) if named else None
