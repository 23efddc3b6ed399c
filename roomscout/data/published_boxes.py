"""Reads the published boxes of benchmarks' objects: VSI-Bench's meta information and ReVSI's 3D annotation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from roomscout.base.record import reasons
from roomscout.base.text import json_in
from roomscout.data.boxes import Axes, BoxError, ObjectBox, Size, Vector
from roomscout.data.scans import layout_name


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


_META = TypeAdapter[Mapping[str, _MetaScene]](Annotated[dict[str, _MetaScene], Field(min_length=1)])
_ANNOTATION = TypeAdapter[Sequence[_AnnotatedScene]](Annotated[list[_AnnotatedScene], Field(min_length=1)])


def read_published(path: Path) -> list[PublishedScene]:
    """The scenes of a file in either format; raises BoxError if it is in neither."""
    try:
        content = json_in(path.read_bytes())
        if isinstance(content, dict):
            return [_of_meta(name, scene) for name, scene in _META.validate_python(content).items()]
        return [_of_annotation(scene) for scene in _ANNOTATION.validate_python(content)]
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
