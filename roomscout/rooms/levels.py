"""Levels of difficulty: how much is in a room, which plan it has, and how well it is scanned."""

from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.random import Generator

from roomscout.rooms.layout import draw_concave_plan, draw_plan, draw_rectangle
from roomscout.rooms.placement import FloorPlan
from roomscout.rooms.scan import ScanStyle

MAX_OBJECTS = 100


@dataclass(frozen=True)
class Level:
    """How rooms are made.

    `objects` are the smallest and the largest number of objects in a room: a room with fewer is filled up, and one with
    more is thinned out. None takes the furniture as it comes, 10 to 50 objects. Raises ValueError for impossible
    numbers.
    """

    name: str
    plan: Callable[[Generator], FloorPlan] = draw_plan
    objects: tuple[int, int] | None = None
    style: ScanStyle = field(default_factory=ScanStyle)

    def __post_init__(self) -> None:
        if self.objects is not None and not 9 <= self.objects[0] <= self.objects[1] <= MAX_OBJECTS:
            least, most = self.objects
            raise ValueError(
                f"objects must be two numbers from 9 to {MAX_OBJECTS}, the smaller first, not {least} {most}"
            )


FURNISHED = Level("furnished")
"""The rooms of the demo and of the explorer's training."""
LEVELS = {
    each.name: each
    for each in (
        Level("bare", draw_rectangle, (10, 15)),
        FURNISHED,
        Level("cluttered", draw_concave_plan, (32, 70), ScanStyle(noise_m=0.008, holes=12)),
    )
}
