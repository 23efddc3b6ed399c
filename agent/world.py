"""Where questions happen: finds and shares scans, takes first views, moves cameras and draws what they see."""

from collections import OrderedDict
from pathlib import Path

import numpy as np

from agent.actions import CameraAction
from agent.config import RunConfig
from data.questions import Question
from data.scans import find_scan
from rendering.camera import CameraPose, Intrinsics
from rendering.motion import MoveOutcome, move
from rendering.renderers import Renderer
from rendering.scene import Scene, SceneCache
from rendering.views import FirstView, first_view

FIRST_VIEWS_KEPT = 32


class World:
    """The scans of a run behind one renderer; scans and first views are shared by all questions of a scan."""

    def __init__(self, config: RunConfig, renderer: Renderer):
        self.renderer = renderer
        self.intrinsics = Intrinsics(*config.image_size, config.focal)
        self._config = config
        self._scenes = SceneCache(int(config.scene_cache_gib * 2**30), up_axis=config.up_axis)
        self._first_views: OrderedDict[Path, FirstView] = OrderedDict()

    def scan_of(self, question: Question) -> Path:
        """The question's scan file; raises ScanNotFound."""
        return self._config.ply or find_scan(self._config.scan_root, question.dataset, question.scene_name)

    def scene_of(self, question: Question) -> Scene:
        """The question's scan, loaded; raises ScanNotFound or SceneError."""
        return self._scenes.get(self.scan_of(question))

    def first_view(self, question: Question) -> FirstView:
        """View 0 of the question's scan, the same for every question of that scan; raises RenderError too."""
        path = self.scan_of(question)
        if path not in self._first_views:
            config = self._config
            self._first_views[path] = first_view(
                self.scene_of(question),
                self.renderer,
                self.intrinsics,
                config.camera_height,
                config.camera_pitch,
                config.first_view,
            )
            if len(self._first_views) > FIRST_VIEWS_KEPT:
                self._first_views.popitem(last=False)
        return self._first_views[path]

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
        """What the camera sees, (H, W, 3) uint8; raises RenderError."""
        return self.renderer.render(scene, pose, self.intrinsics)
