"""What decides in a run, how much memory it takes, and which questions take their turns together."""

import json
import os
from dataclasses import fields
from itertools import product

from roomscout.agent.spec import EngineSpec, ScheduleSpec
from roomscout.agent.state import Rules
from roomscout.base.errors import ConfigError
from roomscout.base.text import counted
from roomscout.edge.basis import Basis
from roomscout.edge.memory import MemoryPlan, Planner, at_once, batch_words
from roomscout.edge.sections import ModelSettings, ServerSettings
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.vllm import VllmOptions


def memory_of(basis: Basis, rules: Rules) -> MemoryPlan:
    """The batch size and memory of the run; raises ModelError."""
    settings = basis.settings
    questions = basis.questions
    request = basis.request
    if request.caller_replies:
        return MemoryPlan(1, "the caller has the replies")
    if request.run is not None and not request.retry_failed:
        done = {(row.id, row.sample) for row in request.run.rows}
        wanted = product((question.id for question in questions.here), range(1, settings.samples + 1))
        if done.issuperset(wanted):
            return MemoryPlan(1, "every question is finished")
    if basis.policy is not None:
        few = min(settings.max_batch_size, questions.episodes)
        size = few if settings.batch_size == "auto" else settings.batch_size
        why = f"{batch_words(size, questions.episodes)}{settings.model} needs no memory for keys and values"
        return MemoryPlan(size, why)
    planner = Planner(settings, basis.checkpoint, questions, rules.prompts, basis.video, rules.native, request.previews)
    if basis.checkpoint is None:
        at_a_time = at_once(settings.concurrency, questions)
        where = " ".join(settings.base_url)
        what = counted(at_a_time, "question")
        longest = planner.conversation() if request.previews else None
        return MemoryPlan(at_a_time, f"{what} at a time at {where}, which forms the batches", conversation=longest)
    return planner.plan()


def engine_of(basis: Basis, memory: MemoryPlan) -> EngineSpec:
    """What decides, with the options of its engine; raises ConfigError if the key of a server is missing."""
    settings = basis.settings
    images = settings.most_shown + basis.questions.pictures
    if basis.policy is not None:
        return EngineSpec(settings.model, basis.policy, device=settings.device)
    if basis.request.caller_replies:
        return EngineSpec(settings.model)
    server = server_options(settings, settings.constrained, images) if settings.engine == "openai" else None
    vllm = None
    if settings.engine == "vllm":
        vllm = VllmOptions(images=images, tensor_parallel_size=memory.tensor_parallel)
    options = model_options(settings, memory)
    return EngineSpec(settings.model, None, options, server, vllm, settings.device)


def model_options(settings: ModelSettings, memory: MemoryPlan) -> ModelOptions:
    """The options of a model, which have the names of their settings, with the planned memory."""
    names = [option.name for option in fields(ModelOptions) if hasattr(settings, option.name)]
    options = {name: getattr(settings, name) for name in names}
    pairs = (parameter.split("=") for parameter in settings.generation)
    options["generation"] = {name: json.loads(value) for name, value in pairs}
    tokens = memory.conversation.tokens if memory.conversation else 0
    return ModelOptions(**options, kv_cache_bytes=memory.kv_bytes, planned_tokens=tokens)


def server_options(settings: ServerSettings, constrained: bool, images: int) -> ServerOptions:
    """The servers of --engine openai, with the API key of the environment; ConfigError if its variable is not set."""
    key = os.environ.get(settings.api_key_env, "").strip()
    if not key and settings.api_key_env != ServerOptions.key_env:
        raise ConfigError(
            f"--api-key-env {settings.api_key_env}: this environment variable is not set: export it with the API key"
        )
    return ServerOptions(
        settings.base_url,
        key=key or None,
        key_env=settings.api_key_env,
        timeout_s=settings.request_timeout,
        constrained=constrained,
        extra_body=json.loads(settings.extra_body or "{}"),
        images=images,
    )


def schedule_of(basis: Basis, memory: MemoryPlan) -> ScheduleSpec:
    """Turns per question, and which questions take theirs together."""
    settings = basis.settings
    few = None if settings.concurrency == "auto" else settings.concurrency
    if few is None and memory.model is not None and memory.model.device.startswith("cpu"):
        few = memory.batch_size  # on a CPU, fewer calls are not worth the padding of batches of different turns
    turns = settings.steps + 1
    return ScheduleSpec(
        steps=settings.most_moves if settings.on_video else settings.steps,
        batch_size=memory.batch_size,
        max_batched_turns=turns if settings.max_batched_turns == "all" else min(settings.max_batched_turns, turns),
        refill=settings.refill,
        concurrency=few,
        anytime=settings.anytime,
    )
