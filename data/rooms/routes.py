"""Walks from object to object in straight lines, and the turns between them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from data.rooms.geometry import OrientedBox, points_in_polygon, wrap_deg
from data.rooms.room import Room

TURNS = ("Turn Left", "Turn Right", "Turn Back")
MOST_BLANKS = 3
STAND_OFF_M = 0.35  # "go forward until the X" ends this far in front of X
BODY_M = 0.2  # smallest distance of a walk from other objects
SHORTEST_M = 0.5
AHEAD_DEG, BACK_DEG, MARGIN_DEG = 25.0, 135.0, 10.0  # below AHEAD is not a turn; from BACK on it is "back"
STEP_OVER_M = 1.0  # objects that start above this height do not block a walk
FACED_FIRST = 0.7  # share of routes that first go to the faced object, as most in the benchmark do


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
    """Where the robot is: at `point` by object `place`, looking along `heading` (2,); `plan_heading` is the same
    direction taken from centre to centre of the objects instead of from where the robot stands."""

    place: int
    point: np.ndarray
    heading: np.ndarray
    plan_heading: np.ndarray


@dataclass(frozen=True, eq=False)
class RouteMap:
    """A room as a robot walks it: footprints of its objects in plan."""

    room: Room

    @cached_property
    def _boxes(self) -> list[OrientedBox]:
        return [o.box for o in self.room.objects] + ([self.room.plan.notch] if self.room.plan.notch else [])

    @cached_property
    def _centers(self) -> np.ndarray:
        return np.array([b.plan_center for b in self._boxes])

    @cached_property
    def _axes(self) -> np.ndarray:
        """(N, 2, 2) unit vectors along the width and the depth of each footprint."""
        return np.array([[[b.front[1], -b.front[0]], b.front] for b in self._boxes])

    @cached_property
    def _halves(self) -> np.ndarray:
        return np.array([b.size[:2] for b in self._boxes]) / 2

    @cached_property
    def _in_the_way(self) -> np.ndarray:
        return np.array([b.bottom < STEP_OVER_M for b in self._boxes])

    @cached_property
    def landmarks(self) -> tuple[int, ...]:
        """Indices in `room.objects` of the objects a route can name: unique in their category, on floor or wall."""
        unique = {o.category for o in self.room.unique_objects}
        objects = enumerate(self.room.objects)
        return tuple(i for i, o in objects if o.category in unique and o.supported_by is None)

    def crossings(self, start: np.ndarray, end: np.ndarray, margin: float) -> tuple[np.ndarray, np.ndarray]:
        """Where the line from `start` (0) to `end` (1), (2,) each, enters and leaves every footprint grown by
        `margin` metres, (N,) each; a line that misses a footprint enters it after it leaves."""
        origin = np.einsum("nak,nk->na", self._axes, start - self._centers)
        along = self._axes @ (end - start)
        along = np.where(np.abs(along) < 1e-9, 1e-9, along)
        half = self._halves + margin
        a, b = (-half - origin) / along, (half - origin) / along
        return np.minimum(a, b).max(axis=1), np.maximum(a, b).min(axis=1)

    def blocked(self, start: np.ndarray, end: np.ndarray, but: int) -> bool:
        """Whether the straight walk leaves the room or comes near any object except number `but`."""
        if not points_in_polygon(np.array([start, end]), self.room.polygon).all():
            return True
        enter, leave = self.crossings(start, end, BODY_M)
        hit = self._in_the_way & (enter < leave) & (leave > 0) & (enter < 1)
        hit[but] = False
        return bool(hit.any())

    def begin(self, start: int, facing: int) -> _Walker | None:
        """Stand just outside the start's footprint, on the side of the faced object; None if that spot is blocked."""
        origin, goal = self._centers[start], self._centers[facing]
        share = float(self.crossings(origin, goal, STAND_OFF_M)[1][start])
        point = origin + share * (goal - origin)
        if share >= 1.0 or self.blocked(point, point, but=start):
            return None
        heading = (goal - origin) / np.linalg.norm(goal - origin)
        return _Walker(start, point, heading, heading)

    def walk(self, walker: _Walker, target: int) -> _Walker | None:
        """Go straight to the target and stop before it; None if something is in the way or it is too near."""
        goal = self._centers[target]
        share = max(float(self.crossings(walker.point, goal, STAND_OFF_M)[0][target]), 0.0)
        stop = walker.point + share * (goal - walker.point)
        walked = float(np.linalg.norm(stop - walker.point))
        if walked < SHORTEST_M or self.blocked(walker.point, stop, but=target):
            return None
        plan = goal - self._centers[walker.place]
        return _Walker(target, stop, (stop - walker.point) / walked, plan / np.linalg.norm(plan))

    def turn(self, walker: _Walker, target: int) -> str | None:
        """The turn that makes the robot face the target; None if it is not clear which.

        It must be the same, by a margin, from where the robot stands and from centre to centre on a floor plan, and
        for every part of the inner half of the target's footprint.
        """
        box = self._boxes[target]
        inner = box.plan_center + (box.footprint - box.plan_center) / 2
        seen = np.vstack([box.plan_center, inner]) - walker.point
        drawn = (box.plan_center - self._centers[walker.place])[None]
        bearings = np.concatenate([_bearing(walker.heading, seen), _bearing(walker.plan_heading, drawn)])
        names = {_turn_name(b) for b in (bearings[:, None] + [-MARGIN_DEG, 0.0, MARGIN_DEG]).ravel()}
        return names.pop() if len(names) == 1 else None


