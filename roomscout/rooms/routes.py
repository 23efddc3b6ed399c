"""Routes of straight walks from object to object, and the turns between them."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from roomscout.rooms.geometry import crossings, points_in_polygon, wrap_deg
from roomscout.rooms.room import Room

TURNS = ("Turn Left", "Turn Right", "Turn Back")
MOST_BLANKS = 3
STAND_OFF_M = 0.35  # "go forward until the X" ends this far in front of X
BODY_M = 0.2  # smallest distance of a walk from other objects
MIN_WALK_M = 0.5
AHEAD_DEG, BACK_DEG, MARGIN_DEG = 25.0, 135.0, 10.0  # less than AHEAD is not a turn; BACK or more is "back"
HEADROOM_M = 1.0  # objects at least this high above the floor do not block a walk
FACED_FIRST_SHARE = 0.7  # of routes that first go to the faced object, like most in the benchmark


@dataclass(frozen=True)
class Route:
    """A route by the categories of objects."""

    start: str  # where it begins
    facing: str  # what the robot looks at there
    stops: tuple[str, ...]  # along the route, the last of which is its end
    turns: tuple[str, ...]  # what to fill in, each one of TURNS
    steps: tuple[str, ...]  # its text, with blanks for the turns


@dataclass(frozen=True, eq=False)
class _Robot:
    """A robot at `point` (2,) in front of object `place`, looking along the unit vector `heading` (2,), which is
    `plan_heading` (2,) between the centres of the objects on a floor plan."""

    place: int
    point: np.ndarray
    heading: np.ndarray
    plan_heading: np.ndarray


class RouteMap:
    """A room's floor plan, on which a robot walks between the footprints of objects; `landmarks` are the indices of
    those that a route can name: unique, and on the floor or a wall."""

    def __init__(self, room: Room) -> None:
        self.room = room
        unique = {o.category for o in room.unique_objects}
        self.landmarks = tuple(i for i, o in enumerate(room.objects) if o.category in unique and o.supported_by is None)
        boxes = [*(o.box for o in room.objects), *room.plan.notches]
        self._boxes = boxes
        self._centers = np.array([b.plan_center for b in boxes])
        # (N, 2, 2) unit vectors along the width and the depth of each footprint.
        self._axes = np.array([b.directions[:2, :2] for b in boxes])
        self._halves = np.array([b.size[:2] for b in boxes]) / 2
        self._blocking = np.array([b.bottom < HEADROOM_M for b in boxes])

    def crossings(self, start: np.ndarray, end: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
        """Where the line from `start` (0) to `end` (1), (2,) each, enters and leaves each footprint grown by `margin`
        metres, (N,) each. A line that misses a footprint enters it after it leaves."""
        origin = np.einsum("nak,nk->na", self._axes, start - self._centers)
        return crossings(origin, self._axes @ (end - start), self._halves + margin)

    def is_blocked(self, start: np.ndarray, end: np.ndarray, ignore: int) -> bool:
        """Whether the straight walk leaves the room or comes close to an object other than `ignore`."""
        if not points_in_polygon(np.array([start, end]), self.room.plan.corners).all():
            return True
        enter, leave = self.crossings(start, end, BODY_M)
        hit = self._blocking & (enter < leave) & (leave > 0) & (enter < 1)
        hit[ignore] = False
        return bool(hit.any())

    def begin(self, start: int, facing: int) -> _Robot | None:
        """A robot just outside the footprint of `start`, towards `facing`; None if that spot is blocked."""
        origin = self._centers[start]
        goal = self._centers[facing]
        share = float(self.crossings(origin, goal, STAND_OFF_M)[1][start])
        point = origin + share * (goal - origin)
        if share >= 1.0 or self.is_blocked(point, point, ignore=start):
            return None
        heading = (goal - origin) / np.linalg.norm(goal - origin)
        return _Robot(start, point, heading, heading)

    def walk(self, robot: _Robot, target: int) -> _Robot | None:
        """The robot after walking straight up to the target; None if the walk is blocked or too short."""
        goal = self._centers[target]
        share = max(float(self.crossings(robot.point, goal, STAND_OFF_M)[0][target]), 0.0)
        stop = robot.point + share * (goal - robot.point)
        walked = float(np.linalg.norm(stop - robot.point))
        if walked < MIN_WALK_M or self.is_blocked(robot.point, stop, ignore=target):
            return None
        plan = goal - self._centers[robot.place]
        return _Robot(target, stop, (stop - robot.point) / walked, plan / np.linalg.norm(plan))

    def turn(self, robot: _Robot, target: int) -> str | None:
        """The turn after which the robot faces the target, None unless it is the same, with a margin, as seen by the
        robot, between centres, and for every part of the inner half of the target's footprint."""
        box = self._boxes[target]
        inner = box.plan_center + (box.footprint - box.plan_center) / 2
        offsets = np.vstack([box.plan_center, inner]) - robot.point
        plan_offset = (box.plan_center - self._centers[robot.place])[None]
        bearings = np.concatenate([_bearing(robot.heading, offsets), _bearing(robot.plan_heading, plan_offset)])
        names = set(map(_turn_name, (bearings[:, None] + [-MARGIN_DEG, 0.0, MARGIN_DEG]).ravel()))
        return names.pop() if len(names) == 1 else None


