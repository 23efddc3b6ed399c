"""Edits of a furnished room: what is edited changes, and the rest stays as it is.

An edit returns another arrangement, or None where the furniture does not fit by the rules of placement.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture import Model
from roomscout.rooms.geometry import OrientedBox, wrap_deg
from roomscout.rooms.layout import IN_FRONT_M, STANDING_M, place_small
from roomscout.rooms.placement import FloorPlan, Placer, RoomObject
from roomscout.rooms.room import standing_points, visible_items
from roomscout.rooms.shapes import Shape

LEAST_MOVE_M = 0.6
AT_WALL_M = 0.3  # an object whose back is so near to a wall stands there, and moves with it
MOVE_TRIES = 60


@dataclass(frozen=True, eq=False)
class Arrangement:
    """A floor plan and the furniture in it."""

    plan: FloorPlan
    objects: tuple[RoomObject, ...]
    origins: tuple[int, ...]  # of each object its number before all edits; new ones have the next numbers

    @classmethod
    def of(cls, plan: FloorPlan, objects: Iterable[RoomObject]) -> "Arrangement":
        """The arrangement before all edits."""
        objects = tuple(objects)
        return cls(plan, objects, tuple(range(len(objects))))

    def carried_by(self, index: int) -> set[int]:
        """The indices of an object and of all that stand on it."""
        carried = {index}
        for place, item in enumerate(self.objects):  # an object comes after the one it stands on
            if item.supported_by in carried:
                carried.add(place)
        return carried

    @property
    def movable(self) -> list[int]:
        """The indices of the objects that stand on nothing and carry nothing, without doors and windows."""
        return [
            index
            for index, item in enumerate(self.objects)
            if item.supported_by is None
            and item.category not in ("door", "window")
            and self.carried_by(index) == {index}
        ]

    def is_visible(self) -> bool:
        """Whether a person in the room can see all objects."""
        standpoints = standing_points(self.plan, [item.box for item in self.objects])
        return bool(visible_items(standpoints, self.plan, self.objects).all())

    def _with(self, index: int, item: RoomObject | None) -> "Arrangement | None":
        if item is None:
            return None
        return replace(self, objects=(*self.objects[:index], item, *self.objects[index + 1 :]))

    def _placer(self, without: Collection[int] = (), rng: Generator | None = None) -> Placer:
        """What places furniture among all other objects, and keeps the middle of the room clear and what is in front of
        doors, windows and furniture at a wall."""
        others = [item for index, item in enumerate(self.objects) if index not in without]
        clear = [OrientedBox((*self.plan.middle, 1.0), (STANDING_M, STANDING_M, 2.0))]
        for item in others:
            reach = IN_FRONT_M.get(item.category, 0.0)
            if reach and item.supported_by is None and _at_wall(self.plan, item.box):
                bottom = item.box.bottom if item.box.bottom > 0.5 else 0.0
                clear.append(Placer.in_front(item.box, reach, bottom, item.box.top))
        return Placer(self.plan, rng or np.random.default_rng(0), others, clear)


def removed(room: Arrangement, gone: Collection[int]) -> Arrangement:
    """Without the objects at these indices, which carry nothing."""
    kept = [index for index in range(len(room.objects)) if index not in gone]
    places: dict[int | None, int | None] = {None: None, **{index: place for place, index in enumerate(kept)}}
    objects = [replace(room.objects[index], supported_by=places[room.objects[index].supported_by]) for index in kept]
    return Arrangement(room.plan, tuple(objects), tuple(room.origins[index] for index in kept))


def added(room: Arrangement, category: str, rng: Generator) -> Arrangement | None:
    """With one more small object of a category, somewhere on the floor or at a wall."""
    placer = room._placer(rng=rng)
    if place_small(placer, category) is None:
        return None
    number = 1 + max(room.origins, default=-1)
    return Arrangement(room.plan, tuple(placer.items), (*room.origins, number))


def moved(room: Arrangement, index: int, rng: Generator) -> Arrangement | None:
    """With a `movable` object at another place of its kind, at a wall or in the open, LEAST_MOVE_M away or more."""
    item = room.objects[index]
    model = _model_of(item)
    stands_at_wall = _at_wall(room.plan, item.box)
    placer = room._placer({index}, rng)
    walls = placer.walls()
    for _ in range(MOVE_TRIES):
        if stands_at_wall:
            start, along, length = walls[rng.integers(len(walls))]
            spare = length - model.size[0] - 0.04
            if spare <= 0:
                continue
            t = model.size[0] / 2 + 0.02 + rng.uniform(0, spare)
            place = placer.put_at_wall(model, start, along, t, item.box.bottom, IN_FRONT_M.get(item.category, 0.0))
        else:
            x, y = rng.uniform(room.plan.corners.min(axis=0), room.plan.corners.max(axis=0))
            place = placer.put(model, x, y, item.box.bottom, item.box.yaw_deg + rng.uniform(-15, 15))
        if place is None:
            continue
        new = placer.items[place]
        if np.linalg.norm(new.box.plan_center - item.box.plan_center) >= LEAST_MOVE_M:
            return room._with(index, new)
        placer = room._placer({index}, rng)  # without the one that was put too near
    return None


def turned(room: Arrangement, index: int, degrees: float) -> Arrangement | None:
    """With a `movable` object turned on its place, counter-clockwise seen from above."""
    box = room.objects[index].box
    x, y = box.center[:2]
    return room._with(index, _put(room, {index}, index, x, y, box.bottom, box.yaw_deg + degrees))


def swapped(room: Arrangement, first: int, second: int) -> Arrangement | None:
    """With two `movable` objects in each other's places: their backs are where those of the others were."""
    one = room.objects[first].box
    two = room.objects[second].box
    if one.bottom != two.bottom:
        return None
    between = room
    for index, box in ((first, two), (second, one)):
        depth = room.objects[index].box.size[1]
        x, y = box.plan_point(np.array([0.0, (depth - box.size[1]) / 2]))
        away = {first, second} if index == first else {second}
        changed = between._with(index, _put(between, away, index, x, y, box.bottom, box.yaw_deg))
        if changed is None:
            return None
        between = changed
    return between


