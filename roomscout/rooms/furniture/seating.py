"""Seats, beds, tables and desks."""

import itertools

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture.parts import CHROME, DARK, FABRIC, PAINT, VIVID, WOOD, front, legs, pick, sizes, tint
from roomscout.rooms.shapes import Shape, box, cushion, ellipsoid, join, lathe, rod


def chair(rng: Generator) -> Shape:
    """A dining or an office chair."""
    return _office_chair(rng) if rng.random() < 0.35 else _dining_chair(rng)


def _dining_chair(rng: Generator) -> Shape:
    w, d, seat, top = sizes(rng, (0.42, 0.5), (0.44, 0.52), (0.43, 0.48), (0.76, 1.12))
    frame = pick(rng, WOOD)
    pad = pick(rng, FABRIC) if rng.random() < 0.5 else tint(frame, 1.1)
    posts = [box((x, 0, seat), (x + 0.04, 0.04, top), frame) for x in (0, w - 0.04)]
    if rng.random() < 0.5:
        back = [
            box((0.04, 0.005, z), (w - 0.04, 0.03, z + 0.07), frame) for z in np.linspace(seat + 0.12, top - 0.08, 3)
        ]
    else:
        back = [box((0.02, 0.0, seat + 0.14), (w - 0.02, 0.05, top + 0.01), pad)]
    cushion = box((0, 0, seat - 0.05), (w, d, seat), pad)
    return join(legs((0, 0, w, d), seat - 0.04, 0.045, frame), cushion, *posts, *back)


def _office_chair(rng: Generator) -> Shape:
    seat, top, w = sizes(rng, (0.45, 0.52), (0.86, 1.25), (0.48, 0.54))
    pad = pick(rng, [*FABRIC, DARK, DARK])
    spokes = []
    for angle in np.radians([45, 135, 225, 315, 90]):
        tip = (0.29 * np.cos(angle), 0.29 * np.sin(angle), 0.05)
        spokes += [rod((0, 0, 0.09), tip, 0.025, DARK, sides=6), ellipsoid(tip, (0.035, 0.035, 0.05), DARK, sides=8)]
    arms = [
        join(
            box((x - 0.03, -0.12, seat + 0.2), (x + 0.03, 0.16, seat + 0.24), DARK),
            box((x - 0.02, -0.02, seat), (x + 0.02, 0.03, seat + 0.2), DARK),
        )
        for x in (-w / 2 - 0.01, w / 2 + 0.01)
    ]
    return join(
        *spokes,
        rod((0, 0, 0.06), (0, 0, seat - 0.06), 0.03, CHROME),
        box((-w / 2, -0.25, seat - 0.08), (w / 2, 0.25, seat), pad),
        box((-0.04, -0.27, seat - 0.05), (0.04, -0.23, seat + 0.2), DARK),
        box((-w / 2 + 0.03, -0.29, seat + 0.12), (w / 2 - 0.03, -0.22, top), pad),
        *arms,
    )


def stool(rng: Generator) -> Shape:
    """A round seat on four legs, low or at bar height."""
    r, h = sizes(rng, (0.16, 0.21), (0.38, 0.78))
    wood = pick(rng, WOOD)
    seat = pick(rng, VIVID + WOOD)
    legs = [
        rod((0.95 * r * c, 0.95 * r * s, 0), (0.6 * r * c, 0.6 * r * s, h - 0.03), 0.02, wood, sides=6)
        for c, s in ((0.71, 0.71), (-0.71, 0.71), (0.71, -0.71), (-0.71, -0.71))
    ]
    bar = 0.74 * r * 0.71
    rungs = [rod((-bar, y, 0.4 * h), (bar, y, 0.4 * h), 0.012, wood, sides=6) for y in (-bar, bar)]
    top = lathe((0, 0, h - 0.05), [(0, 0), (r, 0), (r, 0.04), (r - 0.02, 0.05), (0, 0.05)], seat)
    return join(*legs, *rungs, top)


