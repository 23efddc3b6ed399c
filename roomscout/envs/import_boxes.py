"""The verb `roomscout boxes`: published boxes of objects, checked against the scans and written beside them."""

import json
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from roomscout.base.files import replace_text
from roomscout.base.text import log_to_stream
from roomscout.base.verbs import parser_of
from roomscout.data.boxes import BOXES_FILES, BoxError, ObjectBox, SceneBoxes, read_boxes
from roomscout.data.published_boxes import PublishedScene, read_published
from roomscout.data.scans import ScanNotFound, find_scan
from roomscout.envs.object_boxes import FITTING_SHARE, fitting_share
from roomscout.rendering.scene import Scene, SceneError, load_scene

log = logging.getLogger(__name__)


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 1 if some scenes could not be imported. Raises BoxError or ScanNotFound."""
    parser = parser_of(
        "boxes",
        "Import the boxes of the objects in scans from VSI-Bench's meta information "
        "(data/meta_info/*.json of its repository) or ReVSI's metadata/3d_annotation.json. Checks for each scene that "
        "the boxes fit the surface of its scan, and writes those that do in RoomScout's format.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="the published files")
    parser.add_argument("--scan-root", type=Path, default=Path("scans"), metavar="DIR", help="the scans (scans)")
    parser.add_argument("--out", type=Path, metavar="FILE", help=f"the file to write (DIR/{BOXES_FILES[0]})")
    options = parser.parse_args(arguments)
    log_to_stream(sys.stdout)
    out = options.out or options.scan_root / BOXES_FILES[0]
    scenes = [scene for file in options.files for scene in read_published(file)]
    kept = read_boxes(out) if out.exists() else {}
    imported, refused = import_scenes(scenes, options.scan_root)
    try:
        records = [SceneBoxes(name, tuple(boxes)).to_json() for name, boxes in (kept | imported).items()]
        replace_text(out, json.dumps(records, indent=1) + "\n")
    except OSError as error:
        raise BoxError(f"{out} cannot be written ({error.strerror})") from None
    log.info("Boxes of %d scenes: %s", len(imported), out)
    return 1 if refused else 0


def import_scenes(
    scenes: Sequence[PublishedScene], scan_root: Path
) -> tuple[dict[str, tuple[ObjectBox, ...]], list[str]]:
    """The boxes of the scenes with a scan in its coordinates, and the names of those that do not fit theirs, without
    scenes that have no scan. Raises ScanNotFound if none has one."""
    imported: dict[str, tuple[ObjectBox, ...]] = {}
    refused, without = [], []
    for scene in scenes:
        try:
            path = find_scan(scan_root, scene.dataset, scene.name)
        except ScanNotFound as error:
            without.append(error)
            continue
        try:
            imported[scene.name] = _in_scan(scene, load_scene(path), path)
        except (SceneError, BoxError) as error:
            refused.append(scene.name)
            log.warning("%s", error)
    if without and len(without) == len(scenes):
        raise without[0]
    if without:
        log.info("%d of %d scenes have no scan below %s", len(without), len(scenes), scan_root)
    return imported, refused


def _in_scan(published: PublishedScene, scene: Scene, path: Path) -> tuple[ObjectBox, ...]:
    """The boxes in the coordinates of a scan: as published, or moved by the mean of the scan's vertices if that fits.
    VSI-Bench's boxes of ScanNet are those of scans that were centred on that mean. Raises BoxError if neither fits."""
    mean = scene.vertices.mean(axis=0, dtype=float).tolist()
    moved = tuple(box.moved(mean) for box in published.boxes)
    shares = {boxes: fitting_share(scene, boxes) for boxes in (published.boxes, moved)}
    best = max(shares, key=shares.__getitem__)
    if shares[best] < FITTING_SHARE:
        fits = " and ".join(f"{round(share * len(best))}" for share in shares.values())
        raise BoxError(
            f"{path}: of the {len(best)} published boxes of {published.dataset} {published.name}, {fits} fit its "
            "surface (as published, and moved to the mean of its vertices): the scan is another version of the scene, "
            "or turned, such as to its axes; export it in its original coordinates"
        )
    if best is moved:
        offset = ", ".join(f"{value:.3f}" for value in mean)
        log.info("%s: moved its boxes by the mean of its vertices (%s) m", published.name, offset)
    return best
