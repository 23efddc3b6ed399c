"""Where questions happen: finds and shares scans, takes first views, moves cameras and draws what they see."""

from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from agent.actions import CameraAction
from agent.config import RunConfig
from data.questions import Question
from data.scans import ScanNotFound, find_scan
from rendering.camera import CameraPose, Intrinsics
from rendering.motion import MoveOutcome, move
from rendering.renderers import Renderer
from rendering.scene import Scene, SceneCache
from rendering.views import FirstView, first_view

FIRST_VIEWS_KEPT = 32
SCANS_AHEAD = 2


class World:
    """The scans of a run behind one renderer; scans and first views are shared by all questions of a scan."""

    def __init__(self, config: RunConfig, renderer: Renderer):
        self.renderer = renderer
        self.intrinsics = Intrinsics(*config.image_size, config.focal)
        self._config = config
        self._scenes = SceneCache(int(config.scene_cache_gib * 2**30), up_axis=config.up_axis)
        self._first_views: OrderedDict[Path, Future[FirstView]] = OrderedDict()
        self._loader = ThreadPoolExecutor(1, thread_name_prefix="scan-loader")

    def close(self) -> None:
        """Stop loading ahead; waits for the scan that is being loaded."""
        self._loader.shutdown(cancel_futures=True)

    def scan_of(self, question: Question) -> Path:
        """The question's scan file; raises ScanNotFound."""
        return self._config.ply or find_scan(self._config.scan_root, question.dataset, question.scene_name)

    def scene_of(self, question: Question) -> Scene:
        """The question's scan, loaded; raises ScanNotFound or SceneError."""
        return self._scenes.get(self.scan_of(question))

    def first_view(self, question: Question) -> FirstView:
        """View 0 of the question's scan, the same for every question of that scan.

        Raises ScanNotFound, SceneError or RenderError, for every question of the scan alike.
        """
        return self._first_view(self.scan_of(question)).result()

    def load_ahead(self, questions: Iterable[Question]) -> None:
        """Begin to load the next scans and to take their first views in the background; errors wait for their use."""
        paths: dict[Path, None] = {}
        for question in questions:
            try:
                paths[self.scan_of(question)] = None
            except ScanNotFound:  # told to the question when its turn comes
                continue
        for path in list(paths)[:SCANS_AHEAD]:
            self._first_view(path)

    def _first_view(self, path: Path) -> Future[FirstView]:
        if path not in self._first_views:
            self._first_views[path] = self._loader.submit(self._take_first_view, path)
            if len(self._first_views) > FIRST_VIEWS_KEPT:
                self._first_views.popitem(last=False)
        return self._first_views[path]

    def _take_first_view(self, path: Path) -> FirstView:
        config = self._config
        return first_view(
            self._scenes.get(path),
            self.renderer,
            self.intrinsics,
            config.camera_height,
            config.camera_pitch,
            config.first_view,
        )

    def move(self, scene: Scene, pose: CameraPose, action: CameraAction) -> MoveOutcome:
        """Carry out an action as far as the scene lets it."""
        return move(
            scene,
            pose,
            rotation_deg=action.rotation_angle_degrees,
            forward_m=action.forward_meters,
            left_m=action.left_meters,
            up_m=action.z_delta_meters,
        )

    def view(self, scene: Scene, pose: CameraPose) -> np.ndarray:
        """What the camera sees, (H, W, 3) uint8; raises RenderError. Safe to call from several threads."""
        return self.renderer.render(scene, pose, self.intrinsics)
