"""Walks from object to object in straight lines, and the turns between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from data.rooms.geometry import OrientedBox, points_in_polygon, segments_cross, slab_interval, wrap_deg
from data.rooms.room import Room, RoomObject

TURNS = ("Turn Left", "Turn Right", "Turn Back")
STAND_OFF_M = 0.35  # "go forward until the X" ends this far before it
BODY_M = 0.2  # a walk keeps this far from everything else
SHORTEST_M = 0.5
AHEAD_DEG, BACK_DEG, MARGIN_DEG = 25.0, 135.0, 10.0  # a turn below AHEAD is none; from BACK on it is "back"
STEP_M = 1.0  # height at which walks are tested: below it everything is in the way, above it hangs on walls


@dataclass(frozen=True)
class Route:
    """A walk: begin at `start` facing `facing`, then `steps` in words with blanks for `turns`, past `stops`."""

    start: str
    facing: str
    stops: tuple[str, ...]
    turns: tuple[str, ...]
    steps: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class _Walker:
    """Where the robot is: at `point` by `place`, looking along `heading` (2,); `plan_heading` is the same direction
    taken from centre to centre of the objects instead of from where the robot stands."""

    place: RoomObject
    point: np.ndarray
    heading: np.ndarray
    plan_heading: np.ndarray


def draw_route(room: Room, rng: Generator, blanks: int) -> Route | None:
    """A random route with so many blanks, or None if the walk ends in a corner. Every turn is the same, by a clear
    margin, for the robot where it stands and for a reader who measures from centre to centre."""
    objects = [o for o in room.unique_objects if o.supported_by is None]
    if len(objects) < blanks + 2:
        return None
    start, facing = (objects[i] for i in rng.choice(len(objects), 2, replace=False))
    walker = _begin(room, start, facing)
    if walker is None:
        return None
    stops: list[RoomObject] = []
    turns: list[str] = []
    steps: list[str] = []
    if rng.random() < 0.7:  # most routes of the benchmark first go to what the robot faces
        walker = _walk(room, walker, facing)
        stops, steps = [facing], [f"Go forward until the {facing.category}"]
    while walker is not None and len(turns) < blanks:
        wanted = TURNS[rng.integers(3)]
        choices = [o for o in objects if o not in (start, facing, *stops) and _turn(walker, o) == wanted]
        target = choices[rng.integers(len(choices))] if choices else None
        walker = _walk(room, walker, target) if target else None
        if walker is not None:
            turns.append(wanted)
            stops.append(walker.place)
            steps += ["[please fill in]", f"Go forward until the {walker.place.category}"]
    if walker is None:
        return None
    return Route(start.category, facing.category, tuple(o.category for o in stops), tuple(turns), tuple(steps))


def _begin(room: Room, start: RoomObject, facing: RoomObject) -> _Walker | None:
    """Stand just off the start's footprint, on the side of what is faced."""
    origin, goal = start.box.plan_center, facing.box.plan_center
    _, leave = slab_interval(_at_step(origin), _at_step(goal), _tall(start), STAND_OFF_M)
    point = origin + float(leave) * (goal - origin)
    if leave >= 1.0 or _blocked(room, point, point + 1e-6, (start,)):
        return None
    heading = (goal - origin) / np.linalg.norm(goal - origin)
    return _Walker(start, point, heading, heading)


def _walk(room: Room, walker: _Walker, target: RoomObject) -> _Walker | None:
    """Go straight to the target and stop before it; None if something is in the way or it is too near."""
    goal = target.box.plan_center
    enter, leave = slab_interval(_at_step(walker.point), _at_step(goal), _tall(target), STAND_OFF_M)
    stop = walker.point + max(float(enter), 0.0) * (goal - walker.point)
    walked = float(np.linalg.norm(stop - walker.point))
    if enter > leave or walked < SHORTEST_M or _blocked(room, walker.point, stop, (target,)):
        return None
    plan = goal - walker.place.box.plan_center
    return _Walker(target, stop, (stop - walker.point) / walked, plan / np.linalg.norm(plan))


def _turn(walker: _Walker, target: RoomObject) -> str | None:
    """The turn that makes the robot face the target, or None if it is not clear which."""
    inner = target.box.plan_center + (target.box.footprint - target.box.plan_center) / 2
    seen = np.vstack([target.box.plan_center, inner]) - walker.point
    drawn = (target.box.plan_center - walker.place.box.plan_center)[None]
    bearings = np.concatenate([_bearing(walker.heading, seen), _bearing(walker.plan_heading, drawn)])
    names = {_name(b + shift) for b in bearings for shift in (-MARGIN_DEG, 0.0, MARGIN_DEG)}
    return names.pop() if len(names) == 1 else None


def _bearing(heading: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(N,) degrees from the heading to each of (N, 2) offsets, + = left."""
    cross = heading[0] * offsets[:, 1] - heading[1] * offsets[:, 0]
    return np.degrees(np.arctan2(cross, offsets @ heading))


def _name(bearing: float) -> str | None:
    bearing = float(wrap_deg(np.array(bearing)))
    if abs(bearing) >= BACK_DEG:
        return "Turn Back"
    if abs(bearing) < AHEAD_DEG:
        return None
    return "Turn Left" if bearing > 0 else "Turn Right"


def _blocked(room: Room, start: np.ndarray, end: np.ndarray, but: Sequence[RoomObject]) -> bool:
    """Does the straight walk leave the room or come too near to any object, those of `but` excepted?"""
    ends = np.array([start, end])
    if not points_in_polygon(ends, room.polygon).all():
        return True
    obstacles = [o for o in room.objects if o not in but and o.box.bottom < STEP_M]
    low = [segments_cross(_at_step(start), _at_step(end), _tall(o), BODY_M) for o in obstacles]
    notch = room.plan.notch
    return any(low) or (notch is not None and bool(segments_cross(_at_step(start), _at_step(end), notch, BODY_M)))


def _at_step(point: np.ndarray) -> np.ndarray:
    return np.append(point, STEP_M)


def _tall(thing: RoomObject) -> OrientedBox:
    """The object's box stretched through all heights: in plan it is the same."""
    x, y, _ = thing.box.center
    return OrientedBox((x, y, STEP_M), (*thing.box.size[:2], 100.0), thing.box.yaw_deg)
