"""Draws scans without a model: the first view and a plan of each, with its size and what looks wrong."""

import argparse
import logging
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from roomscout import UpAxis
from roomscout.base.errors import UsageError
from roomscout.base.text import counted, listed, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.data.questions import QuestionError, load_questions
from roomscout.data.scan_frames import ScanFrame
from roomscout.data.scans import SCAN_SUFFIXES, ScanNotFound, layouts_of, missing_scans, scan_of
from roomscout.edge.flags import with_axes
from roomscout.edge.resolve import scan_root_of
from roomscout.edge.settings import Settings
from roomscout.envs.library import CameraSettings, draw_first_view
from roomscout.rendering.camera import CameraPose
from roomscout.rendering.open3d_import import Open3DError, import_open3d
from roomscout.rendering.renderers import RenderError
from roomscout.rendering.renderers.splats import SplatRenderer
from roomscout.rendering.scene import Scene, SceneError, load_scene
from roomscout.rendering.storeys import Storey
from roomscout.rendering.top_down import plan_view

VIEW = CameraSettings((640, 480), 300.0, Settings.camera_height, Settings.camera_pitch)
RED = (207, 34, 46)
TEXT_PX = 22
GAP_PX = 16  # between pictures
FONTS = ("DejaVuSans.ttf", "NotoSansCJK-Regular.ttc", "Arial Unicode.ttf", "Arial.ttf", "msyh.ttc")


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 1 if a scan is missing or unusable. Raises UsageError if none can be drawn."""
    parser = Parser(prog="roomscout preview")
    parser.add_argument(
        "scans", metavar="SCAN", type=Path, nargs="*", help=".ply, .pcd, .glb, .gltf or .obj files, or folders of them"
    )
    parser.add_argument("--benchmark", help=f"the benchmark of the questions ({DEFAULT})")
    parser.add_argument("--questions", type=Path, help="a question file; without it and scans, the benchmark's own")
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


def _draw(scans: Sequence[tuple[Path, ScanFrame]], options: argparse.Namespace) -> int:
    """Draw each scan into a picture; returns 0, or 1 if one is missing or unusable. Raises OSError."""
    drawn = 0
    names = Counter[str]()
    for path, frame in scans:
        names[path.stem] += 1
        try:
            scene = load_scene(path, *frame.over(options.up_axis, options.scale))
            picture = preview(scene)
        except (SceneError, RenderError) as error:
            logging.error("%s", error)
            continue
        number = names[path.stem]  # of scans of equal names
        file = options.out / f"{path.stem}{f'_{number}' if number > 1 else ''}.png"
        picture.save(file)
        drawn += 1
        logging.info("%s: %s m, %s%s: %s", path, scene.size, surface_in_words(scene), storeys_in_words(scene), file)
    return 0 if drawn == len(scans) else 1


def preview(scene: Scene) -> Image.Image:
    """The first view of a scan beside the plan of each storey, the lowest first; that of the camera shows its place and
    direction. Raises RenderError."""
    first = draw_first_view(scene, SplatRenderer(), VIEW)
    pictures = [Image.fromarray(first.image)]
    pictures += [_plan(scene, storey, first.pose) for storey in scene.storeys]
    width = sum(picture.width for picture in pictures) + GAP_PX * (len(pictures) - 1)
    picture = Image.new("RGB", (width, VIEW.image_size[1] + TEXT_PX + 8), "white")
    left = 0
    for part in pictures:
        picture.paste(part, (left, TEXT_PX + 8))
        left += part.width + GAP_PX
    text = f"{scene.name}: {scene.size} m (x, y, z up), {surface_in_words(scene)}{storeys_in_words(scene)}"
    text, font = drawable(text)
    ImageDraw.Draw(picture).text((4, 4), text, "black", font)
    return picture


def _plan(scene: Scene, storey: Storey, pose: CameraPose) -> Image.Image:
    """The plan of a storey, with the camera if it is there."""
    image, plan = plan_view(scene, VIEW.image_size[1], storey)
    drawn = Image.fromarray(image)
    if scene.storey_at(pose.z_m) is storey:
        canvas = ImageDraw.Draw(drawn)
        place = plan.pixel(pose.x_m, pose.y_m)
        ahead = pose.position + 0.5 * pose.forward  # half a metre
        canvas.line([place, plan.pixel(*ahead[:2])], RED, 4)
        canvas.ellipse([*(np.subtract(place, 7)), *(np.add(place, 7))], RED)
    return drawn


def storeys_in_words(scene: Scene) -> str:
    """How many storeys a scan has, with the heights of their floors, to follow its size; empty for one alone."""
    if len(scene.storeys) == 1:
        return ""
    floors = " and ".join(f"{storey.floor_z_m:z.1f}" for storey in scene.storeys)
    return f", {len(scene.storeys)} storeys with floors at z {floors} m"


def drawable(text: str) -> tuple[str, Any]:
    """A text with a font of this machine that has all its letters; if none has, with codes for those that it lacks."""
    fonts: list[Any] = []
    for name in FONTS:
        with suppress(OSError):
            fonts.append(ImageFont.truetype(name, TEXT_PX - 6))
    fonts = fonts or [ImageFont.load_default(size=TEXT_PX - 6)]  # which Pillow brings

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


def _named_scans(options: argparse.Namespace) -> list[tuple[Path, ScanFrame]]:
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
    return [(file, ScanFrame()) for file in scans or files]


def _scans_of_questions(options: argparse.Namespace) -> list[tuple[Path, ScanFrame]]:
    """The scan of each scene; leaves out and logs missing ones. Raises QuestionError or ScanNotFound."""
    benchmark = find_benchmark(options.benchmark or DEFAULT)
    layouts = layouts_of(benchmark)
    root = options.scan_root or scan_root_of(Settings.scan_root, options.questions)
    questions = load_questions(options.questions, benchmark, datasets=options.datasets, scenes=options.scenes)
    benchmark.make(questions)
    by_scene = {question.scene: question for question in questions}
    missing = missing_scans(questions, root, layouts)
    for why in missing.values():
        logging.warning("%s", why)
    if len(missing) == len(by_scene):
        raise ScanNotFound(next(iter(missing.values())))
    there = [question for scene, question in by_scene.items() if scene not in missing]
    return [(scan_of(question, root, layouts), question.frame) for question in there]