def draw_route(route_map: RouteMap, rng: Generator, blanks: int) -> Route | None:
    """A random route with this many blanks, or None if the random walk reaches a dead end."""
    if len(route_map.landmarks) < 3:
        return None
    start, facing = map(int, rng.choice(route_map.landmarks, 2, replace=False))
    robot = route_map.begin(start, facing)
    stops: list[int] = []
    turns: list[str] = []
    if robot is not None and rng.random() < FACED_FIRST_SHARE:
        robot = route_map.walk(robot, facing)
        stops.append(facing)
    while robot is not None and len(turns) < blanks:
        turn, robot = _next_leg(route_map, rng, robot, {start, facing, *stops})
        if robot is not None:
            turns.append(turn)
            stops.append(robot.place)
    if robot is None:
        return None
    names = [o.category for o in route_map.room.objects]
    steps: list[str] = []
    for place, stop in enumerate(stops):
        if place >= len(stops) - blanks:
            steps.append("[please fill in]")
        steps.append(f"Go forward until the {names[stop]}")
    return Route(names[start], names[facing], tuple(names[i] for i in stops), tuple(turns), tuple(steps))


def turns_of(route_map: RouteMap, route: Route) -> tuple[str, ...] | None:
    """The turns with which a route, drawn in another room, is walked here; None if it cannot be, or is ambiguous."""
    objects = route_map.room.objects
    place_of = {objects[place].category: place for place in route_map.landmarks}
    if not place_of.keys() >= {route.start, route.facing, *route.stops}:
        return None
    robot = route_map.begin(place_of[route.start], place_of[route.facing])
    turns = []
    for number, stop in enumerate(route.stops):
        if robot is not None and number >= len(route.stops) - len(route.turns):
            turn = route_map.turn(robot, place_of[stop])
            if turn is None:
                return None
            turns.append(turn)
        robot = robot and route_map.walk(robot, place_of[stop])
    return tuple(turns) if robot is not None else None


def _next_leg(
    route_map: RouteMap, rng: Generator, robot: _Robot, visited: Collection[int]
) -> tuple[str, _Robot | None]:
    """A random unambiguous turn and the walk after it; all turns that lead to a landmark are equally likely."""
    legs: dict[str, list[_Robot]] = {}
    for target in route_map.landmarks:
        turn = route_map.turn(robot, target) if target not in visited else None
        arrived = route_map.walk(robot, target) if turn else None
        if turn and arrived:
            legs.setdefault(turn, []).append(arrived)
    if not legs:
        return "", None
    turn = list(legs)[rng.integers(len(legs))]
    return turn, legs[turn][rng.integers(len(legs[turn]))]


def _bearing(heading: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(N,) degrees from the heading to `offsets` (N, 2), + = left."""
    cross = heading[0] * offsets[:, 1] - heading[1] * offsets[:, 0]
    return np.degrees(np.arctan2(cross, offsets @ heading))


def _turn_name(bearing: float) -> str | None:
    bearing = float(wrap_deg(np.array(bearing)))
    if abs(bearing) >= BACK_DEG:
        return "Turn Back"
    if abs(bearing) < AHEAD_DEG:
        return None
    return "Turn Left" if bearing > 0 else "Turn Right"