def _seat_furniture(rng: Generator, width: float, seats: int) -> Shape:
    """A sofa or armchair with a cushion per seat. The last box is the seat."""
    d, seat, top, arm = sizes(rng, (0.8, 0.95), (0.4, 0.46), (0.78, 0.92), (0.14, 0.2))
    colour = pick(rng, FABRIC)
    dark = tint(colour, 0.72)
    light = tint(colour, 1.12)
    inner = (width - 2 * arm) / seats
    parts = [
        legs((0.03, 0.03, width - 0.03, d - 0.03), 0.09, 0.06, DARK),
        box((0, 0, 0.08), (width, d, seat - 0.14), dark),
        box((0, 0, 0.08), (width, 0.2, top - 0.06), dark),
        box((0, 0, 0.08), (arm, d, seat + 0.2), colour),
        box((width - arm, 0, 0.08), (width, d, seat + 0.2), colour),
    ]
    for i in range(seats):
        x0 = arm + i * inner + 0.012
        x1 = arm + (i + 1) * inner - 0.012
        parts += [
            box((x0, 0.2, seat - 0.14), (x1, d + 0.02, seat), light),
            box((x0, 0.17, seat), (x1, 0.32, top), light).turned(6, "x", (0, 0.2, seat)),
        ]
    return join(*parts, box((arm, 0.3, seat - 0.02), (width - arm, d, seat - 0.001), colour))


def sofa(rng: Generator) -> Shape:
    """Two or three seats between arms."""
    seats = int(rng.integers(2, 4))
    return _seat_furniture(rng, seats * rng.uniform(0.5, 0.85) + 0.34, seats)


def armchair(rng: Generator) -> Shape:
    """One seat between arms."""
    return _seat_furniture(rng, rng.uniform(0.75, 1.1), 1)


def table(rng: Generator) -> Shape:
    """A dining table."""
    return _plain_table(rng, (0.8, 2.1), (0.75, 1.0), (0.72, 0.78))


def coffee_table(rng: Generator) -> Shape:
    """A low table."""
    return _plain_table(rng, (0.7, 1.4), (0.45, 0.7), (0.36, 0.46))


def _plain_table(rng: Generator, *ranges: tuple[float, float]) -> Shape:
    w, d, h = sizes(rng, *ranges)
    top = pick(rng, WOOD + PAINT[:1])
    frame = pick(rng, WOOD)
    apron = box((0.06, 0.06, h - 0.12), (w - 0.06, d - 0.06, h - 0.04), tint(frame, 0.9))
    return join(
        legs((0.03, 0.03, w - 0.03, d - 0.03), h - 0.04, 0.07, frame), apron, box((0, 0, h - 0.04), (w, d, h), top)
    )


def desk(rng: Generator) -> Shape:
    """A writing desk with drawers on one side."""
    w, d, h = sizes(rng, (0.95, 2.0), (0.55, 0.8), (0.71, 0.77))
    top = pick(rng, WOOD + PAINT[:2])
    body = tint(top, 0.85)
    drawer = tint(top, 1.05)
    side = 0.42
    z = np.linspace(0.06, h - 0.05, 4)
    drawers = [front(w - side, w - 0.02, d - 0.04, a, b, drawer) for a, b in itertools.pairwise(z)]
    return join(
        box((0, 0, h - 0.035), (w, d, h), top),
        box((0.02, 0.03, 0), (0.06, d - 0.03, h - 0.035), body),
        box((w - side, 0.03, 0.03), (w - 0.02, d - 0.04, h - 0.035), body),
        box((0.06, 0.04, 0.35), (w - side, 0.06, h - 0.035), body),
        *drawers,
    )


def bed(rng: Generator) -> Shape:
    """A made bed with its head at the back. The last box is the mattress."""
    w, d, h, head = sizes(rng, (0.8, 1.9), (1.65, 2.2), (0.42, 0.54), (0.85, 1.15))
    wood = pick(rng, WOOD)
    blanket = pick(rng, FABRIC + VIVID[:3])
    sheet = (238, 236, 230)
    fold = 0.72
    return join(
        legs((0.02, 0.04, w - 0.02, d - 0.02), 0.2, 0.08, tint(wood, 0.8)),
        box((0, 0, 0.1), (w, 0.07, head), wood),
        box((0, d - 0.05, 0.14), (w, d, h - 0.06), wood),
        box((0, 0.05, 0.16), (w, d, 0.32), tint(wood, 0.9)),
        box((0.0, fold, 0.26), (w, d - 0.06, h + 0.025), blanket),
        box((0.0, fold - 0.14, 0.3), (w, fold, h + 0.035), tint(blanket, 1.25)),
        box((0.03, 0.07, 0.3), (w - 0.03, d - 0.08, h), sheet),
    )


def pillow(rng: Generator) -> Shape:
    """A tilted pillow, as if it leaned on something behind it."""
    w, d, h = sizes(rng, (0.32, 0.46), (0.28, 0.4), (0.12, 0.17))
    return cushion((0, 0, 0), (w, d, h), pick(rng, VIVID + FABRIC[:4])).turned(rng.uniform(25, 60), "x")
