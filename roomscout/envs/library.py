"""Where questions take place: scans of files, also as a run recorded them, or a scene in memory, and views of them."""

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Protocol

from roomscout import UpAxis
from roomscout.base.shots import VIEW
from roomscout.base.waiting import step
from roomscout.data.boxes import BoxError, KnownBoxes, ObjectBox
from roomscout.data.questions import Question
from roomscout.data.scan_frames import ScanFrame, Start
from roomscout.data.scans import LAYOUTS, Layouts, ScanRecord, scan_of, scan_sha256
from roomscout.envs.object_boxes import known_boxes, require_same_frame
from roomscout.envs.starts import start_pose
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.registry import RENDERERS
from roomscout.rendering.renderers import Renderer, RenderError
from roomscout.rendering.scene import Scene, SceneCache, SceneError, load_scene
from roomscout.rendering.views import FirstView, first_view

FIRST_VIEWS_KEPT = 32


@dataclass(frozen=True)
class CameraSettings:
    """Settings of all views of a run."""

    image_size: tuple[int, int]  # width and height in pixels
    focal_px: float  # focal length in pixels
    height_m: float  # of the camera above the floor at the start
    pitch_deg: float  # of the camera at the start, above the horizon
    see: tuple[str, ...] = (VIEW,)  # the names of the images of an observation

    @property
    def intrinsics(self) -> Intrinsics:
        """The camera matrix of all views."""
        return Intrinsics(*self.image_size, self.focal_px)


class SceneLibrary(Protocol):
    """The scene and the first view of each question, and the renderer of all views, for calls from many threads."""

    camera: CameraSettings
    renderer: Renderer
    cache_bytes: float  # how much memory scans may take that no question in progress uses

    def scene_of(self, question: Question) -> Scene:
        """The question's scene; raises ScanNotFound or SceneError."""

    def first_view(self, question: Question) -> FirstView:
        """View 0 of the question; raises ScanNotFound, SceneError or RenderError."""

    def scan_file(self, question: Question) -> ScanRecord | None:
        """The record of the question's scan file, None for a scene in memory alone; ScanNotFound or SceneError."""
        return None

    def boxes_of(self, question: Question) -> tuple[ObjectBox, ...]:
        """The boxes of the objects in the question's scene, at least one; raises ScanNotFound or SceneError."""


def draw_first_view(scene: Scene, renderer: Renderer, camera: CameraSettings) -> FirstView:
    """The best of four headings near the middle of a scene; raises RenderError."""
    try:
        return first_view(scene, renderer, camera.intrinsics, camera.height_m, camera.pitch_deg)
    except MemoryError as error:
        size = " x ".join(map(str, camera.image_size))
        raise RenderError(
            f"a view of {size} pixels does not fit into memory: use smaller images", setting="image_size"
        ) from error


def draw_start(scene: Scene, start: Start, renderer: Renderer, camera: CameraSettings) -> FirstView:
    """The view from a question's start; raises SceneError for a start outside the scan, or RenderError."""
    pose = start_pose(scene, start, camera.height_m, camera.pitch_deg)
    return FirstView.at(pose, scene, renderer, camera.intrinsics)


def cache_for(renderer: Renderer, most_bytes: int, up_axis: UpAxis = "auto", scale: float = 1.0) -> SceneCache:
    """A cache of scenes for a renderer: where it draws no splats, they are points."""
    draws_splats = renderer.name in RENDERERS and RENDERERS[renderer.name].splats
    return SceneCache(most_bytes, up_axis, scale, as_points=not draws_splats)


