"""The view with numbered marks on surfaces, for models that name a surface by a number."""

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from roomscout.rendering.modalities.modality import Modality, Sight
from roomscout.rendering.visibility import surface_in_view

MOST = 16
ACROSS = 80  # places for marks across the width of a view; each is found by one ray
CLEAR, EDGE = 2, 4  # so many places from a mark there is no hole and no edge of a surface, and no edge of the view
BEND = 0.1  # from where the inverse of the depth changes its slope by this share of it, a surface has an edge
APART, APART_PX = 0.11, 20  # the smallest distance of two marks in widths of the view, and in pixels
DEPTH_WEIGHT, COLOUR_WEIGHT = 0.3, 0.4
"""What twice the depth (its logarithm) and another colour (0 to 1) count beside a distance in widths of the view."""


def marks_of(sight: Sight) -> dict[int, tuple[float, float]]:
    """The pixel of each mark by its number, from the top of the view, by rays; none in a blind view. Each is the place
    that differs most in position, depth and colour from those before it, so that small and near objects get one."""
    camera = sight.camera
    every = max(1, camera.width // ACROSS)
    lattice = camera.thinned(every)
    if sight.renderer.name == "blind" or min(lattice.width, lattice.height) <= 2 * EDGE:
        return {}
    points = surface_in_view(sight.scene, sight.pose, lattice) - sight.pose.position
    depth = points @ sight.pose.camera_to_world[:3, 2]
    near = 1 / depth  # linear in the image on a plane, so its second difference shows edges alone
    bends = [
        np.abs(np.roll(near, (dy, dx), (0, 1)) + np.roll(near, (-dy, -dx), (0, 1)) - 2 * near) / near
        for step in range(1, CLEAR + 1)
        for dy, dx in ((0, step), (step, 0), (step, step), (step, -step))
    ]
    smooth = np.max(bends, axis=0) < BEND  # false for the NaN of holes
    rows, columns = np.argwhere(smooth[EDGE:-EDGE, EDGE:-EDGE]).T + EDGE
    x = (columns + 0.5 - lattice.width / 2) * every + camera.width / 2
    y = (rows + 0.5 - lattice.height / 2) * every + camera.height / 2
    colour = COLOUR_WEIGHT / 255 * sight.view[y.astype(int), x.astype(int)]
    looks = np.column_stack([DEPTH_WEIGHT * np.log2(depth[rows, columns]), colour])
    chosen = _spread(np.column_stack([x, y]) / camera.width, looks, max(APART, APART_PX / camera.width))
    pixels = [(float(x[place]), float(y[place])) for place in chosen]
    return dict(enumerate(sorted(pixels, key=lambda pixel: pixel[::-1]), start=1))


def _spread(places: np.ndarray, looks: np.ndarray, apart: float) -> list[int]:
    """Which of `places` (K, 2) to mark, at most MOST: the first, then always the one whose place and `looks` (K, L) are
    farthest from all before it, of those `apart` from them."""
    chosen = list[int]()
    steps = np.full(len(places), np.inf)
    free = np.full(len(places), np.inf)
    while len(chosen) < MOST and (steps >= apart).any():
        best = int(np.where(steps >= apart, free, -1.0).argmax())
        chosen.append(best)
        away = np.linalg.norm(places - places[best], axis=1)
        steps = np.minimum(steps, away)
        free = np.minimum(free, np.hypot(away, np.linalg.norm(looks - looks[best], axis=1)))
    return chosen


def draw(sight: Sight) -> np.ndarray:
    """(H, W, 3) uint8: the view with the marks."""
    picture = Image.fromarray(sight.view)
    canvas = ImageDraw.Draw(picture)
    radius = max(8, sight.camera.width // 55)
    font = ImageFont.load_default(size=radius * 1.4)
    for number, (x, y) in marks_of(sight).items():
        canvas.ellipse([x - radius, y - radius, x + radius, y + radius], "black", "white")
        canvas.text((x, y), str(number), "white", font, anchor="mm")
    return np.array(picture)


MARKS = Modality(
    "marks",
    draw,
    "A copy of each view with numbered marks on surfaces follows it. A mark stands for the point under its middle.",
)
