"""What each category looks like: every call draws one instance with its own size, colour and style.

All shapes are built in the same frame: x runs along the width, y from the back (0 or less, the side that stands at
a wall) to the front, z upwards from the floor or, for what hangs on a wall, from its own lower edge. Metres.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator

from data.rooms.furniture import bathroom, seating, small, storage, walls
from data.rooms.shapes import Shape


@dataclass(frozen=True, eq=False)
class Model:
    """One drawn instance: its `shape`, centred on x = y = 0 with its lowest point at z = 0, and the flat place where
    smaller things may rest on it, `rest` = (x0, y0, x1, y1, z) in the same frame."""

    category: str
    shape: Shape
    rest: tuple[float, float, float, float, float]

    @cached_property
    def size(self) -> tuple[float, float, float]:
        """Width, depth and height in metres."""
        low, high = self.shape.bounds
        width, depth, height = (float(v) for v in high - low)
        return width, depth, height


def draw(kind: str, rng: Generator) -> Model:
    """One random instance of `kind`, a key of `BUILDERS`."""
    category = CATEGORY_OF.get(kind, kind)
    shape = BUILDERS[kind](rng)
    low, high = shape.bounds
    middle = np.array([(low[0] + high[0]) / 2, (low[1] + high[1]) / 2, low[2]])
    shape = shape.moved(-middle)
    width, depth, height = high - low
    return Model(category, shape, _rest(category, shape, width, depth, height))


def _rest(
    category: str, shape: Shape, width: float, depth: float, height: float
) -> tuple[float, float, float, float, float]:
    """The resting place: the whole top, or the mattress or seat that a bed or sofa builder ends its shape with."""
    if category in ("bed", "sofa"):
        lying = shape.corners[-6:].reshape(-1, 3)
        (x0, y0, _), (x1, y1, z1) = lying.min(axis=0), lying.max(axis=0)
        return float(x0), float(y0), float(x1), float(y1), float(z1)
    return -width / 2, -depth / 2, width / 2, depth / 2, height


BUILDERS: dict[str, Callable[[Generator], Shape]] = {
    "armchair": seating.armchair,
    "backpack": small.backpack,
    "bathtub": bathroom.bathtub,
    "bed": seating.bed,
    "bookshelf": storage.bookshelf,
    "box": small.cardboard_box,
    "cabinet": storage.cabinet,
    "chair": seating.chair,
    "clock": walls.clock,
    "coffee table": seating.coffee_table,
    "desk": seating.desk,
    "door": walls.door,
    "heater": walls.heater,
    "lamp": small.lamp,
    "microwave": storage.microwave,
    "mirror": walls.mirror,
    "monitor": small.monitor,
    "nightstand": storage.nightstand,
    "picture": walls.picture,
    "pillow": seating.pillow,
    "plant": small.plant,
    "refrigerator": storage.refrigerator,
    "sink": bathroom.sink,
    "sofa": seating.sofa,
    "stool": seating.stool,
    "stove": storage.stove,
    "suitcase": small.suitcase,
    "table": seating.table,
    "table lamp": small.table_lamp,
    "toilet": bathroom.toilet,
    "towel": bathroom.towel,
    "trash can": small.trash_can,
    "tv": small.tv,
    "tv bench": storage.tv_bench,
    "wall tv": small.wall_tv,
    "wardrobe": storage.wardrobe,
    "washer": bathroom.washer,
    "whiteboard": walls.whiteboard,
    "window": walls.window,
}
# Kinds that a person calls by another category's name.
CATEGORY_OF = {"coffee table": "table", "table lamp": "lamp", "tv bench": "cabinet", "wall tv": "tv"}
CATEGORIES = tuple(sorted({CATEGORY_OF.get(kind, kind) for kind in BUILDERS}))
