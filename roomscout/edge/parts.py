"""The parts of a run that single settings decide."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from roomscout.base.errors import ConfigError
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import Question, Selection, questions_asked
from roomscout.data.scans import LAYOUTS, OWN_ROOTS, Layouts, ScanNotFound, scan_of
from roomscout.edge.memory import MemoryPlan
from roomscout.edge.sections import ModelSettings, ServerSettings
from roomscout.models import ModelOptions, ServerOptions
from roomscout.rendering.ply import has_splats
from roomscout.rendering.renderers.splats import why_no_gsplat


def asked_by(settings: Mapping[str, Any]) -> Selection:
    """The questions that these settings name, and all those of their source; raises QuestionError."""
    return questions_asked(settings, find_benchmark(settings["benchmark"]))


def layouts_of(benchmark: str) -> Layouts:
    """The paths below the root of each dataset at which scans are searched for; raises QuestionError."""
    record = find_benchmark(benchmark)
    own_roots = {OWN_ROOTS: (str(record.folder()),)} if record.folder else {}
    return {**LAYOUTS, **record.scan_layouts, **own_roots}


def renderer_of(
    asked: str, questions: Sequence[Question], scan_root: Path, ply: Path | None, layouts: Layouts
) -> str | None:
    """The renderer to start, of Gaussian splats if any of the scans consists of them; None for the best that works."""
    if asked != "auto":
        return asked
    for question in {question.scene: question for question in questions}.values():
        with suppress(ScanNotFound):
            if has_splats(ply or scan_of(question, scan_root, layouts)):
                return "splats" if why_no_gsplat() else "gsplat"
    return None


def model_options(settings: ModelSettings, memory: MemoryPlan) -> ModelOptions:
    """The options of a model, which have the names of their settings, with the planned memory."""
    options = {each.name: getattr(settings, each.name) for each in fields(ModelOptions) if hasattr(settings, each.name)}
    pairs = (each.split("=") for each in settings.generation)
    options["generation"] = {name: json.loads(value) for name, value in pairs}
    tokens = memory.conversation.tokens if memory.conversation else 0
    return ModelOptions(**options, kv_cache_bytes=memory.kv_bytes, planned_tokens=tokens)


def server_options(settings: ServerSettings, constrained: bool, images: int) -> ServerOptions:
    """The servers of --engine openai with the API key from the environment; raises ConfigError if its variable is not
    set."""
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


def cuda_device_of(device: str) -> int | None:
    """The CUDA ordinal in a `--device` value: 0 for "auto" and "cuda", None for all other values."""
    found = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    return int(found[1] or 0) if found else None
