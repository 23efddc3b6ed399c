"""Doors, windows and objects on walls."""

import itertools

import numpy as np
from numpy.random import Generator

from roomscout.rooms.furniture.parts import CERAMIC, CHROME, DARK, PAINT, VIVID, WOOD, pick, sizes, tint
from roomscout.rooms.shapes import Colour, Shape, box, join, quads, rod


def door(rng: Generator) -> Shape:
    """A closed door in its frame."""
    w, h = sizes(rng, (0.78, 0.98), (1.98, 2.12))
    leaf = pick(rng, [*WOOD, (226, 222, 214), (94, 112, 128)])
    frame = pick(rng, WOOD[3:4] + PAINT[:1])
    panels = [
        box((0.2, 0.05, z0 * h), (w - 0.08, 0.062, z1 * h), tint(leaf, 0.78)) for z0, z1 in ((0.08, 0.42), (0.52, 0.92))
    ]
    return join(
        box((0, 0, 0), (0.07, 0.08, h), frame),
        box((w, 0, 0), (w + 0.07, 0.08, h), frame),
        box((0, 0, h - 0.02), (w + 0.07, 0.08, h + 0.06), frame),
        box((0.07, 0, 0.01), (w, 0.05, h - 0.02), leaf),
        *[p.moved((-0.06, 0, 0)) for p in panels],
        box((w - 0.1, 0.05, 0.96), (w - 0.05, 0.06, 1.16), CHROME),
        rod((w - 0.075, 0.06, 1.06), (w - 0.075, 0.11, 1.06), 0.015, CHROME),
        rod((w - 0.07, 0.11, 1.06), (w - 0.2, 0.11, 1.06), 0.015, CHROME),
    )


def window(rng: Generator) -> Shape:
    """A window that shows sky and grass."""
    w, h = sizes(rng, (0.6, 2.2), (0.8, 1.3))
    frame = pick(rng, [(246, 246, 244), (120, 84, 56), (200, 202, 206)], 6)
    columns = max(round(w / 0.6), 1)
    bars = [box((x - 0.025, 0, 0), (x + 0.025, 0.07, h), frame) for x in np.linspace(0.025, w - 0.025, columns + 1)]
    rails = [box((0, 0, z - 0.03), (w, 0.065, z + 0.03), frame) for z in (0.03, 0.66 * h, h - 0.03)]
    sky = [
        quads(np.array([[[0, 0.02, a * h], [0, 0.02, b * h], [w, 0.02, b * h], [w, 0.02, a * h]]]), colour)
        for a, b, colour in ((0, 0.22, (120, 160, 96)), (0.22, 0.6, (206, 230, 250)), (0.6, 1, (150, 200, 250)))
    ]
    return join(*sky, *bars, *rails, box((-0.05, 0, -0.04), (w + 0.05, 0.14, 0.0), tint(frame, 0.9)))


def heater(rng: Generator) -> Shape:
    """A ribbed radiator."""
    w, h = sizes(rng, (0.5, 1.6), (0.5, 0.62))
    white = pick(rng, CERAMIC, 4)
    ribs = max(int(w / 0.08), 6)
    x = np.linspace(0, w, ribs + 1)
    columns = [box((a + 0.01, 0.03, 0.04), (b - 0.01, 0.12, h - 0.02), white) for a, b in itertools.pairwise(x)]
    pipes = [rod((0, 0.07, z), (w, 0.07, z), 0.022, tint(white, 0.7)) for z in (0.08, h - 0.08)]
    valve = rod((w, 0.07, h - 0.08), (w + 0.09, 0.07, h - 0.08), 0.03, (70, 72, 78))
    return join(box((0.02, 0, 0.05), (w - 0.02, 0.035, h - 0.03), tint(white, 0.55)), *columns, *pipes, valve)