def resized(room: Arrangement, index: int, factor: float) -> Arrangement | None:
    """With a `movable` object so many times as large; its back stays where it is, and what stands stays on the floor,
    what hangs in its height."""
    item = room.objects[index]
    box = item.box
    middle = box.bottom if box.bottom < 0.05 else box.center[2]
    anchor = np.array([*box.plan_point(np.array([0.0, -box.size[1] / 2])), middle])
    corners = anchor + factor * (item.surface.corners - anchor)
    x, y, z = (anchor + factor * (np.array(box.center) - anchor)).tolist()
    width, depth, height = (factor * size for size in box.size)
    new = OrientedBox((x, y, z), (width, depth, height), box.yaw_deg)
    placer = room._placer({index})
    if new.bottom < -1e-9 or not placer.fits(new):
        return None
    x0, y0, x1, y1, top = (factor * number for number in item.support)
    return room._with(
        index, replace(item, box=new, surface=Shape(corners, item.surface.colours), support=(x0, y0, x1, y1, top))
    )


def wall_moved(room: Arrangement, axis: int, metres: float) -> Arrangement | None:
    """With the farthest wall along an axis (0 or 1) moved outwards, and what stands or hangs there moved with it."""
    corners = room.plan.corners.copy()
    edge = corners[:, axis].max()
    corners[corners[:, axis] == edge, axis] += metres
    notches = []
    for notch in room.plan.notches:
        if notch.footprint[:, axis].max() < edge - 1e-6:
            notches.append(notch)
            continue
        center = list(notch.center)
        size = list(notch.size)
        center[axis] += metres / 2
        size[axis] += metres
        notches.append(OrientedBox((center[0], center[1], center[2]), (size[0], size[1], size[2])))
    plan = FloorPlan(np.round(corners, 2), room.plan.height, tuple(notches))
    offset = np.zeros(3)
    offset[axis] = metres
    at_wall = {
        place
        for index, item in enumerate(room.objects)
        if item.supported_by is None and item.box.footprint[:, axis].max() > edge - AT_WALL_M
        for place in room.carried_by(index)
    }
    objects = list(room.objects)
    for index in at_wall:
        item = objects[index]
        x, y, z = (np.array(item.box.center) + offset).tolist()
        objects[index] = replace(item, box=replace(item.box, center=(x, y, z)), surface=item.surface.moved(offset))
    changed = replace(room, plan=plan, objects=tuple(objects))
    placer = changed._placer(at_wall)
    return changed if all(placer.fits(objects[index].box, strict=False) for index in at_wall) else None


def _at_wall(plan: FloorPlan, box: OrientedBox) -> bool:
    """Whether the back of a box is at a wall."""
    back = box.plan_point(np.array([0.0, -box.size[1] / 2]))
    starts = plan.corners
    ends = np.roll(starts, -1, axis=0)
    for start, end in zip(starts, ends, strict=True):
        along = (end - start) / np.linalg.norm(end - start)
        inward = np.array([-along[1], along[0]])
        heading = np.degrees(np.arctan2(along[1], along[0]))
        is_parallel = abs(float(wrap_deg(np.array(box.yaw_deg - heading)))) < 1.0
        if is_parallel and 0 <= (back - start) @ inward < AT_WALL_M:
            return True
    return False


def _put(
    room: Arrangement, without: Collection[int], index: int, x: float, y: float, bottom: float, yaw_deg: float
) -> RoomObject | None:
    """The object at an index, put elsewhere among all but those `without`."""
    placer = room._placer(without)
    place = placer.put(_model_of(room.objects[index]), x, y, bottom, yaw_deg)
    return None if place is None else placer.items[place]


def _model_of(item: RoomObject) -> Model:
    """The object as it is before it is placed."""
    x, y = item.box.center[:2]
    shape = item.surface.moved((-x, -y, -item.box.bottom)).turned(-item.box.yaw_deg)
    return Model(item.category, shape, item.support)
