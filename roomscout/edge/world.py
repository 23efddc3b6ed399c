"""Where a run is: its scans, their views and their renderer, or its films."""

import re
from collections.abc import Sequence
from contextlib import suppress

from roomscout.agent.spec import WorldSpec
from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.base.text import counted
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.boxes import BoxError, KnownBoxes
from roomscout.data.questions import Question
from roomscout.data.scans import LAYOUTS, OWN_ROOTS, Layouts, ScanNotFound, scan_of
from roomscout.data.video_frames import VideoNotFound
from roomscout.data.video_protocol import VideoProtocol
from roomscout.edge.basis import Basis
from roomscout.edge.memory import frame_size
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings
from roomscout.envs.object_boxes import known_boxes
from roomscout.envs.scan_report import report_scans
from roomscout.models.checkpoint_files import view_settings_of
from roomscout.rendering.ply import has_splats
from roomscout.rendering.renderers.choice import best_renderer
from roomscout.rendering.renderers.splats import why_no_gsplat


def world_of(basis: Basis, chooses_renderer: bool = True) -> WorldSpec:
    """Where the scans are, and how views are drawn; without `chooses_renderer`, by the one that is asked for."""
    settings = basis.settings
    ply = basis.request.ply
    layouts = layouts_of(settings.benchmark)
    own_focal = view_settings_of(settings.model).focal_at(settings.view_size[0])
    focal = own_focal if settings.focal == "auto" else settings.focal
    cuda_device = cuda_device_of(settings.device)
    renderer = settings.renderer
    if basis.video is not None:
        renderer = ""
    elif renderer == "auto" and chooses_renderer:
        has_gaussians = _has_splats(basis, layouts)
        renderer = _splat_renderer() if has_gaussians else best_renderer(cuda_device)
    return WorldSpec(
        scan_root=settings.scan_root,
        ply=ply,
        layouts=layouts,
        up_axis=settings.up_axis,
        scale=settings.scale,
        camera=CameraSettings(
            settings.view_size, focal, settings.camera_height, settings.camera_pitch, see=settings.see
        ),
        renderer=renderer,
        cuda_device=cuda_device,
        films=None if basis.video is None else _films(basis, basis.video),
        makes_scans=ply is None and basis.video is None and basis.questions.benchmark.make_scans is not None,
        make_library=basis.request.make_library,
    )


def layouts_of(benchmark: str) -> Layouts:
    """The paths below the root of each dataset at which scans are searched for; raises QuestionError."""
    record = find_benchmark(benchmark)
    own_roots = {OWN_ROOTS: (str(record.folder()),)} if record.folder else {}
    return {**LAYOUTS, **record.scan_layouts, **own_roots}


def cuda_device_of(device: str) -> int | None:
    """The CUDA ordinal of a device: 0 for "auto" and "cuda", None for all others but "cuda:N"."""
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    return int(match[1] or 0) if match else None


def _has_splats(basis: Basis, layouts: Layouts) -> bool:
    """Whether any of the scans consists of Gaussian splats."""
    for question in {question.scene: question for question in basis.questions.asked.questions}.values():
        with suppress(ScanNotFound):
            path = basis.request.ply or scan_of(question, basis.settings.scan_root, layouts)
            if has_splats(path):
                return True
    return False


def _splat_renderer() -> str:
    return "splats" if why_no_gsplat() else "gsplat"


def _films(basis: Basis, video: VideoProtocol) -> FilmSettings:
    """Which frames a run on videos shows; raises ConfigError without the package that reads videos."""
    settings = basis.settings
    root = settings.videos
    assert root is not None, "a run on videos has a folder of them"
    backend = None if basis.model is None else basis.model.backend
    size = frame_size(settings.view_size, basis.checkpoint, backend)
    scenes = {question.scene for question in basis.questions.here}
    if any((root / dataset / scene).is_dir() for dataset, scene in scenes):
        return FilmSettings(root, "", settings.images_a_turn, size)
    require("--videos", "av", error=ConfigError)
    return FilmSettings(root, video.file, settings.images_a_turn, size)


def require_scans(basis: Basis, world: WorldSpec) -> None:
    """Log how many scenes have a scan, or a video; for a new run, raise ScanNotFound if none has, and ConfigError if
    boxes are told and no scan has known ones."""
    if world.makes_scans or world.make_library is not None:
        return
    questions = basis.questions.here
    required = basis.request.folder is None and not basis.request.previews
    if world.ply is None or world.films is not None:
        missing = world.missing(questions)
        scenes = {question.scene for question in questions}
        if required and len(missing) == len(scenes):
            first = next(iter(missing.values()))
            if world.films is not None:
                raise VideoNotFound(first, setting="videos")
            what = f"{world.scan_root} has no scan of {counted(len(scenes), 'scene')} asked about"
            raise ScanNotFound(f"{what}: it takes the folder with the scans. {first}", setting="scan_root")
        what = "scan" if world.films is None else "video"
        report_scans(questions, missing, what)
    if basis.settings.given and required:
        _require_boxes(questions, world)


def _require_boxes(questions: Sequence[Question], world: WorldSpec) -> None:
    """Raise ConfigError, which names the first scan, if no scan of these questions has known boxes of its objects."""
    boxes = KnownBoxes()
    errors = list[BoxError]()
    for question in {question.scene: question for question in questions}.values():
        try:
            path = world.ply or scan_of(question, world.scan_root, world.layouts)
            known_boxes(boxes, path, question.scene_name)
            return
        except BoxError as error:
            errors.append(error)
        except ScanNotFound:
            continue
    if errors:
        raise ConfigError(f"--given: {errors[0]}")
