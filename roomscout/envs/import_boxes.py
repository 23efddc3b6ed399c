"""The verb `roomscout boxes`: published boxes of objects, of VSI-Bench's meta information and ReVSI's 3D annotation,
checked against the scans and written beside them."""

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from roomscout.base.files import replace_text
from roomscout.base.record import adapter_of, reasons
from roomscout.base.text import json_in, log_to_stream
from roomscout.base.verbs import Parser
from roomscout.data.boxes import BOXES_FILES, Axes, BoxError, ObjectBox, SceneBoxes, Size, Vector, read_boxes
from roomscout.data.scans import ScanNotFound, find_scan, layout_name
from roomscout.envs.object_boxes import FITTING_SHARE, fitting_share
from roomscout.rendering.scene import Scene, SceneError, load_scene

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedScene:
    """The boxes of a scene as published, possibly in other coordinates than its scan."""

    dataset: str
    name: str
    boxes: tuple[ObjectBox, ...]


class _MetaBox(BaseModel):
    """Open3D's minimal oriented box. The rotation is transposed and flattened, so that its rows are the axes.
    https://github.com/vision-x-nyu/thinking-in-space/issues/35"""

    centroid: Vector
    axesLengths: Size  # noqa: N815 (the file's name)
    normalizedAxes: Annotated[Axes, BeforeValidator(lambda flat: (flat[0:3], flat[3:6], flat[6:9]))]  # noqa: N815


class _MetaScene(BaseModel):
    dataset: str
    object_bbox: dict[str, list[_MetaBox]]


class _Open3DBox(BaseModel):
    """Open3D's OrientedBoundingBox, as ReVSI's scripts for questions read it: its rotation has the axes as columns."""

    center: Vector
    extent: Size
    rotation: Axes


class _AnnotatedObject(BaseModel):
    id: int | str
    name: str
    obb: _Open3DBox


class _AnnotatedScene(BaseModel):
    dataset: str
    scene_id: str
    objects: list[_AnnotatedObject]


_META = Annotated[dict[str, _MetaScene], Field(min_length=1)]
_ANNOTATION = Annotated[list[_AnnotatedScene], Field(min_length=1)]


def read_published(path: Path) -> list[PublishedScene]:
    """The scenes of a file in either format; raises BoxError if it is in neither."""
    try:
        content = json_in(path.read_bytes())
        if isinstance(content, dict):
            return [_of_meta(name, scene) for name, scene in adapter_of(_META).validate_python(content).items()]
        return [_of_annotation(scene) for scene in adapter_of(_ANNOTATION).validate_python(content)]
    except OSError as error:
        raise BoxError(f"{path} cannot be read ({error.strerror}): check the path") from None
    except ValueError as error:
        why = reasons(error) if isinstance(error, ValidationError) else error
        raise BoxError(
            f"{path} has the boxes of neither VSI-Bench (data/meta_info/*_meta_info_val.json of its repository) nor "
            f"ReVSI (metadata/3d_annotation.json of its dataset): {why}"
        ) from None


def _of_meta(name: str, scene: _MetaScene) -> PublishedScene:
    boxes = (
        ObjectBox(category, box.centroid, box.axesLengths, id=f"{category} {number}", axes=box.normalizedAxes)
        for category, of_category in scene.object_bbox.items()
        for number, box in enumerate(of_category, start=1)
    )
    return PublishedScene(scene.dataset, name, tuple(boxes))


def _of_annotation(scene: _AnnotatedScene) -> PublishedScene:
    boxes = []
    for annotated in scene.objects:
        box = annotated.obb
        first, second, third = zip(*box.rotation, strict=True)
        axes = (first, second, third)
        boxes.append(ObjectBox(annotated.name, box.center, box.extent, id=str(annotated.id), axes=axes))
    return PublishedScene(layout_name(scene.dataset), scene.scene_id, tuple(boxes))


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns 0, or 1 if some scenes could not be imported. Raises BoxError or ScanNotFound."""
    parser = Parser(prog="roomscout boxes")
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
    mean = scene.in_scan(scene.vertices.mean(axis=0, dtype=float)).tolist()
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
