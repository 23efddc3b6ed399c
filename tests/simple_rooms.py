"""Small scenes made of boxes with known coordinates."""

import numpy as np

from roomscout.rendering.geometry import Geometry
from roomscout.rendering.scene import Scene, make_scene

GREY = (128, 128, 128)
RED = (220, 20, 20)
GREEN = (20, 200, 20)
BLUE = (20, 20, 220)


def box(lower, upper, colour=GREY) -> Geometry:
    """The twelve triangles of an axis-aligned box."""
    corners = np.array([[x, y, z] for x in (0, 1) for y in (0, 1) for z in (0, 1)], dtype=np.float32)
    vertices = np.float32(lower) + corners * (np.float32(upper) - np.float32(lower))
    sides = [(0, 1, 3, 2), (4, 6, 7, 5), (0, 4, 5, 1), (2, 3, 7, 6), (0, 2, 6, 4), (1, 5, 7, 3)]
    faces = [triangle for a, b, c, d in sides for triangle in ((a, b, c), (a, c, d))]
    return Geometry(vertices, np.array(faces, dtype=np.int32), np.tile(np.uint8(colour), (8, 1)))


def scene_of(*parts: Geometry, name: str = "room") -> Scene:
    """One scene of coloured parts."""
    offsets = np.cumsum([0, *(len(part.vertices) for part in parts[:-1])])
    return make_scene(
        name,
        Geometry(
            np.concatenate([part.vertices for part in parts]),
            np.concatenate([part.faces + offset for part, offset in zip(parts, offsets, strict=True)]).astype(np.int32),
            np.concatenate([part.colours for part in parts]),
        ),
    )


def closed_room() -> Scene:
    """An empty hollow room: 0..6 x 0..5 x 0..2.5 m."""
    return scene_of(box((0, 0, 0), (6, 5, 2.5)))


def landmark_room() -> Scene:
    """The hollow room with a small box at each of three walls: red at +x, green at +y, blue at -x near the floor."""
    return scene_of(
        box((0, 0, 0), (6, 5, 2.5)),
        box((5.6, 2.9, 1.2), (5.8, 3.1, 1.4), RED),
        box((2.9, 4.6, 1.2), (3.1, 4.8, 1.4), GREEN),
        box((0.2, 2.4, 0.2), (0.4, 2.6, 0.4), BLUE),
    )
