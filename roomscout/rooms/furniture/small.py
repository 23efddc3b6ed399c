"""Screens, lamps, plants and portable objects."""

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture.parts import CHROME, DARK, VIVID, WOOD, pick, sizes, tint
from roomscout.rooms.shapes import Shape, box, ellipsoid, join, lathe, rod


def tv(rng: Generator) -> Shape:
    """A dark screen on a foot."""
    w = rng.uniform(0.7, 1.6)
    h = w * 0.57
    return join(
        box((0, 0, 0.05), (w, 0.05, 0.05 + h), (24, 24, 26)),
        box((0.025, 0.05, 0.08), (w - 0.025, 0.056, 0.025 + h), (44, 48, 58)),
        box((w * 0.2, -0.04, 0), (w * 0.8, 0.1, 0.03), (30, 30, 32)),
        box((w * 0.46, 0, 0), (w * 0.54, 0.04, 0.08), (30, 30, 32)),
    )


def wall_tv(rng: Generator) -> Shape:
    """A dark screen that hangs on a wall."""
    w = rng.uniform(0.8, 1.7)
    h = w * 0.57
    return join(
        box((0, 0, 0), (w, 0.07, h), (24, 24, 26)),
        box((0.025, 0.07, 0.025), (w - 0.025, 0.076, h - 0.025), (44, 48, 58)),
    )


def monitor(rng: Generator) -> Shape:
    """A computer screen that shows windows on a bright desktop."""
    w = rng.uniform(0.42, 0.78)
    h = w * 0.58
    frame = pick(rng, [DARK, (190, 190, 194)], 4)
    picture = pick(rng, [(60, 130, 210), (70, 160, 150), (90, 110, 220)])
    return join(
        box((w / 2 - 0.12, 0.02, 0), (w / 2 + 0.12, 0.2, 0.018), frame),
        box((w / 2 - 0.03, 0.06, 0), (w / 2 + 0.03, 0.085, 0.2), frame),
        box((0, 0.085, 0.1), (w, 0.12, 0.1 + h), frame),
        box((0.02, 0.12, 0.12), (w - 0.02, 0.125, 0.08 + h), picture),
        box((0.05, 0.124, 0.06 + h * 0.7), (w * 0.5, 0.13, 0.06 + h), (236, 240, 244)),
        box((0.05, 0.124, 0.16), (w * 0.35, 0.13, 0.02 + h * 0.6), (236, 240, 244)),
    )


def lamp(rng: Generator) -> Shape:
    """A floor lamp."""
    return _lamp(rng, rng.uniform(1.2, 1.85), rng.uniform(0.17, 0.23))


def table_lamp(rng: Generator) -> Shape:
    """A table lamp."""
    return _lamp(rng, rng.uniform(0.34, 0.62), rng.uniform(0.12, 0.15))


def _lamp(rng: Generator, h: float, r: float) -> Shape:
    metal = pick(rng, [DARK, CHROME, WOOD[0]])
    shade = pick(rng, [(255, 226, 140), (255, 236, 180), (255, 206, 120)], 6)
    tall = min(0.3, 0.5 * h)
    foot = 0.8 * r
    return join(
        lathe((0, 0, 0), [(0, 0), (foot, 0), (foot, 0.02), (0.03, 0.04), (0, 0.04)], metal),
        rod((0, 0, 0.03), (0, 0, h - 0.04), max(0.013, 0.1 * r), metal),
        lathe((0, 0, h - tall), [(r, 0), (0.62 * r, tall), (0.6 * r, tall), (0.97 * r, 0)], shade),
        lathe((0, 0, h - 0.02), [(0.6 * r, 0), (0, 0.001)], tint(shade, 1.1)),
    )


def plant(rng: Generator) -> Shape:
    """A potted plant, knee-high to shoulder-high."""
    h, pot_h, r = sizes(rng, (0.45, 1.65), (0.2, 0.34), (0.22, 0.34))
    pot = pick(rng, [(178, 92, 58), (230, 228, 222), (70, 74, 84)])
    green = pick(rng, [(50, 130, 52), (84, 150, 60), (34, 104, 62)])
    profile = [(0, 0), (0.12, 0), (0.17, pot_h), (0.15, pot_h), (0.14, pot_h - 0.03), (0, pot_h - 0.03)]
    parts = [
        lathe((0, 0, 0), profile, pot),
        rod((0, 0, pot_h - 0.04), (0, 0, h - 0.2), 0.018, (94, 72, 44), sides=6),
    ]
    crown = h - pot_h
    for i in range(14):
        angle = i * 2.4 + rng.uniform(-0.3, 0.3)
        level = pot_h + crown * (0.15 + 0.72 * (i + 0.5) / 14)
        reach = r * (0.85 - 0.4 * abs(2 * i / 13 - 1))
        leaf = ellipsoid((0, 0, 0), (0.5 * reach, 0.055 + 0.12 * r, 0.02), tint(green, rng.uniform(0.7, 1.25)), 8)
        leaf = leaf.turned(-rng.uniform(20, 60), "y").moved((0.55 * reach, 0, 0)).turned(np.degrees(angle))
        parts.append(leaf.moved((0, 0, level)))
    tuft = ellipsoid((0, 0, h - 0.16 * crown), (0.3 * r, 0.3 * r, 0.16 * crown), green, 8)
    return join(*parts, tuft)


