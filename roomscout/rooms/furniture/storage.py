"""Storage furniture and kitchen appliances."""

import itertools

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture.parts import (
    CERAMIC,
    CHROME,
    DARK,
    FABRIC,
    PAINT,
    STEEL,
    VIVID,
    WOOD,
    front,
    legs,
    pick,
    sizes,
    tint,
)
from roomscout.rooms.shapes import Shape, box, ellipsoid, join, lathe, rod


def nightstand(rng: Generator) -> Shape:
    """A nightstand with two drawers and round knobs."""
    w, d, h = sizes(rng, (0.38, 0.52), (0.34, 0.42), (0.4, 0.68))
    colour = pick(rng, WOOD)
    z = np.linspace(0.08, h - 0.03, 3)
    drawers = [front(0, w, d, a, b, tint(colour, 1.15), "knob") for a, b in itertools.pairwise(z)]
    return join(
        legs((0, 0, w, d), 0.08, 0.05, colour),
        box((0, 0, 0.06), (w, d, h - 0.03), colour),
        box((-0.015, 0, h - 0.03), (w + 0.015, d + 0.03, h), tint(colour, 0.8)),
        *drawers,
    )


def wardrobe(rng: Generator) -> Shape:
    """A wardrobe with two or three tall doors and upright handles."""
    doors = int(rng.integers(2, 4))
    w = doors * rng.uniform(0.42, 0.55)
    d, h = sizes(rng, (0.52, 0.62), (1.5, 2.25))
    colour = pick(rng, WOOD + PAINT[:2])
    x = np.linspace(0.02, w - 0.02, doors + 1)
    sides = ("right", "left")  # of the handles
    leaves = [
        front(a, b, d, 0.1, h - 0.06, tint(colour, 1.1), sides[i % 2]) for i, (a, b) in enumerate(itertools.pairwise(x))
    ]
    crown = box((-0.02, 0, h - 0.06), (w + 0.02, d + 0.03, h), tint(colour, 0.8))
    return join(box((0, 0, 0), (w, d, h - 0.05), tint(colour, 0.7)), crown, *leaves)


def cabinet(rng: Generator) -> Shape:
    """A waist-high row of doors."""
    doors = int(rng.integers(2, 5))
    w = doors * rng.uniform(0.36, 0.54)
    d, h = sizes(rng, (0.4, 0.5), (0.75, 0.95))
    return _sideboard(rng, doors, w, d, h)


def tv_bench(rng: Generator) -> Shape:
    """A low row of doors."""
    doors = int(rng.integers(3, 5))
    return _sideboard(rng, doors, rng.uniform(1.0, 2.0), rng.uniform(0.38, 0.46), rng.uniform(0.42, 0.56))


def _sideboard(rng: Generator, doors: int, w: float, d: float, h: float) -> Shape:
    colour = pick(rng, WOOD + PAINT)
    top = pick(rng, WOOD)
    x = np.linspace(0, w, doors + 1)
    leaves = [front(a, b, d, 0.09, h - 0.05, colour, "bar") for a, b in itertools.pairwise(x)]
    return join(
        box((0.03, 0.03, 0), (w - 0.03, d - 0.04, 0.08), DARK),
        box((0, 0, 0.07), (w, d, h - 0.04), tint(colour, 0.75)),
        box((-0.015, 0, h - 0.04), (w + 0.015, d + 0.03, h), top),
        *leaves,
    )


def bookshelf(rng: Generator) -> Shape:
    """Open shelves with books."""
    w, d, h = sizes(rng, (0.7, 1.2), (0.26, 0.34), (0.95, 2.2))
    wood = pick(rng, WOOD + PAINT[:1])
    shelves = np.linspace(0.06, h - 0.02, round(h / 0.36) + 1)
    parts = [
        box((0, 0, 0), (0.03, d, h), wood),
        box((w - 0.03, 0, 0), (w, d, h), wood),
        box((0, 0, 0), (w, 0.015, h), tint(wood, 0.6)),
    ]
    for low, high in itertools.pairwise(shelves):
        parts.append(box((0.03, 0.01, low - 0.025), (w - 0.03, d - 0.005, low), wood))
        parts += _books(rng, w, d, low, high - 0.03)
    return join(*parts, box((0.0, 0, h - 0.03), (w, d, h), wood))


