"""Chooses the first view, near the middle of the room, and counts how much of a scene's surface views have shown."""

import logging
import math
from dataclasses import dataclass

import numpy as np

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.geometry import BOUNDS_PERCENTILES
from roomscout.rendering.modalities.modality import Sight
from roomscout.rendering.renderers.base import Renderer
from roomscout.rendering.scene import Scene
from roomscout.rendering.storeys import FLOOR_TOLERANCE_M, Storey

_log = logging.getLogger(__name__)

HEADINGS_DEG = (0.0, 90.0, 180.0, 270.0)
GRID_CELLS = 32
HEADROOM_M = 0.2  # in low rooms the camera stays at least this far below the upper bound
CLEARANCES_M = (0.6, 0.4, 0.2, 0.0)  # from all surfaces; the first that any position satisfies is used
MIN_OPENNESS = 0.25  # positions less open than this share of the most open one may be inside a wardrobe
VISIBLE_TOLERANCE_M = 0.05  # a surface point is visible if it is at most this far behind the rendered depth
SAMPLE_POINTS = 4_000  # a share of them is within 2 percentage points of that of the surface, 95 times in 100


@dataclass(frozen=True, eq=False)
class FirstView:
    """View 0: its pose and its image (H, W, 3) uint8 RGB."""

    pose: CameraPose
    image: np.ndarray

    @classmethod
    def at(cls, pose: CameraPose, scene: Scene, renderer: Renderer, intrinsics: Intrinsics) -> "FirstView":
        """The view from a pose; raises RenderError."""
        return cls(pose, Sight(renderer, scene, intrinsics, (pose,)).view)


def first_view(
    scene: Scene, renderer: Renderer, intrinsics: Intrinsics, camera_height_m: float, pitch_deg: float
) -> FirstView:
    """The view at `start_position` of the main storey that shows the largest share of the surface, of four headings;
    the first of ties."""
    storey = scene.main_storey
    position = start_position(scene, camera_height_m)
    eye_m = position[2] - storey.floor_z_m
    if eye_m < camera_height_m - 0.005:
        _log.warning(
            "%s: the camera starts %.2f m above the floor, not at the camera height of %g m: %g %% of the scanned "
            "surface is lower than %.2f m",
            scene.name, eye_m, camera_height_m, BOUNDS_PERCENTILES[1], storey.bounds.upper[2] - storey.floor_z_m,
        )  # fmt: skip
    poses = [CameraPose(0.0, 0.0, 0.0, heading, pitch_deg).at(position) for heading in HEADINGS_DEG]
    shares = [visible_share(scene, pose, intrinsics, renderer.depth(scene, pose, intrinsics)) for pose in poses]
    return FirstView.at(poses[int(np.argmax(shares))], scene, renderer, intrinsics)


def visible_share(scene: Scene, pose: CameraPose, intrinsics: Intrinsics, depth: np.ndarray) -> float:
    """Fraction of the scene's surface points that are visible in a view with this `depth` (H, W)."""
    pixels, distances = project(scene.surface_points, pose, intrinsics)
    columns, rows = np.floor(pixels).astype(np.int64).T
    inside = (distances > 0) & (columns >= 0) & (columns < intrinsics.width) & (rows >= 0) & (rows < intrinsics.height)
    visible = distances[inside] <= depth[rows[inside], columns[inside]] + VISIBLE_TOLERANCE_M
    return float(np.count_nonzero(visible) / len(distances))


def project(points: np.ndarray, pose: CameraPose, intrinsics: Intrinsics) -> tuple[np.ndarray, np.ndarray]:
    """Project world points (K, 3) to pixels (K, 2) and depths (K,) metres. Pixels are valid only for depths > 0."""
    world_to_camera = pose.world_to_camera
    camera = points @ world_to_camera[:3, :3].T + world_to_camera[:3, 3]
    depths = camera[:, 2]
    homogeneous = camera @ intrinsics.matrix.T
    return homogeneous[:, :2] / np.where(depths > 0, depths, 1.0)[:, None], depths