def trash_can(rng: Generator) -> Shape:
    """An open bin with crumpled paper in it."""
    r, h = sizes(rng, (0.12, 0.2), (0.26, 0.6))
    colour = pick(rng, [(80, 84, 90), (60, 120, 190), (170, 174, 178), (50, 130, 80)])
    paper = [
        ellipsoid((0.4 * r * c, 0.4 * r * s, h - 0.07), (0.05, 0.045, 0.04), (238, 238, 232), 6)
        for c, s in ((1, 0), (-0.6, 0.8), (-0.4, -0.8))
    ]
    inside = [(0.97 * r, 0), (r, 0), (r, 0.03), (0.92 * r, 0.03), (0.72 * r, 0.05 - h), (0, 0.05 - h)]
    return join(
        lathe((0, 0, 0), [(0, 0), (0.78 * r, 0), (0.97 * r, h - 0.03)], colour),
        lathe((0, 0, h - 0.03), inside, tint(colour, 0.6)),
        *paper,
    )


def backpack(rng: Generator) -> Shape:
    """A bag with a front pocket and straps."""
    w, d, h = sizes(rng, (0.3, 0.36), (0.17, 0.21), (0.36, 0.56))
    colour = pick(rng, VIVID)
    dark = tint(colour, 0.5)
    light = tint(colour, 1.2)
    dome = rod((0, d / 2, 0.72 * h), (w, d / 2, 0.72 * h), d / 2, colour, sides=12)
    straps = [
        join(
            box((x, -0.03, 0.12), (x + 0.05, -0.005, 0.75 * h), dark),
            box((x, d, 0.3 * h), (x + 0.025, d + 0.012, 0.74 * h), dark),
        )
        for x in (0.2 * w, 0.8 * w - 0.05)
    ]
    crown = ellipsoid((w / 2, d / 2, 0.78 * h), (0.5 * w, 0.5 * d, 0.2 * h), colour, 12)
    return join(
        box((0, 0, 0), (w, d, 0.74 * h), colour),
        dome,
        crown,
        box((0.12 * w, d, 0.03), (0.88 * w, d + 0.08, 0.4 * h), light),
        box((0.12 * w, d + 0.08, 0.33 * h), (0.88 * w, d + 0.088, 0.36 * h), dark),
        rod((0.4 * w, d / 2, 0.96 * h), (0.4 * w, d / 2, h + 0.04), 0.012, dark, sides=6),
        rod((0.6 * w, d / 2, 0.96 * h), (0.6 * w, d / 2, h + 0.04), 0.012, dark, sides=6),
        rod((0.39 * w, d / 2, h + 0.04), (0.61 * w, d / 2, h + 0.04), 0.014, dark, sides=6),
        *straps,
    )


def suitcase(rng: Generator) -> Shape:
    """A ribbed suitcase on wheels with its handle extended."""
    w, d, h = sizes(rng, (0.38, 0.5), (0.22, 0.28), (0.44, 0.72))
    colour = pick(rng, [*VIVID, DARK])
    rib = tint(colour, 0.7)
    ribs = [box((x * w - 0.012, d, 0.1), (x * w + 0.012, d + 0.012, 0.02 + h), rib) for x in (0.15, 0.38, 0.62, 0.85)]
    wheels = [ellipsoid((x, y, 0.03), (0.03, 0.03, 0.03), DARK, 8) for x in (0.05, w - 0.05) for y in (0.05, d - 0.05)]
    poles = [box((x, 0.02, h), (x + 0.02, 0.04, h + 0.34), CHROME) for x in (w * 0.3, w * 0.7 - 0.02)]
    return join(
        box((0, 0, 0.05), (w, d, h + 0.05), colour),
        *ribs,
        *wheels,
        *poles,
        box((w * 0.28, 0.01, h + 0.33), (w * 0.72, 0.05, h + 0.37), DARK),
    )


def cardboard_box(rng: Generator) -> Shape:
    """A taped box with a label."""
    w, d, h = sizes(rng, (0.26, 0.72), (0.25, 0.5), (0.22, 0.5))
    brown = pick(rng, [(186, 142, 92), (172, 126, 78), (200, 158, 108)], 8)
    tape = (226, 206, 160)
    return join(
        box((0, 0, 0), (w, d, h), brown),
        box((-0.004, d / 2 - 0.03, h - 0.1), (w + 0.004, d / 2 + 0.03, h + 0.004), tape),
        box((0.0, d / 2 - 0.004, h), (w, d / 2 + 0.004, h + 0.006), tint(brown, 0.5)),
        box((w * 0.55, d, h * 0.2), (w * 0.85, d + 0.004, h * 0.55), (240, 238, 230)),
    )
