"""The picture of a scan: its first view, and the plan of each storey with the starts and photos of its questions."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from roomscout.base.text import counted
from roomscout.data.pictures import QuestionPictureError
from roomscout.data.questions import Question
from roomscout.edge.settings import Settings
from roomscout.envs.library import CameraSettings, draw_first_view
from roomscout.envs.starts import start_pose, unchecked_pose, why_inside
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.renderers.splats import SplatRenderer
from roomscout.rendering.scene import Scene, SceneError
from roomscout.rendering.storeys import Storey
from roomscout.rendering.top_down import PlanArea, plan_view
from roomscout.rendering.views import FirstView

VIEW = CameraSettings((640, 480), 300.0, Settings.camera_height, Settings.camera_pitch)
RED, BLUE, GREEN = (207, 34, 46), (9, 105, 218), (26, 127, 55)
TEXT_PX, LABEL_PX = 22, 13
GAP_PX = 16  # between pictures
STRIP_PX = 52  # below a plan: axes, scale and height
ARROW_PX = 34  # the length of an axis
BAR_SHARE = 0.25  # the longest scale bar, as a share of a picture's width
BAR_AT = 0.85  # where the bar of the view is, as a share of its height
THUMBNAIL_PX = (213, 160)
MOST_PHOTOS = 9
LEGEND = (
    "Red disc: the first view. Blue: a start. Red cross: a start outside the scan or in a wall. "
    "Green: where a photo was taken."
)
FONTS = ("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "Arial.ttf", "msyh.ttc")

Place = tuple[float, float]
"""A column and a row of a picture."""


class Mark(NamedTuple):
    """A pose on a plan."""

    pose: CameraPose
    colour: tuple[int, int, int]
    label: str = ""


def preview(scene: Scene, questions: Sequence[Question] = ()) -> Image.Image:
    """The first view of a scan beside the plan of each storey, the lowest first, with the place and direction of the
    first view in red, and below them the photos of its questions. Raises RenderError."""
    first = draw_first_view(scene, SplatRenderer(), VIEW)
    marks = [Mark(first.pose, RED), *_marks(scene, questions)]
    plans = [_plan(scene, storey, marks) for storey in scene.storeys]
    text = f"{scene.name}: {scene.size} m (x, y, z up), {surface_in_words(scene)}{storeys_in_words(scene)}"
    rows = [[_text(text)], [_view(scene, first), *plans]]
    if len(marks) > 1:
        rows.append([_text(LEGEND)])
    if photos := list(_photos(questions)):
        rows.append(photos)
    return _stacked([_stacked(row, 1) for row in rows], 0)


def _stacked(parts: Sequence[Image.Image], axis: int) -> Image.Image:
    """Pictures below each other, or with `axis` 1 beside each other."""
    gap = GAP_PX * axis
    along = sum(part.size[1 - axis] + gap for part in parts) - gap
    across = max(part.size[axis] for part in parts)
    size = (along, across) if axis else (across, along)
    picture = Image.new("RGB", size, "white")
    at = 0
    for part in parts:
        place = (at, 0) if axis else (0, at)
        picture.paste(part, place)
        at += part.size[1 - axis] + gap
    return picture


def _text(text: str) -> Image.Image:
    text, font = drawable(text)
    picture = Image.new("RGB", (round(font.getlength(text)) + 8, TEXT_PX + 8), "white")
    ImageDraw.Draw(picture).text((4, 4), text, "black", font)
    return picture


def _view(scene: Scene, first: FirstView) -> Image.Image:
    """The first view with the directions of the scan's axes, and a scale at the distance of what is behind it."""
    picture = Image.fromarray(first.image)
    canvas = ImageDraw.Draw(picture)
    camera = VIEW.intrinsics
    across = first.pose.world_to_camera[:3, :3]
    tail = (ARROW_PX + 12, camera.height - ARROW_PX - 12)
    for axis, colour in enumerate((RED, GREEN, BLUE)):
        right, down = ARROW_PX * across[:2, axis]
        _arrow(canvas, tail, (tail[0] + right, tail[1] + down), "xyz"[axis], colour)
    row = BAR_AT * camera.height
    ray = first.pose.camera_to_world[:3, :3] @ camera.ray(camera.width / 2, row)
    metres = scene.cast(first.pose.position[None], ray[None] / np.linalg.norm(ray))[0] / np.linalg.norm(ray)
    if np.isfinite(metres):
        _bar(canvas, (camera.width / 2, row), float(metres / camera.focal_px), camera.width, f" at {metres:.1f} m")
    return picture


