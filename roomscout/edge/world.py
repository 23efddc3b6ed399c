"""Where a run is: its scans, their views and their renderer, or its films."""

import re
from collections.abc import Sequence

from roomscout.agent.spec import WorldSpec
from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.base.text import counted
from roomscout.data.benchmark import VideoProtocol
from roomscout.data.boxes import BoxError, KnownBoxes
from roomscout.data.questions import Question
from roomscout.data.scans import ScanNotFound, layouts_of, report_scans, scans_there
from roomscout.data.video_frames import VideoNotFound
from roomscout.edge.basis import Basis
from roomscout.edge.memory import frame_size
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings
from roomscout.envs.object_boxes import known_boxes
from roomscout.rendering.ply import has_splats
from roomscout.rendering.renderers.choice import best_renderer
from roomscout.rendering.renderers.splats import why_no_gsplat


def world_of(basis: Basis, chooses_renderer: bool = True) -> WorldSpec:
    """Where the scans are, and how views are drawn; without `chooses_renderer`, by the one that is asked for."""
    settings = basis.settings
    ply = basis.request.ply
    own_focal = basis.views.focal_at(settings.view_size[0])
    focal = own_focal if settings.focal == "auto" else settings.focal
    cuda_device = cuda_device_of(settings.device)
    films = None if basis.video is None else _films(basis, basis.video)
    layouts = layouts_of(basis.questions.benchmark)
    renderer = settings.renderer
    if basis.video is not None:
        renderer = ""
    elif renderer == "auto" and chooses_renderer:
        found = scans_there(basis.questions.asked.questions, settings.scan_root, layouts)
        files = (path for _, path in found) if ply is None else [ply]
        renderer = _splat_renderer() if any(map(has_splats, files)) else best_renderer(cuda_device)
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
        films=films,
        makes_scans=ply is None and basis.video is None and basis.questions.benchmark.make_scans is not None,
        make_library=basis.request.make_library,
    )


def cuda_device_of(device: str) -> int | None:
    """The CUDA ordinal of a device: 0 for "auto" and "cuda", None for all others but "cuda:N"."""
    match = re.fullmatch(r"auto|cuda(?::(\d+))?", device)
    return int(match[1] or 0) if match else None


def _splat_renderer() -> str:
    return "splats" if why_no_gsplat() else "gsplat"


def _films(basis: Basis, video: VideoProtocol) -> FilmSettings:
    """Which frames a run on videos shows; raises ConfigError without the package that reads videos."""
    settings = basis.settings
    root = settings.videos
    assert root is not None, "a run on videos has a folder of them"
    views = None if basis.model is None else getattr(basis.model.backend, "views", None)
    if basis.checkpoint is not None:
        views = basis.checkpoint.family.views
    size = frame_size(settings.view_size, views)
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
    required = basis.facts is None and not basis.request.previews
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
    found = scans_there(questions, world.scan_root, world.layouts)
    for question, path in found if world.ply is None else [(question, world.ply) for question in questions[:1]]:
        try:
            known_boxes(boxes, path, question.scene_name)
            return
        except BoxError as error:
            errors.append(error)
    if errors:
        raise ConfigError(f"--given: {errors[0]}")