def _books(rng: Generator, w: float, d: float, low: float, high: float) -> list[Shape]:
    books = []
    x = 0.04
    end = w - 0.04 - rng.uniform(0, 0.35) * w
    while x < end - 0.06:
        thick = rng.uniform(0.028, 0.06)
        tall = (high - low) * rng.uniform(0.65, 0.95)
        depth = d * rng.uniform(0.7, 0.92)
        books.append(box((x, 0.02, low), (x + thick, depth, low + tall), pick(rng, VIVID + FABRIC, 25)))
        x += thick + 0.004
    return books


def refrigerator(rng: Generator) -> Shape:
    """A refrigerator with two doors and upright handles."""
    w, d, h = sizes(rng, (0.58, 0.82), (0.6, 0.7), (1.2, 2.0))
    colour = pick(rng, STEEL + CERAMIC)
    split = h * rng.uniform(0.6, 0.7)
    doors = [
        join(
            box((0, d, low), (w, d + 0.05, high), tint(colour, 1.04)),
            box((0.05, d + 0.05, low + a * (high - low)), (0.09, d + 0.1, low + b * (high - low)), (90, 92, 96)),
        )
        for low, high, a, b in ((0.06, split - 0.01, 0.5, 0.95), (split + 0.01, h, 0.08, 0.6))
    ]
    return join(
        box((0, 0, 0.03), (w, d, h), tint(colour, 0.8)), box((0.03, 0.03, 0), (w - 0.03, d, 0.06), DARK), *doors
    )


def stove(rng: Generator) -> Shape:
    """A stove with four burners above an oven."""
    w, d, h = sizes(rng, (0.56, 0.76), (0.58, 0.64), (0.86, 0.93))
    colour = pick(rng, CERAMIC + STEEL + [(60, 60, 64)])
    burners = [
        lathe((x * w, y * d, h), [(r, 0), (r, 0.012), (r - 0.03, 0.012), (r - 0.03, 0)], (20, 20, 22), 12)
        for x, y, r in ((0.27, 0.3, 0.08), (0.73, 0.3, 0.1), (0.27, 0.72, 0.1), (0.73, 0.72, 0.08))
    ]
    hubs = [
        ellipsoid((x * w, y * d, h), (0.03, 0.03, 0.015), (200, 70, 50), 8) for x in (0.27, 0.73) for y in (0.3, 0.72)
    ]
    knobs = [
        rod((x * w, d, h - 0.07), (x * w, d + 0.035, h - 0.07), 0.022, DARK) for x in (0.15, 0.32, 0.5, 0.68, 0.85)
    ]
    return join(
        box((0, 0, 0), (w, d, h - 0.02), colour),
        box((0.0, 0.0, h - 0.02), (w, d, h), (52, 52, 56)),
        box((0, 0, h), (w, 0.03, h + 0.09), colour),
        box((0.06, d, 0.28), (w - 0.06, d + 0.012, h - 0.24), (26, 26, 30)),
        rod((0.07, d + 0.04, h - 0.18), (w - 0.07, d + 0.04, h - 0.18), 0.013, CHROME),
        box((0.02, d, 0.04), (w - 0.02, d + 0.01, 0.22), tint(colour, 0.9)),
        *burners,
        *hubs,
        *knobs,
    )


def microwave(rng: Generator) -> Shape:
    """A microwave with a dark window beside its buttons."""
    w, d, h = sizes(rng, (0.4, 0.58), (0.3, 0.38), (0.26, 0.31))
    colour = pick(rng, STEEL + CERAMIC)
    buttons = [
        box((w - 0.09 + 0.03 * i, d, 0.06 + 0.04 * j), (w - 0.07 + 0.03 * i, d + 0.006, 0.085 + 0.04 * j), (90, 90, 96))
        for i in range(2)
        for j in range(3)
    ]
    return join(
        box((0, 0, 0), (w, d, h), colour),
        box((0.02, d, 0.03), (w - 0.13, d + 0.008, h - 0.03), (24, 24, 28)),
        box((w - 0.12, d, 0.04), (w - 0.105, d + 0.03, h - 0.04), (70, 70, 74)),
        box((w - 0.09, d, h - 0.07), (w - 0.03, d + 0.006, h - 0.03), (60, 220, 140)),
        *buttons,
    )
