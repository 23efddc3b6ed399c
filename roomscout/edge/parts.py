"""The parts of a run that single settings decide."""

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import benchmark_names, find_benchmark
from roomscout.data.questions import Question, Selection, questions_asked
from roomscout.data.scans import LAYOUTS, OWN_ROOTS, Layouts, ScanNotFound, scan_of
from roomscout.data.video_frames import FrameSize
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.memory import MemoryPlan
from roomscout.edge.sections import ModelSettings, ServerSettings
from roomscout.envs.films import FilmSettings
from roomscout.models import ModelOptions, ServerOptions
from roomscout.rendering.ply import has_splats
from roomscout.rendering.readers import reader_of
from roomscout.rendering.renderers.splats import why_no_gsplat
from roomscout.rendering.scene import SceneError


def asked_by(settings: Mapping[str, Any]) -> Selection:
    """The questions that these settings name, and all those of their source; raises QuestionError."""
    return questions_asked(settings, find_benchmark(settings["benchmark"]))


def require_scan_file(ply: Path) -> None:
    """Raise ConfigError if the file of --ply is not a scan of a kind that can be read."""
    try:
        reader_of(ply)
    except SceneError as error:
        raise ConfigError(f"--ply {error}") from None


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


def video_protocol(benchmark: Benchmark) -> VideoProtocol:
    """The protocol of the benchmark on frames of a video; raises ConfigError if it has none."""
    if benchmark.video is not None:
        return benchmark.video
    known = ", ".join(name for name in benchmark_names() if find_benchmark(name).video)
    raise ConfigError(
        f"--present video: {benchmark.title} has no protocol on videos; those that have one are {known}, and a "
        "Benchmark record of yours whose field video is set"
    )


def films_of(
    root: Path | None, frames: int, video: VideoProtocol, questions: Sequence[Question], size: FrameSize
) -> FilmSettings:
    """Which frames a run on videos shows, and of which size; raises ConfigError without the package that reads them."""
    assert root is not None, "a run on videos has a folder of them"
    if any((root / dataset / scene).is_dir() for dataset, scene in {each.scene for each in questions}):
        return FilmSettings(root, "", frames, size)
    require("--videos", "av", error=ConfigError)
    return FilmSettings(root, video.file, frames, size)


def model_options(settings: ModelSettings, memory: MemoryPlan) -> ModelOptions:
    """The options of a model with the planned memory."""
    return ModelOptions(
        dtype=settings.dtype,
        device=settings.device,
        quantize=settings.quantize,
        memory_fraction=settings.memory_fraction,
        max_new_tokens=int(settings.max_new_tokens),
        temperature=settings.temperature,
        seed=settings.seed,
        compile=settings.compile,
        tiles_per_view=settings.tiles_per_view,
        logprobs=settings.logprobs,
        revision=settings.revision,
        adapter=settings.adapter,
        kv_cache_bytes=memory.kv_bytes,
        planned_tokens=memory.conversation.tokens if memory.conversation else 0,
    )


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
