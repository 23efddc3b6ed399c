"""Moves the camera within a scene's bounds and never through a surface."""

from dataclasses import dataclass

import numpy as np

from roomscout.rendering.camera import CameraPose
from roomscout.rendering.geometry import spokes
from roomscout.rendering.scene import Bounds, Scene

CLEARANCE_M = 0.2  # the smallest distance to a surface ahead, and the radius of the camera's body
BODY_RAYS = 8
_TINY_M = 1e-6


@dataclass(frozen=True)
class MoveOutcome:
    """The result of a move, with straight-line distances."""

    pose: CameraPose  # after the move
    requested_m: float  # metres to the pose that was asked for
    moved_m: float  # metres to `pose`
    blocked: bool  # whether a surface stopped it
    clipped: bool  # whether the scene's bounds stopped it


def move(scene: Scene, pose: CameraPose, target: CameraPose) -> MoveOutcome:
    """Turn to the heading and pitch of `target`, then move towards it as far as bounds and surfaces allow. Bounds clamp
    the height alone. From outside the bounds, or within a surface's clearance, it may move away."""
    start = pose.position
    goal = target.position
    within = _clip_to_bounds(scene.bounds, start, goal)
    end = start
    distance = _length(within - start)
    if distance >= _TINY_M:  # pulled back so that the camera's body keeps the clearance to surfaces ahead
        direction = (within - start) / distance
        free = float(free_m(scene, start[None], direction[None])[0])
        end = start + max(0.0, min(distance, free)) * direction
    return MoveOutcome(
        pose=target.at(end),
        requested_m=_length(goal - start),
        moved_m=_length(end - start),
        blocked=_length(end - within) > _TINY_M,
        clipped=_length(within - goal) > _TINY_M,
    )


def _length(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


def _clip_to_bounds(bounds: Bounds, start: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """(3,) the goal with its height clamped, then pulled back along the move to the bounds, extended to the start."""
    lower = np.minimum(bounds.lower, start)
    upper = np.maximum(bounds.upper, start)
    goal = np.array([goal[0], goal[1], np.clip(goal[2], lower[2], upper[2])])
    step = goal - start
    limit = np.where(step > 0, upper, lower) - start
    shares = np.divide(limit, step, out=np.ones(3), where=np.abs(step) > 0)
    return np.clip(start + min(1.0, shares.min()) * step, lower, upper)


def free_m(scene: Scene, starts: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """(N,) the metres that a camera's body can move from each of `starts` (N, 3) along unit `directions` (N, 3) until
    surfaces stop it; negative where it is too close to one already."""
    origins = _body_points(scene, starts, directions)
    ahead = np.repeat(directions, origins.shape[1], axis=0)
    hits = scene.cast(origins.reshape(-1, 3), ahead).reshape(len(starts), -1).min(axis=1)
    return hits.astype(np.float64) - CLEARANCE_M


def _body_points(scene: Scene, centres: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """(N, 1 + BODY_RAYS, 3): each centre, and a ring around it across its direction, which shrinks where a surface is
    closer than its radius, to stay on the camera's side of it."""
    around = spokes(directions, BODY_RAYS)
    free = scene.cast(np.repeat(centres, BODY_RAYS, axis=0), around.reshape(-1, 3)).reshape(len(centres), -1)
    reach = np.minimum(CLEARANCE_M, 0.9 * free)
    return np.concatenate([centres[:, None], centres[:, None] + reach[..., None] * around], axis=1)
