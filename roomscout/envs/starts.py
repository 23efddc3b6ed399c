"""Where a question starts: a place of its row as a pose of the camera, checked against the scan."""

import logging

import numpy as np

from roomscout.base.text import listed
from roomscout.data.scan_frames import Start
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.scene import Scene, SceneError
from roomscout.rendering.storeys import FLOOR_TOLERANCE_M, Storey
from roomscout.rendering.views import AROUND, eye_z_m

_log = logging.getLogger(__name__)

OUTSIDE_M = 0.5  # how far beside or above a scan a question may start: people lean on walls without scans
TOO_NEAR_M = 0.1  # a camera so near to a surface is in a wall, a floor or a piece of furniture
INSIDE_SHARE, INSIDE_M = 0.9, 0.5  # inside of a closed body nearly all that is seen are backs, half of them so near
DOWN = (0.0, 0.0, -1.0)


def start_pose(scene: Scene, start: Start, camera_height_m: float, pitch_deg: float) -> CameraPose:
    """The pose of a start, at `camera_height_m` above the floor and with `pitch_deg` unless it has its own. Raises
    SceneError for one outside of the scan, and logs a warning for one inside a surface."""
    middle = scene.box.middle if start.from_middle else np.zeros(3)
    x = float(start.x_m + middle[0])
    y = float(start.y_m + middle[1])
    z = start.z_m
    if z is None:
        z = eye_z_m(_storey_below(scene, x, y, camera_height_m), camera_height_m)
    pitch = pitch_deg if start.pitch_deg is None else start.pitch_deg
    pose = CameraPose(x, y, z, start.heading_deg % 360.0, pitch)
    place = f"x {x:.2f}, y {y:.2f} m" if start.z_m is None else pose.place
    require_in_scan(scene, pose, f"the question starts at {place}")
    if why := _why_inside(scene, pose):
        _log.warning("%s: the question that starts at %s %s", scene.name, place, why)
    return pose


def require_in_scan(scene: Scene, pose: CameraPose, what: str) -> None:
    """Raise SceneError, which says `what` is where and names the coordinates, for a pose outside of the box around all
    points of the scan."""
    lower = scene.box.lower
    upper = scene.box.upper
    above = upper + OUTSIDE_M
    below = lower - [OUTSIDE_M, OUTSIDE_M, 0.0]
    outside = (pose.position < below) | (pose.position > above)
    if not outside.any():
        return
    ranges = [f"{axis} {lower[n]:.2f} to {upper[n]:.2f}" for n, axis in enumerate("xyz") if outside[n]]
    raise SceneError(
        f"{scene.name}: {what}, outside the scan, which is from {listed(ranges)} m: check that both are of the same "
        "version, and that the place is in metres, z up, from the origin of the file"
    )


def _storey_below(scene: Scene, x: float, y: float, camera_height_m: float) -> Storey:
    """The main storey, unless it has no floor at this place and another one has."""
    main = scene.main_storey
    for storey in (main, *scene.storeys):
        eye = np.array([[x, y, eye_z_m(storey, camera_height_m)]])
        if scene.heights_below(eye)[0] >= storey.floor_z_m - FLOOR_TOLERANCE_M:  # its floor, or what stands on it
            return storey
    return main


def _why_inside(scene: Scene, pose: CameraPose) -> str | None:
    """Why a pose seems to be inside a wall, a floor or furniture, if it does."""
    around = np.concatenate([AROUND, [DOWN]])
    rays = np.concatenate([np.tile(scene.own(pose.position), (len(around), 1)), around], axis=1, dtype=np.float32)
    hits = scene.hits(rays)
    metres = hits["t_hit"]
    nearest = int(metres.argmin())
    if metres[nearest] < TOO_NEAR_M:
        what = "the floor, or what stands on it," if nearest == len(around) - 1 else "a wall, a ceiling or furniture,"
        return f"is in {what} or {metres[nearest]:.2f} m from it"
    seen = np.isfinite(metres)
    backs = (hits["primitive_normals"] * around).sum(axis=1)[seen] > 0
    if seen.all() and backs.mean() >= INSIDE_SHARE and np.median(metres) < INSIDE_M:
        return f"is inside of something: all around it are the backs of surfaces, most within {np.median(metres):.1f} m"
    return None