def draw_route(paths: RouteMap, rng: Generator, blanks: int) -> Route | None:
    """A random route with this many blanks, or None if the random walk reaches a dead end."""
    if len(paths.landmarks) < 3:
        return None
    start, facing = (int(i) for i in rng.choice(paths.landmarks, 2, replace=False))
    walker = paths.begin(start, facing)
    stops: list[int] = []
    turns: list[str] = []
    if walker is not None and rng.random() < FACED_FIRST:
        walker = paths.walk(walker, facing)
        stops.append(facing)
    while walker is not None and len(turns) < blanks:
        turn, walker = _next_leg(paths, rng, walker, {start, facing, *stops})
        if walker is not None:
            turns.append(turn)
            stops.append(walker.place)
    if walker is None:
        return None
    names = [o.category for o in paths.room.objects]
    return Route(
        names[start],
        names[facing],
        tuple(names[i] for i in stops),
        tuple(turns),
        _steps([names[i] for i in stops], blanks),
    )


def _next_leg(paths: RouteMap, rng: Generator, walker: _Walker, been: Collection[int]) -> tuple[str, _Walker | None]:
    """A random clear turn and the walk after it; all turns that lead to a landmark are equally likely."""
    legs: dict[str, list[_Walker]] = {}
    for target in paths.landmarks:
        turn = paths.turn(walker, target) if target not in been else None
        arrived = paths.walk(walker, target) if turn else None
        if turn and arrived:
            legs.setdefault(turn, []).append(arrived)
    if not legs:
        return "", None
    turn = list(legs)[rng.integers(len(legs))]
    return turn, legs[turn][rng.integers(len(legs[turn]))]


def _steps(stops: Sequence[str], blanks: int) -> tuple[str, ...]:
    """The walk in words; with as many blanks as stops, it begins with a turn."""
    steps: list[str] = []
    for i, stop in enumerate(stops):
        if i >= len(stops) - blanks:
            steps.append("[please fill in]")
        steps.append(f"Go forward until the {stop}")
    return tuple(steps)


def _bearing(heading: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(N,) degrees from the heading to each of (N, 2) offsets, + = left."""
    cross = heading[0] * offsets[:, 1] - heading[1] * offsets[:, 0]
    return np.degrees(np.arctan2(cross, offsets @ heading))


def _turn_name(bearing: float) -> str | None:
    bearing = float(wrap_deg(np.array(bearing)))
    if abs(bearing) >= BACK_DEG:
        return "Turn Back"
    if abs(bearing) < AHEAD_DEG:
        return None
    return "Turn Left" if bearing > 0 else "Turn Right"
