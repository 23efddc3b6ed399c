"""Images from above: floor plans cut below the ceiling, and grid and path in the coordinates that the model reads."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.renderers.raycast import colours_of_hits
from roomscout.rendering.scene import Scene
from roomscout.rendering.storeys import Storey

MARGIN_M = 0.5
SCALES = 20  # the scales of images for each power of ten: those of successive turns are mostly the same
GRID_SHARE = 0.075  # the least step of the grid, 1, 2, 5, 10, 20, ... metres, as a share of the image's height
TEXT_SHARE = 1 / 32  # the height of numbers as a share of the image's height. Those below LEAST_TEXT_PX are left out.
LEAST_TEXT_PX = 6
GRID, PATH, CAMERA, INK, PAPER = (128, 128, 128), (255, 0, 255), (255, 0, 0), (0, 0, 0), (255, 255, 255)
WORDS = (
    "Up is +x and left is +y: heading 0 looks up on it, heading 90 to the left. The numbers at its grey grid lines are "
    "x and y in metres. The magenta line is the camera's path with a dot for each view, and the red arrow is where the "
    "camera is and looks now; two red lines bound what it sees."
)
"""What the system prompt says of every image from above."""
CUT_M = 2.0  # the height above the floor from which one looks down
CUT_SHARE = 0.85  # of the height of lower rooms, where the cut is there
PLAN_MARGIN_M = 0.2
MOST_CUT = 0.5  # the largest share of a plan that furniture which the cut goes through covers


@dataclass(frozen=True)
class TopDown:
    """A horizontal image: up is ahead of its origin, +x, and left is +y."""

    origin: CameraPose  # from which its coordinates count
    centre_m: tuple[float, float]  # x and y of the image's centre
    pixels_per_m: float  # the scale
    width: int  # pixels
    height: int  # pixels
    axes = ("x", "y")  # up and across

    @classmethod
    def around(cls, origin: CameraPose, lower: np.ndarray, upper: np.ndarray, camera: Intrinsics) -> "TopDown":
        """The image of a view's size that has all from `lower` to `upper` (x, y), metres from the origin; its centre is
        at whole and half metres, so that maps of successive turns mostly lie alike."""
        centre = np.round(lower + upper) / 2
        half = np.maximum(upper - centre, centre - lower) + MARGIN_M
        most = min(camera.height / half[0], camera.width / half[1]) / 2
        scale = 10 ** (math.floor(math.log10(most) * SCALES) / SCALES)
        return cls(origin, (float(centre[0]), float(centre[1])), scale, camera.width, camera.height)

    @property
    def axes_m(self) -> tuple[np.ndarray, np.ndarray]:
        """x (H,) of the rows and y (W,) of the columns, metres from the origin."""
        rows = np.arange(self.height) + 0.5
        columns = np.arange(self.width) + 0.5
        x = self.centre_m[0] + (self.height / 2 - rows) / self.pixels_per_m
        return x, self.centre_m[1] + (self.width / 2 - columns) / self.pixels_per_m

    @property
    def ground(self) -> np.ndarray:
        """(H, W, 2) world x and y at the pixels' centres."""
        y, x = np.meshgrid(*self.axes_m[::-1])
        return self.origin.position[:2] + x[..., None] * self.origin.forward[:2] + y[..., None] * self.origin.left[:2]

    def pixel(self, x_m: float, y_m: float) -> tuple[float, float]:
        """(column, row) of a place in metres from the origin."""
        ahead = x_m - self.centre_m[0]
        left = y_m - self.centre_m[1]
        return self.width / 2 - left * self.pixels_per_m, self.height / 2 - ahead * self.pixels_per_m


def with_path(image: np.ndarray, lies: TopDown, path: Sequence[CameraPose], camera: Intrinsics) -> np.ndarray:
    """The image (H, W, 3) uint8 with grid, scale, the camera's path, and the direction of its last pose."""
    drawn = Image.fromarray(image)
    canvas = ImageDraw.Draw(drawn)
    draw_grid(canvas, lies)
    poses = [lies.origin.relative(pose) for pose in path]
    places = [lies.pixel(pose.x_m, pose.y_m) for pose in poses]
    unit = max(1.0, lies.height / 240)  # the width of lines
    canvas.line(places, PATH, round(1.5 * unit))
    for place in places:
        canvas.ellipse([*np.subtract(place, 2 * unit), *np.add(place, 2 * unit)], PATH)
    pose = poses[-1]
    half_deg = camera.horizontal_fov_deg / 2
    for turned_deg in (-half_deg, half_deg):
        canvas.line([places[-1], _ahead(lies, pose, 30 * unit, turned_deg)], CAMERA, max(1, round(unit / 2)))
    arrow = [_ahead(lies, pose, 10 * unit, 0.0), *(_ahead(lies, pose, 6 * unit, side) for side in (140.0, 220.0))]
    canvas.polygon(arrow, CAMERA, PAPER)
    return np.asarray(drawn)


def _ahead(lies: TopDown, pose: CameraPose, length_px: float, turned_deg: float) -> tuple[float, float]:
    """The pixel at a distance from a pose, in its direction turned to the left."""
    to = pose.turned(turned_deg).moved(0.0, length_px / lies.pixels_per_m, 0.0, 0.0)
    return lies.pixel(to.x_m, to.y_m)


