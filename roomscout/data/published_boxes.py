"""Reads the published boxes of benchmarks' objects: VSI-Bench's meta information and ReVSI's 3D annotation."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout.data.boxes import BoxError, ObjectBox, axes_of, checked, vector
from roomscout.data.scans import layout_name


@dataclass(frozen=True)
class PublishedScene:
    """The boxes of a scene as published, possibly in other coordinates than its scan."""

    dataset: str
    name: str
    boxes: tuple[ObjectBox, ...]


def read_published(path: Path) -> list[PublishedScene]:
    """The scenes of a file in either format; raises BoxError if it is in neither."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BoxError(f"{path} cannot be read ({error.strerror or error}): check the path") from None
    except ValueError as error:
        raise BoxError(f"{path} is not JSON ({error}): name a file of published boxes") from None
    scenes = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    try:
        if scenes and all(isinstance(scene, dict) for scene in scenes):
            if isinstance(content, dict) and all("object_bbox" in scene for scene in scenes):
                return list(_vsi_bench(content, path))
            if isinstance(content, list) and all("scene_id" in scene and "objects" in scene for scene in scenes):
                return list(_revsi(content, path))
    except (KeyError, TypeError, AttributeError) as error:
        raise BoxError(f"{path} has a scene that cannot be read ({type(error).__name__}: {error})") from None
    raise BoxError(
        f"{path} has the boxes of neither VSI-Bench (data/meta_info/*_meta_info_val.json of its repository) nor ReVSI "
        "(metadata/3d_annotation.json of its dataset)"
    )


def _vsi_bench(content: Mapping[str, Any], path: Path) -> Iterator[PublishedScene]:
    """VSI-Bench: scenes by name, their objects by category.

    `centroid` and `axesLengths` are the center and extent of Open3D's minimal oriented box, `normalizedAxes` its
    rotation transposed and flattened, so that the rows are the axes.
    https://github.com/vision-x-nyu/thinking-in-space/issues/35
    """

    def box(category: str, number: int, record: Mapping[str, Any]) -> ObjectBox:
        flat = record["normalizedAxes"]
        axes = axes_of((flat[0:3], flat[3:6], flat[6:9]))
        center, size = vector(record["centroid"]), vector(record["axesLengths"])
        return ObjectBox(category, center, size, id=f"{category} {number}", axes=axes)

    for name, scene in content.items():
        boxes = []
        for category, records in scene["object_bbox"].items():
            for number, record in enumerate(records, start=1):
                place = f"{path}, scene {name}, {category} {number}"
                boxes.append(checked(lambda each, c=category, n=number: box(c, n, each), record, place))
        yield PublishedScene(str(scene["dataset"]), name, tuple(boxes))


def _revsi(content: list[Mapping[str, Any]], path: Path) -> Iterator[PublishedScene]:
    """ReVSI: a list of scenes with objects, whose `obb` has Open3D's center, extent, and rotation with axes as columns.

    As read by the scripts that generate its questions (they build open3d.geometry.OrientedBoundingBox of it).
    """

    def box(record: Mapping[str, Any]) -> ObjectBox:
        columns = axes_of(record["obb"]["rotation"])
        axes = axes_of(zip(*columns, strict=True))
        center, size = vector(record["obb"]["center"]), vector(record["obb"]["extent"])
        return ObjectBox(str(record["name"]), center, size, id=str(record["id"]), axes=axes)

    for scene in content:
        place = f"{path}, scene {scene['scene_id']}"
        boxes = (checked(box, each, f"{place}, object {number}") for number, each in enumerate(scene["objects"], 1))
        yield PublishedScene(layout_name(str(scene["dataset"])), str(scene["scene_id"]), tuple(boxes))
