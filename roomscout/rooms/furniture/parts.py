"""Colours and parts shared by the furniture models."""

import numpy as np
from numpy.random import Generator

from roomscout.rooms.shapes import Colour, Shape, box, ellipsoid, join

WOOD = [(122, 78, 44), (164, 112, 66), (196, 152, 98), (88, 56, 36), (214, 186, 140)]
PAINT = [(236, 232, 224), (205, 205, 200), (176, 190, 184), (120, 132, 140)]
FABRIC = [(52, 84, 140), (150, 48, 52), (70, 118, 86), (196, 170, 60), (96, 92, 98), (172, 130, 104), (108, 72, 128)]
VIVID = [(220, 60, 48), (40, 110, 200), (240, 180, 40), (50, 150, 90), (230, 120, 40), (140, 70, 160), (50, 170, 180)]
CERAMIC = [(244, 244, 240), (238, 240, 244), (240, 234, 222)]
STEEL = [(178, 182, 186), (150, 154, 160), (200, 202, 204)]
DARK = (38, 38, 42)
CHROME = (196, 200, 206)


def sizes(rng: Generator, *ranges: tuple[float, float]) -> list[float]:
    """A random number from each range, metres."""
    return [rng.uniform(low, high) for low, high in ranges]


def pick(rng: Generator, palette: list[tuple[int, int, int]], spread: float = 12) -> np.ndarray:
    """A random colour of the palette, varied by up to `spread` per channel."""
    return np.clip(np.array(palette[rng.integers(len(palette))]) + rng.uniform(-spread, spread, 3), 8, 250)


def tint(colour: Colour, factor: float) -> np.ndarray:
    """The colour, darkened (factor < 1) or lightened."""
    return np.clip(np.asarray(colour) * factor, 0, 255)


def legs(outline: tuple[float, float, float, float], height: float, thick: float, colour: Colour) -> Shape:
    """Four square legs inside an outline (x0, y0, x1, y1)."""
    x0, y0, x1, y1 = outline
    return join(
        *[box((x, y, 0), (x + thick, y + thick, height), colour) for x in (x0, x1 - thick) for y in (y0, y1 - thick)]
    )


def front(x0: float, x1: float, y: float, z0: float, z1: float, colour: Colour, knob: str = "bar") -> Shape:
    """A door or drawer front, 15 mm thick, on the plane y. Its handle is a bar, a knob, or upright at a side."""
    panel = box((x0 + 0.012, y, z0 + 0.012), (x1 - 0.012, y + 0.015, z1 - 0.012), colour)
    x = (x0 + x1) / 2
    z = (z0 + z1) / 2
    if knob == "bar":
        handle = box((x - 0.07, y + 0.015, z - 0.012), (x + 0.07, y + 0.045, z + 0.012), DARK)
    elif knob == "left":
        handle = box((x0 + 0.04, y + 0.015, z - 0.12), (x0 + 0.065, y + 0.045, z + 0.12), DARK)
    elif knob == "right":
        handle = box((x1 - 0.065, y + 0.015, z - 0.12), (x1 - 0.04, y + 0.045, z + 0.12), DARK)
    else:
        handle = ellipsoid((x, y + 0.03, z), (0.025, 0.02, 0.025), DARK, sides=8)
    return join(panel, handle)
