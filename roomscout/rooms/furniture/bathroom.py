"""Bathroom fixtures."""

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture.parts import CERAMIC, CHROME, DARK, STEEL, VIVID, legs, pick, sizes, tint
from roomscout.rooms.shapes import Shape, basin, box, ellipsoid, join, lathe, rod


def toilet(rng: Generator) -> Shape:
    """Bowl, seat, raised lid and cistern."""
    w, d, h, seat = sizes(rng, (0.37, 0.43), (0.62, 0.72), (0.68, 0.92), (0.4, 0.44))
    white = pick(rng, CERAMIC, 4)
    lid = pick(rng, [*CERAMIC, (120, 84, 56)], 4)
    middle = 0.2 + (d - 0.2) / 2
    stretch = np.array([w / 2, (d - 0.2) / 2, 1])
    bowl = lathe((0, 0, 0), [(0, 0), (0.55, 0), (0.5, 0.15), (0.95, seat - 0.05), (0.95, seat), (0, seat)], white, 20)
    ring = lathe((0, 0, seat), [(1, 0), (1, 0.03), (0.7, 0.03), (0.7, 0)], lid, 20)
    water = lathe((0, 0, seat), [(0.7, 0.004), (0, 0.006)], (120, 160, 190), 20)
    round_parts = [Shape(s.corners * stretch + np.array([w / 2, middle, 0]), s.colours) for s in (bowl, ring, water)]
    return join(
        *round_parts,
        box((w * 0.22, 0.05, 0), (w * 0.78, 0.3, seat - 0.02), white),
        box((0, 0, seat - 0.04), (w, 0.19, h - 0.04), white),
        box((-0.01, 0, h - 0.04), (w + 0.01, 0.2, h), tint(white, 0.9)),
        box((0.03, 0.21, seat + 0.03), (w - 0.03, 0.25, seat + 0.32), lid),
        ellipsoid((w / 2, 0.1, h), (0.025, 0.025, 0.015), CHROME, 8),
    )


def sink(rng: Generator) -> Shape:
    """A washbasin on a pedestal, or a steel one on legs."""
    w, d, h = sizes(rng, (0.5, 0.72), (0.42, 0.52), (0.82, 0.9))
    steel = rng.random() < 0.35
    palette = STEEL if steel else CERAMIC
    colour = pick(rng, palette, 4)
    if steel:
        stand = legs((0.02, 0.02, w - 0.02, d - 0.02), h - 0.16, 0.04, CHROME)
    else:
        profile = [(0, 0), (0.14, 0), (0.09, 0.1), (0.08, h - 0.2), (0.14, h - 0.16)]
        stand = lathe((w / 2, d * 0.42, 0), profile, colour)
    tap = [
        rod((w / 2, 0.05, h), (w / 2, 0.05, h + 0.2), 0.018, CHROME),
        rod((w / 2, 0.05, h + 0.19), (w / 2, 0.22, h + 0.15), 0.015, CHROME),
        box((w / 2 - 0.08, 0.03, h), (w / 2 + 0.08, 0.07, h + 0.03), CHROME),
    ]
    bowl = basin((0, 0, h - 0.17), (w, d, h), 0.06, 0.13, colour, tint(colour, 0.78))
    under = box((0.02, 0.02, h - 0.18), (w - 0.02, d - 0.02, h - 0.165), tint(colour, 0.9))
    return join(stand, under, bowl, *tap)


def bathtub(rng: Generator) -> Shape:
    """A tub half full of water."""
    w, d, h = sizes(rng, (1.3, 1.85), (0.68, 0.8), (0.52, 0.6))
    white = pick(rng, CERAMIC, 4)
    return join(
        basin((0, 0, 0), (w, d, h), 0.07, h - 0.12, white, tint(white, 0.86)),
        box((0.09, 0.09, 0.3), (w - 0.09, d - 0.09, 0.305), (150, 200, 216)),
        rod((0.1, d / 2, h), (0.1, d / 2, h + 0.16), 0.02, CHROME),
        rod((0.1, d / 2, h + 0.15), (0.26, d / 2, h + 0.11), 0.018, CHROME),
        box((0.06, d / 2 - 0.12, h), (0.13, d / 2 + 0.12, h + 0.04), CHROME),
    )


def washer(rng: Generator) -> Shape:
    """A front-loading washing machine."""
    w, d, h = sizes(rng, (0.56, 0.63), (0.5, 0.62), (0.8, 0.98))
    white = pick(rng, CERAMIC, 4)
    x = w / 2
    z = h * 0.44
    return join(
        box((0, 0, 0), (w, d, h), white),
        box((0, d, h - 0.14), (w, d + 0.01, h - 0.01), tint(white, 0.75)),
        rod((x, d, z), (x, d + 0.04, z), 0.21, CHROME, sides=20),
        rod((x, d + 0.03, z), (x, d + 0.055, z), 0.16, (40, 52, 70), 0.13, sides=20),
        rod((w * 0.72, d, h - 0.075), (w * 0.72, d + 0.04, h - 0.075), 0.04, DARK, sides=12),
        box((w * 0.1, d, h - 0.12), (w * 0.42, d + 0.02, h - 0.03), tint(white, 0.95)),
    )


def towel(rng: Generator) -> Shape:
    """A striped towel on a rail."""
    w, h = sizes(rng, (0.4, 0.65), (0.45, 1.0))
    colour = pick(rng, VIVID)
    stripes = [box((0.05, 0.045, z), (w - 0.05, 0.083, z + 0.04), (240, 240, 236)) for z in (0.1, 0.18)]
    return join(
        rod((0, 0.06, h - 0.03), (w, 0.06, h - 0.03), 0.014, CHROME),
        *[box((x, 0, h - 0.05), (x + 0.02, 0.06, h - 0.015), CHROME) for x in (0.0, w - 0.02)],
        box((0.05, 0.048, 0), (w - 0.05, 0.08, h - 0.01), colour),
        *stripes,
    )
