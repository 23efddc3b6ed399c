"""The environment of one question: reset, step, observe."""

from dataclasses import dataclass

import numpy as np

from data.questions import Question
from envs.actions import CameraAction
from envs.library import SceneLibrary
from rendering.camera import CameraPose
from rendering.motion import MoveOutcome, move
from rendering.scene import Scene


@dataclass(frozen=True)
class Extent:
    """The room's spans along x and y and the height of its floor, world metres."""

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
    """What a question's camera sees and where it is: `view` (H, W, 3) uint8 RGB.

    `move` is the outcome of the action that led here, None for turn 0. `turn` counts observations from 0;
    with no `moves_left` the turn must answer.
    """

    view: np.ndarray
    pose: CameraPose
    extent: Extent
    move: MoveOutcome | None
    turn: int
    moves_left: int


class ExplorationEnv:
    """A camera in the scan of one question, which may move `steps` times. Scans come from a shared library.

    Errors leave the environment as it was, so that a step can be tried again.
    """

    def __init__(self, library: SceneLibrary, steps: int) -> None:
        self.library = library
        self.steps = steps
        self._scene: Scene | None = None
        self._observation: Observation | None = None

    @property
    def scene(self) -> Scene:
        """The question's scan."""
        assert self._scene is not None, "reset() comes first"
        return self._scene

    @property
    def observation(self) -> Observation:
        """The latest observation."""
        assert self._observation is not None, "reset() comes first"
        return self._observation

    def reset(self, question: Question) -> Observation:
        """Load the question's scan and stand at its first view, the best of four headings.

        Raises ScanNotFound, SceneError or RenderError.
        """
        scene, first = self.library.scene_of(question), self.library.first_view(question)
        return self.reset_at(scene, first.pose, first.image)

    def reset_at(self, scene: Scene, pose: CameraPose, view: np.ndarray | None = None) -> Observation:
        """Stand anywhere in a scene; `view` is drawn unless it is known. Raises RenderError."""
        self._observation = self._observe(scene, pose, view, None, 0)
        self._scene = scene
        return self._observation

    def step(self, action: CameraAction) -> Observation:
        """Turn, then move as far as bounds and surfaces allow, and look. `answer` and `done` are ignored.

        Raises ValueError without moves left, RenderError where the view cannot be drawn.
        """
        return self.resume(self.outcome(action))

    def resume(self, outcome: MoveOutcome, view: np.ndarray | None = None) -> Observation:
        """Take a step whose outcome is known, such as one of an interrupted run; `view` is drawn unless it is known.

        Raises as `step` does.
        """
        if not self.observation.moves_left:
            raise ValueError(f"all {self.steps} moves are made")
        self._observation = self._observe(self.scene, outcome.pose, view, outcome, self.observation.turn + 1)
        return self._observation

    def outcome(self, action: CameraAction) -> MoveOutcome:
        """Where an action would lead from here; moves nothing."""
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
