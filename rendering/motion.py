"""Moves the camera through a scene: inside its bounds, and never through a surface."""

from dataclasses import dataclass

import numpy as np

from rendering.camera import CameraPose
from rendering.scene import Bounds, Scene

# How near the camera may come to a surface ahead of it, and how wide its body is around the line it moves on.
CLEARANCE_M = 0.2
BODY_RAYS = 8
_TINY_M = 1e-6


@dataclass(frozen=True)
class MoveOutcome:
    """Where a move ended. `requested_m` and `moved_m` are straight distances; `blocked`: a surface stood in the way;
    `clipped`: the scene's bounds ended the move."""

    pose: CameraPose
    requested_m: float
    moved_m: float
    blocked: bool
    clipped: bool


def move(
    scene: Scene, pose: CameraPose, rotation_deg: float, forward_m: float, left_m: float, up_m: float
) -> MoveOutcome:
    """Turn left by `rotation_deg`, then move in the new heading as far as bounds and surfaces allow.

    A move that the bounds end goes straight up to them; one that leaves them in height only stays level at the limit
    instead. A camera that is outside of the bounds, or nearer to a surface than the clearance, may still move away.
    """
    target = pose.moved(rotation_deg, forward_m, left_m, up_m)
    start, goal = pose.position, target.position
    within = _kept_inside(scene.bounds, start, goal)
    end = _kept_from_surfaces(scene, start, within)
    return MoveOutcome(
        pose=target.at(end),
        requested_m=_length(goal - start),
        moved_m=_length(end - start),
        blocked=_length(end - within) > _TINY_M,
        clipped=_length(within - goal) > _TINY_M,
    )


def _length(vector: np.ndarray) -> float:
    return float(np.linalg.norm(vector))


def _kept_inside(bounds: Bounds, start: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """(3,) the goal, its height limited, then drawn back along the move to the bounds.

    A start outside of the bounds counts as if they reached there.
    """
    lower, upper = np.minimum(bounds.lower, start), np.maximum(bounds.upper, start)
    goal = np.array([goal[0], goal[1], np.clip(goal[2], lower[2], upper[2])])
    step = goal - start
    limit = np.where(step > 0, upper, lower) - start
    shares = np.divide(limit, step, out=np.ones(3), where=np.abs(step) > 0)
    return np.clip(start + min(1.0, shares.min()) * step, lower, upper)


def _kept_from_surfaces(scene: Scene, start: np.ndarray, goal: np.ndarray) -> np.ndarray:
    """(3,) the goal, drawn back along the move until a body of the clearance's radius touches nothing ahead."""
    distance = _length(goal - start)
    if distance < _TINY_M:
        return start
    direction = (goal - start) / distance
    origins = _body(scene, start, direction)
    free = scene.cast(origins, np.tile(direction, (len(origins), 1))).min()
    return start + max(0.0, min(distance, float(free) - CLEARANCE_M)) * direction


def _body(scene: Scene, centre: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """(1 + BODY_RAYS, 3) points of the body's widest ring across `direction`, the centre first.

    The ring is drawn in where a surface is nearer than its radius, so that all of its points are on the camera's side.
    """
    helper = np.eye(3)[np.abs(direction).argmin()]
    across = np.cross(direction, helper)
    across /= np.linalg.norm(across)
    along = np.cross(direction, across)
    angles = np.arange(BODY_RAYS) * (2 * np.pi / BODY_RAYS)
    spokes = np.cos(angles)[:, None] * across + np.sin(angles)[:, None] * along
    free = scene.cast(np.tile(centre, (BODY_RAYS, 1)), spokes)
    reach = np.minimum(CLEARANCE_M, 0.9 * free)
    return np.vstack([centre, centre + reach[:, None] * spokes])
