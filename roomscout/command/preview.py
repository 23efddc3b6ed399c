"""Draws scans without a model: the first view and the plans of each, with its size and what looks wrong, and where its
questions start."""

import argparse
import logging
import math
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from roomscout import UpAxis
from roomscout.base.errors import UsageError
from roomscout.base.grouping import grouped
from roomscout.base.pictures import PictureError, opened
from roomscout.base.text import counted, listed, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.data.questions import Question, QuestionError, load_questions
from roomscout.data.scan_frames import ScanFrame
from roomscout.data.scans import SCAN_SUFFIXES, ScanNotFound, layouts_of, missing_scans, scan_of
from roomscout.edge.flags import with_axes
from roomscout.edge.resolve import scan_root_of
from roomscout.edge.settings import Settings
from roomscout.envs.library import CameraSettings, draw_first_view
from roomscout.envs.starts import start_pose
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.open3d_import import Open3DError, import_open3d
from roomscout.rendering.renderers import RenderError
from roomscout.rendering.renderers.splats import SplatRenderer
from roomscout.rendering.scene import Scene, SceneError, load_scene
from roomscout.rendering.storeys import Storey
from roomscout.rendering.top_down import draw_grid, plan_view

VIEW = CameraSettings((640, 480), 300.0, Settings.camera_height, Settings.camera_pitch)
RED, BLUE, GREEN = (207, 34, 46), (9, 105, 218), (26, 127, 55)
TEXT_PX, LABEL_PX = 16, 13
HEAD_PX, LINE_GAP_PX = 56, 8  # above the pictures: two lines of text
AHEAD_PX = 28  # the line that shows where a mark looks
GAP_PX = 16  # between pictures
LEGEND = (
    "On plans +y is up and +x right: heading 0 looks right, heading 90 up. "
    "Red: the first view. Blue: a start. Green: where a photo was taken."
)
FONTS = ("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "Arial.ttf", "msyh.ttc")

Scans = list[tuple[Path, ScanFrame, list[Question]]]
"""The files of scans, how they are read, and the questions about each."""
Marks = dict[tuple[CameraPose, tuple[int, int, int]], list[str]]
"""Poses on plans, their colours, and the ids of the questions about each."""
_OF = "roomscout.scan"  # the key of a preview with the address of its scan


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 1 if a scan is missing or unusable. Raises UsageError if none can be drawn."""
    parser = Parser(prog="roomscout preview")
    parser.add_argument(
        "scans", metavar="SCAN", type=Path, nargs="*", help=".ply, .pcd, .glb, .gltf or .obj files, or folders of them"
    )
    parser.add_argument("--benchmark", help=f"the benchmark of the questions ({DEFAULT})")
    parser.add_argument("--questions", type=Path, help="a question file, whose starts and photos are shown")
    parser.add_argument("--datasets", nargs="+", default=(), metavar="NAME", help="only the scans of these datasets")
    parser.add_argument("--scenes", nargs="+", default=(), metavar="NAME", help="only the scans of these scenes")
    parser.add_argument("--scan-root", type=Path, help="the folder of its scans (scans)")
    parser.add_argument("--out", type=Path, default=Path("preview"), help="the folder of the pictures (%(default)s)")
    parser.add_argument("--scale", type=_scale, default=1.0, help="metres per unit of the scan files (%(default)s)")
    parser.add_argument("--up-axis", choices=get_args(UpAxis), default="auto", help="the axis that points up")
    options = parser.parse_args(with_axes(arguments))
    chosen = [flag for flag in ("benchmark", "questions", "datasets", "scenes") if getattr(options, flag)]
    if options.scans and chosen:
        parser.error(f"--{chosen[0]} chooses scans by their questions: leave it out, or the names of scans")
    if not (options.scans or chosen or options.scan_root):
        parser.error("name scans, or the questions whose scans to draw: --questions FILE, or --benchmark NAME")
    log_to_stream(sys.stdout)
    try:
        scans = _named_scans(options) if options.scans else _scans_of_questions(options)
        import_open3d()
        options.out.mkdir(parents=True, exist_ok=True)
        return _draw(scans, options)
    except (QuestionError, ScanNotFound, Open3DError) as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        why = f"--out {options.out} cannot be written ({error.strerror or error}): name another folder"
        raise UsageError(why) from None


def _draw(scans: Scans, options: argparse.Namespace) -> int:
    """Draw each scan into a picture; returns 0, or 1 if one is missing or unusable. Raises OSError."""
    drawn = 0
    for path, frame, questions in scans:
        try:
            scene = load_scene(path, *frame.over(options.up_axis, options.scale))
            picture = preview(scene, questions)
        except (SceneError, RenderError) as error:
            logging.error("%s", error)
            continue
        file = _file_for(path, options.out)
        about = PngImagePlugin.PngInfo()
        about.add_text(_OF, path.resolve().as_uri())
        picture.save(file, pnginfo=about)
        drawn += 1
        logging.info("%s: %s m, %s%s: %s", path, scene.size, surface_in_words(scene), storeys_in_words(scene), file)
    return 0 if drawn == len(scans) else 1


def _file_for(path: Path, out: Path) -> Path:
    """The file of a scan's preview: named as the scan, or by its whole path if that is the preview of another one."""
    plain = out / f"{path.stem}.png"
    if _scan_of(plain) in (None, path.resolve().as_uri()):
        return plain
    return out / f"{'_'.join(path.resolve().parts[1:])}.png"


def _scan_of(file: Path) -> str | None:
    """The address of the scan whose preview a file is; None without a file, empty for a file of anything else."""
    try:
        return opened(file.read_bytes()).info.get(_OF, "")
    except FileNotFoundError:
        return None
    except (OSError, PictureError):
        return ""


def preview(scene: Scene, questions: Sequence[Question] = ()) -> Image.Image:
    """The first view of a scan beside the plan of each storey, the lowest first, with the place and direction of the
    first view, of the starts of its questions, and of the photos that are to be found. Raises RenderError."""
    first = draw_first_view(scene, SplatRenderer(), VIEW)
    marks: Marks = {(first.pose, RED): [], **_marks(scene, questions)}
    pictures = [Image.fromarray(first.image), *(_plan(scene, storey, marks) for storey in scene.storeys)]
    width = sum(picture.width + GAP_PX for picture in pictures) - GAP_PX
    about = f"{scene.name}: {scene.size} m (x, y, z up), {surface_in_words(scene)}{storeys_in_words(scene)}"
    text, font = drawable(f"{about}\n{LEGEND}")
    width = max(width, math.ceil(max(map(font.getlength, text.splitlines()))) + 8)
    picture = Image.new("RGB", (width, VIEW.image_size[1] + HEAD_PX), "white")
    ImageDraw.Draw(picture).text((4, 4), text, "black", font, spacing=LINE_GAP_PX)
    left = 0
    for part in pictures:
        picture.paste(part, (left, picture.height - part.height))
        left += part.width + GAP_PX
    return picture


def _marks(scene: Scene, questions: Sequence[Question]) -> Marks:
    """Where questions start, and where photos were taken that are to be found. What is wrong with a start is logged, as
    in a run; one outside the scan has no place."""
    marks: Marks = {}
    for question in questions:
        if question.start is not None:
            try:
                pose = start_pose(scene, question.start, VIEW.height_m, VIEW.pitch_deg)
                marks.setdefault((pose, BLUE), []).append(question.id)
            except SceneError as error:
                logging.warning("Question %s: %s", question.id, error)
        if question.kind.judges_camera and question.ground_truth:
            goal = CameraPose.of_text(question.ground_truth)
            marks.setdefault((goal, GREEN), []).append(question.id)
    return marks


def _plan(scene: Scene, storey: Storey, marks: Marks) -> Image.Image:
    """The plan of a storey with its grid and height, and the marks that are on it: a disc with a line ahead."""
    image, plan = plan_view(scene, VIEW.image_size[1], storey, square=True)
    picture = Image.fromarray(image)
    canvas = ImageDraw.Draw(picture)
    draw_grid(canvas, plan, 0.0)
    _label(canvas, (plan.width - 4, plan.height - 4), f"floor at z {storey.floor_z_m:z.1f} m", "rs")
    for (pose, colour), asked in marks.items():
        if scene.storey_at(pose.z_m) is storey:
            x, y = plan.pixel(pose.x_m, pose.y_m)
            right, up, _ = AHEAD_PX * pose.forward
            canvas.line([(x, y), (x + right, y - up)], colour, 4)
            canvas.ellipse([x - 7, y - 7, x + 7, y + 7], colour)
            more = f" and {len(asked) - 1} more" if len(asked) > 1 else ""
            anchor = "rs" if x > plan.width / 2 else "ls"
            _label(canvas, (x, y - 10), "".join(asked[:1]) + more, anchor)
    return picture


def _label(canvas: ImageDraw.ImageDraw, place: tuple[float, float], text: str, anchor: str) -> None:
    text, font = drawable(text, LABEL_PX)
    canvas.text(place, text, "black", font, anchor, stroke_width=2, stroke_fill="white")


def storeys_in_words(scene: Scene) -> str:
    """How many storeys a scan has, with the heights of their floors, to follow its size; empty for one alone."""
    if len(scene.storeys) == 1:
        return ""
    floors = " and ".join(f"{storey.floor_z_m:z.1f}" for storey in scene.storeys)
    return f", {len(scene.storeys)} storeys with floors at z {floors} m"


def drawable(text: str, size_px: int = TEXT_PX) -> tuple[str, Any]:
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


def _scale(text: str) -> float:
    value = float(text)
    if not 0 < value < np.inf:
        raise argparse.ArgumentTypeError(f"takes the metres per unit, a number above 0, got {text}")
    return value


def _named_scans(options: argparse.Namespace) -> Scans:
    """The scans that are named, and those in the folders that are; raises ScanNotFound if there are none. Among several
    files, as `scans/*` names, leaves out those that are no scans, and logs them."""
    files: list[Path] = []
    for path in options.scans:
        files += sorted(path.iterdir()) if path.is_dir() else [path]
    scans = [file for file in files if file.suffix.lower() in SCAN_SUFFIXES]
    if not scans and any(path.is_dir() for path in options.scans):
        where = ", ".join(map(str, options.scans))
        raise ScanNotFound(f"{where} has no scan: name files that end in {', '.join(SCAN_SUFFIXES)}")
    if others := [file.name for file in files if file not in scans and scans]:
        logging.info("Not scans, and left out: %s", listed(others))
    return [(file, ScanFrame(), []) for file in scans or files]


def _scans_of_questions(options: argparse.Namespace) -> Scans:
    """The scan of each scene; leaves out and logs missing ones. Raises QuestionError or ScanNotFound."""
    benchmark = find_benchmark(options.benchmark or DEFAULT)
    layouts = layouts_of(benchmark)
    root = options.scan_root or scan_root_of(Settings.scan_root, options.questions)
    questions = load_questions(options.questions, benchmark, datasets=options.datasets, scenes=options.scenes)
    benchmark.make(questions)
    missing = missing_scans(questions, root, layouts)
    for why in missing.values():
        logging.warning("%s", why)
    by_scene = grouped((question.scene, question) for question in questions)
    if len(missing) == len(by_scene):
        raise ScanNotFound(next(iter(missing.values())))
    there = [asked for scene, asked in by_scene.items() if scene not in missing]
    return [(scan_of(asked[0], root, layouts), asked[0].frame, asked) for asked in there]
