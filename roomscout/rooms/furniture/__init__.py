"""Furniture models: draws instances of each category with random size, colour and style.

All builders use the same axes, in metres: x along the width, y from the back (the side at the wall, 0 or less) to the
front, z up from the floor, or from the lower edge of an object that hangs on a wall.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture import bathroom, seating, small, storage, walls
from roomscout.rooms.shapes import Shape


@dataclass(frozen=True, eq=False)
class Model:
    """An instance: its `shape`, centred on x = y = 0 with its lowest point at z = 0, and `support` = (x0, y0, x1, y1,
    z), the flat area on which smaller objects can stand."""

    category: str
    shape: Shape
    support: tuple[float, float, float, float, float]

    @cached_property
    def size(self) -> tuple[float, float, float]:
        """Width, depth and height in metres."""
        low, high = self.shape.bounds
        width, depth, height = map(float, high - low)
        return width, depth, height


def draw(kind: str, rng: Generator) -> Model:
    """A random instance of `kind`, a key of `BUILDERS`."""
    category = CATEGORY_OF.get(kind, kind)
    shape = BUILDERS[kind](rng)
    low, high = shape.bounds
    middle = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    shape = shape.moved(-middle)
    if category in ("bed", "sofa"):  # the top of the mattress or the seat, which is the last box of its shape
        last_box = shape.corners[-6:].reshape(-1, 3)
        x0, y0, _ = last_box.min(axis=0).tolist()
        x1, y1, z1 = last_box.max(axis=0).tolist()
        return Model(category, shape, (x0, y0, x1, y1, z1))
    width, depth, height = high - low
    return Model(category, shape, (-width / 2, -depth / 2, width / 2, depth / 2, height))


BUILDERS: dict[str, Callable[[Generator], Shape]] = {
    name.removeprefix("cardboard_").replace("_", " "): builder
    for module in (bathroom, seating, small, storage, walls)
    for name, builder in vars(module).items()
    if not name.startswith("_") and getattr(builder, "__module__", "") == module.__name__
}
"""The public functions of these modules, by the kind of furniture that each makes."""
# Kinds that people call by the name of another category.
CATEGORY_OF = {"coffee table": "table", "table lamp": "lamp", "tv bench": "cabinet", "wall tv": "tv"}
CATEGORIES = tuple(sorted({CATEGORY_OF.get(kind, kind) for kind in BUILDERS}))