def draw_grid(canvas: ImageDraw.ImageDraw, lies: "TopDown | PlanArea", least_m: float = 1.0) -> None:
    """Grid lines, at least `least_m` apart, with their numbers at the left and at the top, and a bar of one step at the
    lower left."""
    least = max(least_m, GRID_SHARE * lies.height / lies.pixels_per_m)
    power = 10 ** math.floor(math.log10(least))
    step = next(number * power for number in (1, 2, 5, 10) if number * power >= least)
    labels: list[tuple[tuple[float, float], str, str]] = []
    of_rows, of_columns = lies.axes_m
    up, across = lies.axes
    for metres in _steps(of_rows, step):
        _, row = lies.pixel(metres, metres)
        canvas.line((0, row, lies.width, row), GRID, 1)
        labels.append(((2.0, row), f"{up} {metres:.12g}", "lm"))
    for metres in _steps(of_columns, step):
        column, _ = lies.pixel(metres, metres)
        canvas.line((column, 0, column, lies.height), GRID, 1)
        labels.append(((column, 2.0), f"{across} {metres:.12g}", "mt"))
    size = round(TEXT_SHARE * lies.height)
    if size < LEAST_TEXT_PX:
        return
    left = 2.5 * size
    low = lies.height - 2 * size
    canvas.rectangle((left, low - size // 3, left + step * lies.pixels_per_m, low), PAPER, INK)
    labels.append(((left, low + size // 3), f"{step:g} m", "lt"))
    font = ImageFont.load_default(size=size)
    last = (0.0, 0.0, 0.0, 0.0)
    for place, text, anchor in labels:
        box = canvas.textbbox(place, text, font, anchor)
        meets = box[0] < last[2] and last[0] < box[2] and box[1] < last[3] and last[1] < box[3]
        if min(box) >= 0 and box[2] <= lies.width and box[3] <= lies.height and not meets:
            last = box
            canvas.rectangle(box, PAPER)
            canvas.text(place, text, INK, font, anchor)


def _steps(axis_m: np.ndarray, step: float) -> np.ndarray:
    """The multiples of a step along an axis."""
    return np.arange(math.ceil(min(axis_m) / step), math.floor(max(axis_m) / step) + 1) * step


@dataclass(frozen=True)
class PlanArea:
    """Where a floor plan lies: its size in pixels, the centre of its lower left pixel in world metres, its scale."""

    width: int
    height: int
    origin: tuple[float, float]
    metres_per_pixel: float
    axes = ("y", "x")  # up and across

    @property
    def pixels_per_m(self) -> float:
        """The scale, as of images from above."""
        return 1 / self.metres_per_pixel

    @property
    def axes_m(self) -> tuple[np.ndarray, np.ndarray]:
        """World y (H,) of the rows and x (W,) of the columns."""
        y = self.origin[1] + np.arange(self.height)[::-1] * self.metres_per_pixel
        return y, self.origin[0] + np.arange(self.width) * self.metres_per_pixel

    def pixel(self, x_m: float, y_m: float) -> tuple[float, float]:
        """(column, row) of a place, from the centre of the upper left pixel."""
        column = (x_m - self.origin[0]) / self.metres_per_pixel
        return column, self.height - 1 - (y_m - self.origin[1]) / self.metres_per_pixel


def plan_view(
    scene: Scene, longest_px: int = 480, storey: Storey | None = None, square: bool = False
) -> tuple[np.ndarray, PlanArea]:
    """A plan (H, W, 3) uint8 RGB of a storey, by default the main one, world y upwards, and where it lies: casts a ray
    down for each pixel; `longest_px` is the longer side, or with `square` both. What the cut goes through shows its
    top, if its surface is closed and faces outwards."""
    storey = storey or scene.main_storey
    lower = storey.bounds.lower[:2] - PLAN_MARGIN_M
    upper = storey.bounds.upper[:2] + PLAN_MARGIN_M
    metres_per_pixel = float(max(upper - lower)) / longest_px
    if square:
        lower = (lower + upper - max(upper - lower)) / 2
        upper = lower + longest_px * metres_per_pixel
    columns = np.arange(lower[0], upper[0], metres_per_pixel)
    rows = np.arange(lower[1], upper[1], metres_per_pixel)
    image = looking_down(scene, storey, np.stack(np.meshgrid(columns, rows[::-1]), axis=-1))
    return image, PlanArea(len(columns), len(rows), (float(columns[0]), float(rows[0])), metres_per_pixel)


def cut_z_m(storey: Storey) -> float:
    """The height from which one looks down on a storey, metres."""
    return storey.floor_z_m + float(min(CUT_M, CUT_SHARE * (storey.bounds.upper[2] - storey.floor_z_m)))


def looking_down(scene: Scene, storey: Storey, ground: np.ndarray) -> np.ndarray:
    """(H, W, 3) uint8 RGB: what one sees of a storey below its cut at the places `ground` (H, W, 2), x and y."""
    rays = np.zeros((*ground.shape[:2], 6), dtype=np.float32)
    rays[..., :3] = scene.own(np.dstack([ground, np.full(ground.shape[:2], cut_z_m(storey))]))
    image, behind = _looking(scene, rays, -1)
    if len(scene.faces):
        tops, above = _looking(scene, rays, 1)
        cut = behind & above
        if cut.mean() < MOST_CUT:  # else it is the room whose surface faces outwards
            image[cut] = tops[cut]
    return image


def _looking(scene: Scene, rays: np.ndarray, way: int) -> tuple[np.ndarray, np.ndarray]:
    """(H, W, 3) uint8 colours that rays up (`way` 1) or down (-1) hit, and (H, W) where they hit a surface's back."""
    rays[..., 5] = way
    hits = scene.hits(rays)
    image = colours_of_hits(scene, hits).reshape(*rays.shape[:2], 3)
    back = np.isfinite(hits["t_hit"]) & (hits["primitive_normals"][..., 2] * way > 0)
    return image, back