class ScanLibrary:
    """Loads scans below `scan_root`, or `ply` for all questions, and renders their views, one first view for all
    questions about a scan without a start. `scenes` keeps scans beside those in use."""

    def __init__(
        self,
        renderer: Renderer,
        camera: CameraSettings,
        scan_root: Path = Path("scans"),
        ply: Path | None = None,
        layouts: Layouts = LAYOUTS,
        scenes: SceneCache | None = None,
    ) -> None:
        scenes = scenes or cache_for(renderer, 2**32)
        self.renderer = renderer
        self.camera = camera
        self.cache_bytes: float = scenes.max_bytes
        self._scan_root = scan_root
        self._ply = ply
        self._layouts = layouts
        self._scenes = scenes
        self._sha256: dict[Path, str] = {}
        self._paths: dict[tuple[str, str], Path] = {}
        self._boxes: dict[tuple[Path, str, ScanFrame], tuple[ObjectBox, ...]] = {}
        self._known_boxes = KnownBoxes()
        self._boxes_lock = Lock()
        self._first_views: OrderedDict[Hashable, Future[FirstView]] = OrderedDict()
        self._views_lock = Lock()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="scan-loader")

    def close(self) -> None:
        """Stop preloading; waits for the scan that is being loaded."""
        self._loader.shutdown(cancel_futures=True)

    def scan_of(self, question: Question) -> Path:
        """The path of the question's scan file; raises ScanNotFound."""
        if self._ply is not None:
            return self._ply
        if question.scene not in self._paths:
            self._paths[question.scene] = scan_of(question, self._scan_root, self._layouts)
        return self._paths[question.scene]

    def scene_of(self, question: Question) -> Scene:
        """The question's scan, loaded; raises ScanNotFound or SceneError."""
        return self._scenes.get(self.scan_of(question), question.up_axis, question.scale)

    def scan_file(self, question: Question) -> ScanRecord:
        """The record of the question's scan file; raises ScanNotFound or SceneError."""
        path = self.scan_of(question)
        return ScanRecord(str(path), self._fingerprint(path), **vars(question.frame))

    def boxes_of(self, question: Question) -> tuple[ObjectBox, ...]:
        """The boxes of the objects in the question's scan; raises ScanNotFound, and SceneError if none are known."""
        path = self.scan_of(question)
        name = question.scene_name
        key = (path, name, question.frame)
        with self._boxes_lock:
            if key not in self._boxes:
                try:
                    boxes = known_boxes(self._known_boxes, path, name)
                    require_same_frame(self.scene_of(question), boxes, path, name)
                except BoxError as error:
                    raise SceneError(str(error)) from None
                self._boxes[key] = boxes
            return self._boxes[key]

    def first_view(self, question: Question) -> FirstView:
        """View 0 of the question: that from its start, or that of its scan, which all questions about it share. Raises
        ScanNotFound, SceneError or RenderError, a failure for each of these questions."""
        return self._first_view(question).result()

    def load_ahead(self, questions: Iterable[Question]) -> None:
        """Load scans and render first views in the background; errors but ScanNotFound are raised on use."""
        for question in questions:
            self._first_view(question)

    def _first_view(self, question: Question) -> Future[FirstView]:
        path = self.scan_of(question)
        place = (path, question.frame, question.start)
        with self._views_lock:
            if place not in self._first_views:
                self._first_views[place] = self._loader.submit(
                    copy_context().run, self._load_first_view, path, question.frame, question.start
                )
                if len(self._first_views) > FIRST_VIEWS_KEPT:
                    self._first_views.popitem(last=False)
            return self._first_views[place]

    def _load_first_view(self, path: Path, frame: ScanFrame, start: Start | None) -> FirstView:
        with step("Loading the scan", path.name):
            scene = self._scenes.get(path, frame.up_axis, frame.scale)
            self._fingerprint(path)  # hash the file now, while it is in the page cache
        with step("Drawing the first view"):
            if start is not None:
                return draw_start(scene, start, self.renderer, self.camera)
            return draw_first_view(scene, self.renderer, self.camera)

    def _fingerprint(self, path: Path) -> str:
        if path not in self._sha256:
            try:
                self._sha256[path] = scan_sha256(path)
            except OSError as error:
                raise SceneError(f"{path} cannot be read ({error.strerror or error})") from error
        return self._sha256[path]


@dataclass(eq=False)
class OneSceneLibrary(SceneLibrary):
    """A scene in memory. Each question starts at its own pose."""

    scene: Scene  # of all questions
    starts: Mapping[str, CameraPose]  # by question id
    renderer: Renderer  # of all views
    camera: CameraSettings  # of all views
    cache_bytes: float = math.inf  # the scene is there anyway

    def scene_of(self, question: Question) -> Scene:
        """The scene, whatever the question."""
        return self.scene

    def first_view(self, question: Question) -> FirstView:
        """The view from the question's start, raises RenderError."""
        return FirstView.at(self.starts[question.id], self.scene, self.renderer, self.camera.intrinsics)

    def boxes_of(self, question: Question) -> tuple[ObjectBox, ...]:
        """Raises SceneError: no boxes are known."""
        raise SceneError(f"{self.scene.name}: the boxes of its objects are not known: leave them out", setting="given")


def require_recorded(path: Path, scan: ScanRecord) -> None:
    """Raise SceneError unless the file has the contents of the scan that a run recorded."""
    try:
        changed = scan_sha256(path) != scan.sha256
    except FileNotFoundError:
        raise SceneError(f"the scan {path} is missing: restore it") from None
    except OSError as error:
        raise SceneError(f"the scan {path} cannot be read ({error.strerror or error})") from None
    if changed:
        raise SceneError(f"{path} has changed since the run, or is another scan: restore the one that the run explored")


def recorded_scene(scan: ScanRecord, up_axis: UpAxis, scale: float) -> Scene:
    """Load a scan that a run recorded, with its unit and up axis; SceneError if it is missing or has changed."""
    require_recorded(Path(scan.file), scan)
    return load_scene(scan.file, *scan.frame.over(up_axis, scale))