def _plan(scene: Scene, storey: Storey, marks: Sequence[Mark]) -> Image.Image:
    """The plan of a storey with its axes, scale and height, and the marks that are on it."""
    image, plan = plan_view(scene, VIEW.image_size[1], storey)
    picture = Image.new("RGB", (max(plan.width, 320), plan.height + STRIP_PX), "white")
    picture.paste(Image.fromarray(image))
    canvas = ImageDraw.Draw(picture)
    _ticks(canvas, plan)
    for mark in marks:
        if scene.storey_at(mark.pose.z_m) is storey:
            _draw_mark(canvas, plan, mark)
    low = picture.height - 8
    _arrow(canvas, (12, low), (12 + ARROW_PX, low), "x, heading 0", RED)
    _arrow(canvas, (12, low), (12, low - ARROW_PX), "y, heading 90", GREEN)
    _bar(canvas, (220, plan.height + 14), plan.metres_per_pixel, plan.width)
    _label(canvas, (160, low), f"floor at z {storey.floor_z_m:z.1f} m", "ls")
    return picture


def _ticks(canvas: ImageDraw.ImageDraw, plan: PlanArea) -> None:
    """Whole steps of x along the lower edge, and of y along the left one."""
    step = _round(BAR_SHARE * plan.width * plan.metres_per_pixel)
    size = (plan.width, plan.height)
    for axis, name in enumerate("xy"):
        first = math.ceil(plan.origin[axis] / step)
        last = math.floor((plan.origin[axis] + size[axis] * plan.metres_per_pixel) / step)
        for metres in np.arange(first, last + 1) * step:
            column, row = plan.pixel(metres, metres)
            place, anchor = ((0, row), "lm") if axis else ((column, plan.height - 1), "ms")
            _label(canvas, place, f"{name} {metres:zg}", anchor)


def _draw_mark(canvas: ImageDraw.ImageDraw, plan: PlanArea, mark: Mark) -> None:
    """A disc with a line half a metre ahead; a cross, at the edge if need be, for what is wrong."""
    x, y = np.clip(plan.pixel(mark.pose.x_m, mark.pose.y_m), 8, [plan.width - 8, plan.height - 8])
    right, ahead, _ = 0.5 / plan.metres_per_pixel * mark.pose.forward
    canvas.line([(x, y), (x + right, y - ahead)], mark.colour, 4)
    if mark.label and mark.colour == RED:
        canvas.line([(x - 7, y - 7), (x + 7, y + 7)], RED, 4)
        canvas.line([(x - 7, y + 7), (x + 7, y - 7)], RED, 4)
    else:
        canvas.ellipse([x - 7, y - 7, x + 7, y + 7], mark.colour)
    if mark.label:
        anchor = "rs" if x > plan.width / 2 else "ls"
        _label(canvas, (x, y - 10), mark.label, anchor)


def _marks(scene: Scene, questions: Sequence[Question]) -> Iterator[Mark]:
    """Where questions start, wrong ones in red, which are logged as a run does, and where photos were taken that are to
    be found. Questions of one place have one mark."""
    marks: dict[tuple[CameraPose, tuple[int, int, int]], list[str]] = {}
    for question in questions:
        if question.start is not None:
            pose = unchecked_pose(scene, question.start, VIEW.height_m, VIEW.pitch_deg)
            try:
                start_pose(scene, question.start, VIEW.height_m, VIEW.pitch_deg)
                colour = RED if why_inside(scene, pose) else BLUE
            except SceneError as error:
                logging.warning("%s", error)
                colour = RED
            marks.setdefault((pose, colour), []).append(question.id)
        if question.kind.judges_camera and question.ground_truth:
            goal = CameraPose.of_text(question.ground_truth)
            marks.setdefault((goal, GREEN), []).append(question.id)
    for (pose, colour), ids in marks.items():
        more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
        yield Mark(pose, colour, ids[0] + more)


