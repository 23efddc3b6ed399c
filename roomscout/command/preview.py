"""Draws scans without a model: the first view and the plans of each, with its size and what looks wrong, and where its
questions start."""

import argparse
import logging
import sys
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import get_args

import numpy as np
from PIL import PngImagePlugin

from roomscout import UpAxis
from roomscout.base.errors import UsageError
from roomscout.base.grouping import grouped
from roomscout.base.pictures import PictureError, opened
from roomscout.base.text import listed, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.command.preview_picture import drawable, preview, storeys_in_words, surface_in_words
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.data.questions import Question, QuestionError, load_questions
from roomscout.data.scan_frames import ScanFrame
from roomscout.data.scans import SCAN_SUFFIXES, ScanNotFound, layouts_of, missing_scans, scan_of
from roomscout.edge.flags import with_axes
from roomscout.edge.resolve import scan_root_of
from roomscout.edge.settings import Settings
from roomscout.rendering.open3d_import import Open3DError, import_open3d
from roomscout.rendering.renderers import RenderError
from roomscout.rendering.scene import SceneError, load_scene

__all__ = ["drawable", "main"]

Scans = list[tuple[Path, ScanFrame, list[Question]]]
"""The files of scans, how they are read, and the questions about each."""
_OF = "roomscout.scan"  # the key of a preview with the path of its scan


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
    if options.scans and chosen and not options.questions:
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
        about.add_itxt(_OF, str(path.absolute()))
        picture.save(file, pnginfo=about)
        drawn += 1
        logging.info("%s: %s m, %s%s: %s", path, scene.size, surface_in_words(scene), storeys_in_words(scene), file)
    return 0 if drawn == len(scans) else 1


def _file_for(path: Path, out: Path) -> Path:
    """The file of a scan's preview, which no other scan has: named as the scan, after as many of its folders as tell
    it from the others whose previews are there."""
    others: list[list[str]] = []
    names = _names(path)
    for place, name in enumerate(names):
        file = out / f"{name}.png"
        of = _scan_of(file)
        if of == str(path.absolute()) or (of is None and all(other[place:][:1] != [name] for other in others)):
            return file
        if of:
            others.append(_names(Path(of)))
    return out / f"{names[-1]}{path.suffix}.png"


def _names(path: Path) -> list[str]:
    """The name of a scan, then with its folder, with two folders and so on."""
    parts = [path.stem, *(parent.name for parent in path.absolute().parents if parent.name)]
    return list(accumulate(parts, lambda name, folder: f"{folder}_{name}"))


def _scan_of(file: Path) -> str | None:
    """The path of the scan whose preview a file is; None without a file, empty for a file of anything else."""
    try:
        return opened(file.read_bytes()).info.get(_OF, "")
    except FileNotFoundError:
        return None
    except (OSError, PictureError):
        return ""


def _scale(text: str) -> float:
    value = float(text)
    if not 0 < value < np.inf:
        raise argparse.ArgumentTypeError(f"takes the metres per unit, a number above 0, got {text}")
    return value


def _named_scans(options: argparse.Namespace) -> Scans:
    """The scans that are named, and those in the folders that are, with the questions about each; raises ScanNotFound
    if there are none. Among several files, as `scans/*` names, leaves out those that are no scans, and logs them."""
    files: list[Path] = []
    for path in options.scans:
        files += sorted(path.iterdir()) if path.is_dir() else [path]
    scans = [file for file in files if file.suffix.lower() in SCAN_SUFFIXES]
    if not scans and any(path.is_dir() for path in options.scans):
        where = ", ".join(map(str, options.scans))
        raise ScanNotFound(f"{where} has no scan: name files that end in {', '.join(SCAN_SUFFIXES)}")
    if others := [file.name for file in files if file not in scans and scans]:
        logging.info("Not scans, and left out: %s", listed(others))
    if options.questions is None:
        return [(file, ScanFrame(), []) for file in scans or files]
    by_scene = grouped((question.scene_name, question) for question in _questions(options)[1])
    return [_asked_about(file, by_scene) for file in scans or files]


def _asked_about(file: Path, by_scene: dict[str, list[Question]]) -> tuple[Path, ScanFrame, list[Question]]:
    """A scan with the questions of its scene: the only one, or the one that its file or folder is named after. Raises
    QuestionError."""
    names = [name for name in by_scene if name in (file.stem, file.parent.name) or file.stem.startswith(f"{name}_")]
    if not names and len(by_scene) > 1:
        known = listed(by_scene)
        raise QuestionError(f"no question is about {file}: its name or its folder's is none of the scenes {known}")
    questions = by_scene[max(names or by_scene, key=len)]
    return file, questions[0].frame, questions


def _questions(options: argparse.Namespace) -> tuple[Benchmark, list[Question]]:
    benchmark = find_benchmark(options.benchmark or DEFAULT)
    return benchmark, load_questions(options.questions, benchmark, datasets=options.datasets, scenes=options.scenes)


def _scans_of_questions(options: argparse.Namespace) -> Scans:
    """The scan of each scene; leaves out and logs missing ones. Raises QuestionError or ScanNotFound."""
    benchmark, questions = _questions(options)
    layouts = layouts_of(benchmark)
    root = options.scan_root or scan_root_of(Settings.scan_root, options.questions)
    benchmark.make(questions)
    missing = missing_scans(questions, root, layouts)
    for why in missing.values():
        logging.warning("%s", why)
    by_scene = grouped((question.scene, question) for question in questions)
    if len(missing) == len(by_scene):
        raise ScanNotFound(next(iter(missing.values())))
    there = [asked for scene, asked in by_scene.items() if scene not in missing]
    return [(scan_of(asked[0], root, layouts), asked[0].frame, asked) for asked in there]