def start_position(scene: Scene, camera_height_m: float) -> np.ndarray:
    """(3,) float64 metres: the free position closest to the middle of the main storey, `camera_height_m` above its
    floor (lower in a low room): with the floor below, a clearance around it, smaller in a narrow room, and an open
    view. If none has the floor below, logs a warning and takes any open one."""
    storey = scene.main_storey
    bounds = storey.bounds
    shares = (np.arange(GRID_CELLS + 1) / GRID_CELLS)[:, None, None]
    x = bounds.lower[0] + shares * bounds.extent[0]
    y = bounds.lower[1] + np.swapaxes(shares, 0, 1) * bounds.extent[1]
    candidates = np.stack(np.broadcast_arrays(x, y, eye_z_m(storey, camera_height_m)), axis=-1).reshape(-1, 3)
    candidates = candidates[np.argsort(np.linalg.norm(candidates - bounds.middle, axis=1), kind="stable")]
    origins = np.repeat(candidates, len(AROUND), axis=0)
    around = scene.cast(origins, np.tile(AROUND, (len(candidates), 1))).reshape(len(candidates), -1)
    level = around[:, : len(_RING)]
    openness = np.square(np.where(np.isfinite(level), level, 0.0)).mean(axis=1)
    on_floor = np.abs(scene.heights_below(candidates) - storey.floor_z_m) <= FLOOR_TOLERANCE_M
    if not on_floor.any() or openness[on_floor].max() < MIN_OPENNESS * openness.max():
        _log.warning("%s: no open position is above the floor; the first view may be outside the room", scene.name)
        on_floor[:] = True
    open_enough = openness >= MIN_OPENNESS * openness[on_floor].max()
    clearance = around.min(axis=1)
    for wanted_m in CLEARANCES_M:  # the last is 0, which some position satisfies
        free = on_floor & open_enough & (clearance >= wanted_m)
        if free.any():
            break
    return candidates[int(np.argmax(free))]


def eye_z_m(storey: Storey, camera_height_m: float) -> float:
    """The height of a first view: `camera_height_m` above a storey's floor, lower in a low one. Metres."""
    bounds = storey.bounds
    return float(min(storey.floor_z_m + camera_height_m, max(bounds.upper[2] - HEADROOM_M, bounds.middle[2])))


def _ring(elevation_deg: float, count: int) -> np.ndarray:
    """(count, 3) unit vectors spaced evenly around z at one elevation."""
    azimuth = np.arange(count) * (2 * np.pi / count)
    level = np.cos(np.radians(elevation_deg))
    rise = np.sin(np.radians(elevation_deg))
    return np.column_stack([level * np.cos(azimuth), level * np.sin(azimuth), np.full(count, rise)])


_RING = _ring(0.0, 16)
AROUND = np.concatenate([_RING, _ring(-35.0, 8), _ring(35.0, 8)])


class SurfaceCoverage:
    """Counts the sampled points of a scene's surface that the camera has seen: `points` (K, 3), evenly spaced, about
    SAMPLE_POINTS. A seen one projects into the image with no surface more than VISIBLE_TOLERANCE_M in front. Shares
    stay below 1, since some, as under a rug, cannot be seen."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        every = math.ceil(len(scene.surface_points) / SAMPLE_POINTS)
        self.points = scene.surface_points[::every].astype(np.float64)
        self.seen = np.zeros(len(self.points), dtype=bool)  # (K,) the points seen so far

    @property
    def share(self) -> float:
        """The share of the points seen so far, from 0 to 1."""
        return float(self.seen.mean())

    def add(self, pose: CameraPose, camera: Intrinsics) -> float:
        """Add the points seen from a pose, and return the share of all points seen so far."""
        self.seen |= self.seen_from(pose, camera)
        return self.share

    def seen_from(self, pose: CameraPose, camera: Intrinsics) -> np.ndarray:
        """(K,) bool: which points a view from this pose shows. Changes nothing."""
        mask = self.in_frame(pose, camera)
        mask[mask] = self.unobstructed(pose.position, mask)
        return mask

    def in_frame(self, pose: CameraPose, camera: Intrinsics) -> np.ndarray:
        """(K,) bool: which points project into the image, also behind a surface."""
        pixels, depths = project(self.points, pose, camera)
        columns, rows = pixels.T
        inside = (columns >= 0) & (columns < camera.width) & (rows >= 0) & (rows < camera.height)
        return inside & (depths > 0)

    def unobstructed(self, position: np.ndarray, chosen: np.ndarray | slice = np.s_[:]) -> np.ndarray:
        """(K,) bool: which of the `chosen` points have a free line of sight to a (3,) position, in any direction."""
        points = self.points[chosen]
        towards = points - position
        distances = np.linalg.norm(towards, axis=1)
        directions = towards / np.maximum(distances, 1e-9)[:, None]
        hits = self.scene.cast(np.tile(position, (len(points), 1)), directions)
        return hits >= distances - VISIBLE_TOLERANCE_M