def _photos(questions: Sequence[Question]) -> Iterator[Image.Image]:
    """The pictures of questions, small, each below the id of its question."""
    photos = [(question.id, photo) for question in questions for photo in question.images]
    for name, photo in photos[:MOST_PHOTOS]:
        try:
            yield _stacked([_text(name), Image.fromarray(photo.shown(*THUMBNAIL_PX))], 0)
        except QuestionPictureError as error:
            logging.warning("%s", error)
    if len(photos) > MOST_PHOTOS:
        yield _text(f"and {len(photos) - MOST_PHOTOS} more")


def _arrow(canvas: ImageDraw.ImageDraw, tail: Place, head: Place, name: str, colour: Any) -> None:
    canvas.line([*tail, *head], "white", 5)
    canvas.line([*tail, *head], colour, 3)
    _label(canvas, (head[0] + 4, head[1]), name, "lm")


def _bar(canvas: ImageDraw.ImageDraw, middle: Place, metres_per_px: float, width: int, where: str = "") -> None:
    """A scale bar of a round length, with its length above."""
    length_m = _round(BAR_SHARE * width * metres_per_px)
    half = length_m / metres_per_px / 2
    x, y = middle
    canvas.rectangle([x - half - 1, y - 3, x + half + 1, y + 3], "white")
    canvas.rectangle([x - half, y - 2, x + half, y + 2], "black")
    _label(canvas, (x, y + 6), f"{length_m:g} m{where}", "mt")


def _round(most: float) -> float:
    """The largest of 1, 2 or 5 times a power of ten that is at most this."""
    power = 10.0 ** math.floor(math.log10(most))
    return next(number * power for number in (5, 2, 1) if number * power <= most)


def _label(canvas: ImageDraw.ImageDraw, place: Place, text: str, anchor: str) -> None:
    """Small text on white, inside of the picture."""
    text, font = drawable(text, LABEL_PX)
    canvas.rectangle(canvas.textbbox(place, text, font, anchor), "white")
    canvas.text(place, text, "black", font, anchor)


def storeys_in_words(scene: Scene) -> str:
    """How many storeys a scan has, with the heights of their floors, to follow its size; empty for one alone."""
    if len(scene.storeys) == 1:
        return ""
    floors = " and ".join(f"{storey.floor_z_m:z.1f}" for storey in scene.storeys)
    return f", {len(scene.storeys)} storeys with floors at z {floors} m"


def drawable(text: str, size_px: int = TEXT_PX - 6) -> tuple[str, Any]:
    """A text with a font of this machine that has all its letters; if none has, with codes for those that it lacks."""
    fonts: list[Any] = []
    for name in FONTS:
        with suppress(OSError):
            fonts.append(ImageFont.truetype(name, size_px))
    fonts = fonts or [ImageFont.load_default(size=size_px)]  # which Pillow brings

    def has(font: Any, letter: str) -> bool:
        return letter.isascii() or bytes(font.getmask(letter)) != bytes(font.getmask("\uffff"))

    font = min(fonts, key=lambda font: sum(not has(font, letter) for letter in text))
    letters = [char if has(font, char) else char.encode("ascii", "backslashreplace").decode() for char in text]
    return "".join(letters), font


def surface_in_words(scene: Scene) -> str:
    """What a scan is made of: its Gaussians, its triangles, or its points."""
    if scene.splats is not None:
        return counted(len(scene.splats.means), "Gaussian")
    return counted(len(scene.faces), "triangle") if len(scene.faces) else counted(len(scene.vertices), "point")