def picture(rng: Generator) -> Shape:
    """A framed landscape."""
    w, h = sizes(rng, (0.32, 1.1), (0.36, 0.8))
    frame = pick(rng, [*WOOD[:1], DARK, (206, 170, 80)])
    sky = pick(rng, VIVID)
    hill = pick(rng, VIVID)
    sun = pick(rng, VIVID)
    a = 0.035
    y = 0.038
    bend = 0.55 * w
    hill_top = np.array(
        [
            [[a, y, a], [a, y, 0.5 * h], [bend, y, 0.3 * h], [bend, y, a]],
            [[bend, y, a], [bend, y, 0.3 * h], [w - a, y, 0.6 * h], [w - a, y, a]],
        ]
    )
    return join(
        box((0, 0, 0), (w, 0.03, h), frame),
        box((a, 0.03, a), (w - a, 0.034, h - a), tint(sky, 1.2)),
        quads(hill_top, hill),
        rod((w * 0.4, 0.03, h * 0.72), (w * 0.4, 0.042, h * 0.72), 0.1 * min(w, h), sun, sides=12),
        box((0, 0, 0), (a, 0.05, h), frame),
        box((w - a, 0, 0), (w, 0.05, h), frame),
        box((0, 0, 0), (w, 0.05, a), frame),
        box((0, 0, h - a), (w, 0.05, h), frame),
    )


def whiteboard(rng: Generator) -> Shape:
    """A whiteboard with writing, a tray and pens."""
    w, h = sizes(rng, (1.0, 2.4), (0.8, 1.2))
    ink = [(30, 60, 170), (190, 40, 40), (30, 120, 60)]
    lines = [
        box((w * rng.uniform(0.4, 0.65), 0.03, z), (w - 0.12, 0.036, z + 0.02), ink[i % 3])
        for i, z in enumerate(np.linspace(0.35 * h, 0.8 * h, 4))
    ]
    pens = [
        rod((x, 0.06, 0.03), (x + 0.12, 0.06, 0.03), 0.012, colour, sides=6)
        for x, colour in zip((0.4 * w, 0.4 * w + 0.18, 0.4 * w + 0.36), ink, strict=True)
    ]
    return join(
        box((0, 0, 0), (w, 0.025, h), (150, 154, 160)),
        box((0.03, 0.025, 0.04), (w - 0.03, 0.03, h - 0.03), (250, 250, 250)),
        box((0.25 * w, 0, 0), (0.75 * w, 0.08, 0.02), (150, 154, 160)),
        *lines,
        *pens,
    )


def mirror(rng: Generator) -> Shape:
    """An oval mirror."""
    w, h = sizes(rng, (0.4, 0.65), (0.5, 1.15))
    frame = pick(rng, [(206, 170, 80), WOOD[3], CHROME])
    oval = np.array([w / 2, 1, h / 2])

    def disc(radius: float, y: float, colour: Colour) -> Shape:
        flat = rod((0, 0, 0), (0, y, 0), radius, colour, sides=24)
        return Shape(flat.corners * oval, flat.colours)

    y = 0.037
    low = -0.2 * h
    high = 0.2 * h
    streak = np.array([[-0.05, y, low], [0.07, y, high], [0.11, y, high], [-0.01, y, low]])
    shine = quads(streak + np.array([[[-0.1 * w, 0, 0]], [[0.08 * w, 0, 0]]]), (238, 246, 250))
    return join(disc(1.0, 0.025, frame), disc(0.88, 0.032, (176, 200, 212)), shine)


def clock(rng: Generator) -> Shape:
    """A round wall clock."""
    r = rng.uniform(0.12, 0.24)
    rim = pick(rng, [DARK, (180, 40, 40), (40, 70, 140)])
    ticks = [
        rod((0.78 * r * s, 0.035, 0.78 * r * c), (0.9 * r * s, 0.035, 0.9 * r * c), 0.008, DARK, sides=4)
        for s, c in ((np.sin(t), np.cos(t)) for t in np.arange(12) * np.pi / 6)
    ]
    hands = [
        rod((0, 0.036, 0), (k * r * np.sin(t), 0.036, k * r * np.cos(t)), 0.009, DARK, sides=4)
        for k, t in ((0.5, rng.uniform(0, 6.28)), (0.72, rng.uniform(0, 6.28)))
    ]
    return join(
        rod((0, 0, 0), (0, 0.04, 0), r, rim, sides=24),
        rod((0, 0.03, 0), (0, 0.042, 0), 0.88 * r, (248, 248, 244), sides=24),
        *[t.moved((0, 0.005, 0)) for t in ticks],
        *[h.moved((0, 0.008, 0)) for h in hands],
    )
