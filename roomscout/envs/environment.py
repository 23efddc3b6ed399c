"""The environment of one question: reset, step, observe."""

from dataclasses import dataclass, replace

import numpy as np

from roomscout.base.shots import PICTURE, Shot
from roomscout.data.boxes import ObjectBox
from roomscout.data.questions import Question
from roomscout.envs.actions import CameraMove
from roomscout.envs.library import SceneLibrary
from roomscout.envs.object_boxes import in_view, nearest_first
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import BOUNDS_PERCENTILES
from roomscout.rendering.modalities import draw_shots
from roomscout.rendering.modalities.modality import SCAN_ORIGIN, Sight
from roomscout.rendering.motion import MoveOutcome, move
from roomscout.rendering.scene import Scene
from roomscout.rendering.storeys import Storey

MAX_POINTS = 200_000  # points of a cloud that suffice to tell its extent to a centimetre


@dataclass(frozen=True)
class Extent:
    """The ranges along x and y of the storey under a camera, and the height of its floor, metres."""

    x_m: tuple[float, float]
    y_m: tuple[float, float]
    floor_z_m: float

    @classmethod
    def of(cls, storey: Storey) -> "Extent":
        """The extent of a storey's robust bounds, in the scan's coordinates."""
        x0, y0, _ = storey.bounds.lower
        x1, y1, _ = storey.bounds.upper
        return cls((float(x0), float(x1)), (float(y0), float(y1)), storey.floor_z_m)

    @classmethod
    def seen_from(cls, storey: Storey, start: CameraPose) -> "Extent":
        """The same extent in metres ahead of a pose (x) and to its left (y), as `CameraPose.relative` counts."""
        away = storey.points[:: 1 + len(storey.points) // MAX_POINTS] - start.position
        x0, x1 = np.percentile(away @ start.forward, BOUNDS_PERCENTILES)
        y0, y1 = np.percentile(away @ start.left, BOUNDS_PERCENTILES)
        return cls((float(x0), float(x1)), (float(y0), float(y1)), storey.floor_z_m)


@dataclass(frozen=True, eq=False)
class Observation:
    """What an agent is given for its next action."""

    images: tuple[Shot, ...]  # of the turn, the view first
    pose: CameraPose  # of the camera, in the scan's coordinates
    extent: Extent  # of the storey under the camera, in the scan's coordinates
    move: MoveOutcome | None  # the outcome of the previous action; None in turn 0
    turn: int  # from 0
    moves_left: int  # with 0, the next action must answer
    start: CameraPose  # the pose of turn 0
    extent_from_start: Extent  # in metres ahead of the start and to its left
    camera: Intrinsics  # of all images
    objects: tuple[ObjectBox, ...] = ()  # the boxes told, in the scan's coordinates, as they came into view
    told_before: int = 0  # how many of the objects earlier observations have
    pictures: tuple[Shot, ...] = ()  # of the question, in turn 0

    @property
    def shown(self) -> tuple[Shot, ...]:
        """All that a model sees, in its order: the pictures, then the images."""
        return (*self.pictures, *self.images)

    @property
    def view(self) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB."""
        return self.images[0].image


class ExplorationEnv:
    """Explores the scan of one question, of a shared library, with up to `steps` moves. Coordinates count from the
    first pose, or as in the scan. Errors leave it unchanged, so that a step can be retried."""

    def __init__(self, library: SceneLibrary, steps: int, in_scan_coordinates: bool = False) -> None:
        self.library = library
        self.steps = steps
        self._in_scan = in_scan_coordinates
        self._observation: Observation | None = None
        self._sight: Sight | None = None
        self._to_tell: tuple[ObjectBox, ...] = ()
        """All objects, if each is told once it has been in view."""

    @property
    def scene(self) -> Scene:
        """The question's scan."""
        return self.sight.scene

    @property
    def observation(self) -> Observation:
        """The latest observation."""
        assert self._observation is not None, "call reset() first"
        return self._observation

    @property
    def sight(self) -> Sight:
        """What the images of the latest observation are drawn from."""
        assert self._sight is not None, "call reset() first"
        return self._sight

    def reset(self, question: Question) -> Observation:
        """Load the question's scene and start at its first view; raises ScanNotFound, SceneError, RenderError, or
        QuestionPictureError for a picture that cannot be shown."""
        scene = self.library.scene_of(question)
        first = self.library.first_view(question)
        return self.reset_at(scene, first.pose, view=first.image, pictures=self.pictures_of(question))

    def pictures_of(self, question: Question) -> tuple[Shot, ...]:
        """The pictures of a question as it shows them; QuestionPictureError. Without views, as blind as these."""
        blind = self.library.renderer.name == "blind"
        size = self.library.camera.image_size
        grey = self.library.first_view(question).image if blind else None
        images = [picture.shown(*size) if grey is None else grey.copy() for picture in question.images]
        return tuple(Shot(f"{PICTURE}{number}", image) for number, image in enumerate(images, start=1))

    def reset_at(
        self,
        scene: Scene,
        pose: CameraPose,
        images: tuple[Shot, ...] = (),
        view: np.ndarray | None = None,
        pictures: tuple[Shot, ...] = (),
    ) -> Observation:
        """Start at any pose in a scene, with a question's pictures; renders what images are not given; RenderError."""
        camera = self.library.camera.intrinsics
        origin = SCAN_ORIGIN if self._in_scan else pose
        view = images[0].image if images else view
        sight = Sight(self.library.renderer, scene, camera, (pose,), view, origin)
        images = images or draw_shots(self.library.camera.see, sight)
        seen_from = Extent.seen_from(sight.storey, pose)
        extent = Extent.of(sight.storey)
        self._observation = Observation(
            images, pose, extent, None, 0, self.steps, pose, seen_from, camera, pictures=pictures
        )
        self._sight = sight
        return self._observation

    def limit(self, steps: int) -> None:
        """Allow fewer moves than before, at turn 0."""
        self.steps = steps
        self._observation = replace(self.observation, moves_left=steps)

    def tell(self, boxes: tuple[ObjectBox, ...], only_in_view: bool) -> None:
        """From turn 0 on, tell of these objects in the scene, or `only_in_view` of each once a view has shown it."""
        pose = self.observation.pose
        self._to_tell = boxes if only_in_view else ()
        told = self._told_after((), pose) if only_in_view else nearest_first(boxes, pose)
        self._observation = replace(self.observation, objects=told)

    def _told_after(self, before: tuple[ObjectBox, ...], pose: CameraPose) -> tuple[ObjectBox, ...]:
        """The objects told `before` the view of a pose, and those that it shows first."""
        if not self._to_tell:
            return before
        seen = in_view(self.scene, pose, self.observation.camera, self._to_tell)
        return before + tuple(box for box in seen if box not in before)

    def step(self, action: CameraMove) -> Observation:
        """Turn, move as far as bounds and surfaces allow, and render. ValueError without moves left, or RenderError."""
        return self.resume(self.outcome(action))

    def resume(self, outcome: MoveOutcome, images: tuple[Shot, ...] = ()) -> Observation:
        """Take a step whose outcome is known; renders the images unless they are given. Raises what `step` raises."""
        if not self.observation.moves_left:
            raise ValueError(f"no moves left: all {self.steps} moves are used")
        before = self.observation
        drawn = images[0].image if images else None
        sight = replace(self.sight, path=(*self.sight.path, outcome.pose), drawn=drawn)
        images = images or draw_shots(self.library.camera.see, sight)
        seen_from = before.extent_from_start
        if sight.storey is not self.sight.storey:
            seen_from = Extent.seen_from(sight.storey, before.start)
        self._observation = replace(
            before,
            images=images,
            pose=outcome.pose,
            extent=Extent.of(sight.storey),
            extent_from_start=seen_from,
            move=outcome,
            turn=before.turn + 1,
            moves_left=before.moves_left - 1,
            objects=self._told_after(before.objects, outcome.pose),
            told_before=len(before.objects),
            pictures=(),
        )
        self._sight = sight
        return self._observation

    def outcome(self, action: CameraMove, start: CameraPose | None = None) -> MoveOutcome:
        """The outcome of an action at a pose, by default the camera's, without taking it. Several moves are carried out
        in their order until one is stopped, and their lengths are added."""
        singles = action.singles
        outcomes: list[MoveOutcome] = []
        pose = start or self.observation.pose
        for single in singles:
            last = move(self.scene, pose, single.goal(pose))
            outcomes.append(last)
            pose = last.pose
            if last.blocked or last.clipped:
                break
        if len(singles) == 1:
            return last
        requested_m = sum(outcome.requested_m for outcome in outcomes)
        requested_m += sum(single.length_m for single in singles[len(outcomes) :])
        return replace(last, requested_m=requested_m, moved_m=sum(outcome.moved_m for outcome in outcomes))
