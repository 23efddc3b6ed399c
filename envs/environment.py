"""The environment of one question: reset, step, observe."""

from dataclasses import dataclass

import numpy as np

from roomscout.data.questions import Question
from roomscout.envs.actions import CameraAction
from roomscout.envs.library import SceneLibrary
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.motion import MoveOutcome, move
from roomscout.rendering.scene import Scene


@dataclass(frozen=True)
class Extent:
    """The room's ranges along x and y, and the height of its floor, in world metres."""

    x_m: tuple[float, float]
    y_m: tuple[float, float]
    floor_z_m: float

    @classmethod
    def of(cls, scene: Scene) -> "Extent":
        """The extent of a scene's robust bounds."""
        (x0, y0, _), (x1, y1, _) = scene.bounds.lower, scene.bounds.upper
        return cls((float(x0), float(x1)), (float(y0), float(y1)), scene.floor_z_m)


@dataclass(frozen=True, eq=False)
class Observation:
    """The camera's pose and its `view` (H, W, 3) uint8 RGB.

    `move` is the outcome of the previous action, None for turn 0. `turn` counts observations from 0. If `moves_left` is
    0, the next action must answer.
    """

    view: np.ndarray
    pose: CameraPose
    extent: Extent
    move: MoveOutcome | None
    turn: int
    moves_left: int


class ExplorationEnv:
    """Explores the scan of one question with up to `steps` moves. Scans come from a shared library.

    Errors leave the environment unchanged, so that a step can be retried.
    """

    def __init__(self, library: SceneLibrary, steps: int) -> None:
        self.library = library
        self.steps = steps
        self._scene: Scene | None = None
        self._observation: Observation | None = None

    @property
    def scene(self) -> Scene:
        """The question's scan."""
        assert self._scene is not None, "call reset() first"
        return self._scene

    @property
    def observation(self) -> Observation:
        """The latest observation."""
        assert self._observation is not None, "call reset() first"
        return self._observation

    def reset(self, question: Question) -> Observation:
        """Load the question's scene and start at its first view.

        Raises ScanNotFound, SceneError or RenderError.
        """
        scene, first = self.library.scene_of(question), self.library.first_view(question)
        return self.reset_at(scene, first.pose, first.image)

    def reset_at(self, scene: Scene, pose: CameraPose, view: np.ndarray | None = None) -> Observation:
        """Start at any pose in a scene; renders the view if `view` is None. Raises RenderError."""
        self._observation = self._observe(scene, pose, view, None, 0)
        self._scene = scene
        return self._observation

    def step(self, action: CameraAction) -> Observation:
        """Turn, move as far as bounds and surfaces allow, and render the view. Ignores `answer` and `done`.

        Raises ValueError if no moves are left, RenderError if the view cannot be rendered.
        """
        return self.resume(self.outcome(action))

    def resume(self, outcome: MoveOutcome, view: np.ndarray | None = None) -> Observation:
        """Take a step whose outcome is known, as when resuming a run; renders the view if `view` is None.

        Raises what `step` raises.
        """
        if not self.observation.moves_left:
            raise ValueError(f"no moves left: all {self.steps} moves are used")
        self._observation = self._observe(self.scene, outcome.pose, view, outcome, self.observation.turn + 1)
        return self._observation

    def outcome(self, action: CameraAction) -> MoveOutcome:
        """The outcome of an action, without taking it."""
        return move(
            self.scene,
            self.observation.pose,
            rotation_deg=action.rotation_angle_degrees,
            forward_m=action.forward_meters,
            left_m=action.left_meters,
            up_m=action.z_delta_meters,
        )

    def _observe(
        self, scene: Scene, pose: CameraPose, view: np.ndarray | None, outcome: MoveOutcome | None, turn: int
    ) -> Observation:
        view = self.library.view(scene, pose) if view is None else view
        return Observation(view, pose, Extent.of(scene), outcome, turn, self.steps - turn)
