"""The boxes of a scan's objects: the files that have them, and the objects that a question needs."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

BOXES_FILES = ("boxes.json", "rooms.json")
"""The names of a file of boxes beside scans: one's own, and that of procedural rooms."""
_LEVELS = 4
"""How many folders above a scan may hold the file: scannet/scans/<scene>/<scene>_vh_clean_2.ply has the most."""
_UNIT_TOLERANCE = 0.01
_ALL_OF_A_KIND = re.compile(r"\s*how many\b", re.IGNORECASE)

Vector = tuple[float, float, float]


class BoxError(ValueError):
    """A file of boxes cannot be used; the message names it and how to fix it."""


@dataclass(frozen=True)
class ObjectBox:
    """A box around an object: `center` and `size` in metres, in the scan's coordinates.

    An upright box is turned by `yaw_deg` about the vertical. A tilted one has `axes` instead: the unit vectors along
    which its three sizes are measured. `id` is the object's own in its file, if it has one.
    """

    category: str
    center: Vector
    size: Vector
    yaw_deg: float = 0.0
    id: str = ""
    axes: tuple[Vector, Vector, Vector] | None = None

    @property
    def directions(self) -> tuple[Vector, Vector, Vector]:
        """The unit vectors along which the three sizes are measured."""
        if self.axes is not None:
            return self.axes
        yaw = math.radians(self.yaw_deg)
        cos, sin = math.cos(yaw), math.sin(yaw)
        return (cos, sin, 0.0), (-sin, cos, 0.0), (0.0, 0.0, 1.0)

    @property
    def footprint(self) -> tuple[tuple[float, float], ...]:
        """The outline seen from above, (x, y) in metres, in order around the box; four corners if it is upright."""
        if self.axes is not None:
            return _outline(self._corners_from_above())
        yaw = math.radians(self.yaw_deg)
        cos, sin = math.cos(yaw), math.sin(yaw)
        half_x, half_y = self.size[0] / 2, self.size[1] / 2
        corners = ((-half_x, -half_y), (half_x, -half_y), (half_x, half_y), (-half_x, half_y))
        return tuple((self.center[0] + cos * x - sin * y, self.center[1] + sin * x + cos * y) for x, y in corners)

    @property
    def name(self) -> str:
        """The category as words."""
        return self.category.replace("_", " ").strip()

    @property
    def as_standing(self) -> tuple[float, float, float, float]:
        """The longer and the shorter horizontal side and the height in metres, and the heading of the longer one.

        The height of a tilted box is its side nearest to the vertical. Headings are degrees, counter-clockwise from +x.
        """
        upright = max(range(3), key=lambda axis: abs(self.directions[axis][2]))
        across, along = sorted((axis for axis in range(3) if axis != upright), key=lambda axis: self.size[axis])
        heading = math.degrees(math.atan2(self.directions[along][1], self.directions[along][0]))
        return self.size[along], self.size[across], self.size[upright], heading

    def moved(self, offset: Sequence[float]) -> "ObjectBox":
        """The same box elsewhere: `offset` (3,) metres."""
        x, y, z = (float(value + step) for value, step in zip(self.center, offset, strict=True))
        return replace(self, center=(x, y, z))

    def _corners_from_above(self) -> list[tuple[float, float]]:
        corners = []
        for signs in ((a, b, c) for a in (-0.5, 0.5) for b in (-0.5, 0.5) for c in (-0.5, 0.5)):
            steps = [sign * size for sign, size in zip(signs, self.size, strict=True)]
            x, y = (
                self.center[axis] + sum(step * along[axis] for step, along in zip(steps, self.directions, strict=True))
                for axis in (0, 1)
            )
            corners.append((x, y))
        return corners


def _outline(points: Iterable[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """The convex hull of points, counter-clockwise.

    A. M. Andrew, "Another efficient algorithm for convex hulls in two dimensions", 1979.
    """
    ordered = sorted(set(points))

    def half(points: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in points:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) - (by - ay) * (x - ax) > 0:
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return tuple(half(ordered) + half(reversed(ordered)))


def boxes_file(scan: Path) -> Path | None:
    """The file with the boxes of a scan's objects, in one of the folders above it; None if there is none."""
    found = (folder / name for folder in scan.parents[: _LEVELS + 1] for name in BOXES_FILES)
    return next((path for path in found if path.is_file()), None)


class KnownBoxes:
    """The boxes of scans' objects, from the files beside the scans; each file is read once."""

    def __init__(self) -> None:
        self._scenes: dict[Path, dict[str, tuple[ObjectBox, ...]]] = {}

    def of(self, scan: Path, scene: str) -> tuple[ObjectBox, ...]:
        """The boxes of a scan's objects, none if they are unknown. Raises BoxError once for each damaged file."""
        file = boxes_file(scan)
        if file is None:
            return ()
        if file not in self._scenes:
            self._scenes[file] = {}
            self._scenes[file] = read_boxes(file)
        return self._scenes[file].get(scene, ())


def read_boxes(path: Path) -> dict[str, tuple[ObjectBox, ...]]:
    """The boxes in a file by scene name, as docs/data.md describes it; raises BoxError."""
    try:
        scenes = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BoxError(f"{path} has no boxes that can be read ({type(error).__name__}: {error})") from None
    if not isinstance(scenes, list):
        raise BoxError(f'{path} has no boxes that can be read: it must be a list of {{"scene_name", "objects"}}')
    return dict(scene_boxes(scene, f"{path}, scene {number}") for number, scene in enumerate(scenes, start=1))


def scene_boxes(record: Any, place: str) -> tuple[str, tuple[ObjectBox, ...]]:
    """The name and the boxes of a scene in a file of boxes; raises BoxError naming the `place`."""
    try:
        name, objects = str(record["scene_name"]), list(record["objects"])
    except (KeyError, TypeError) as error:
        raise BoxError(f"{place} has no boxes that can be read ({type(error).__name__}: {error})") from None
    place = f"{place} ({name})"
    return name, tuple(checked(_box, each, f"{place}, object {number}") for number, each in enumerate(objects, start=1))


def checked(read: Any, record: Any, place: str) -> ObjectBox:
    """The box that `read` finds in a record; raises BoxError naming the `place` and what is wrong."""
    try:
        box: ObjectBox = read(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BoxError(f"{place} has no boxes that can be read ({type(error).__name__}: {error})") from None
    numbers = [*box.center, *box.size, box.yaw_deg, *(value for axis in box.axes or () for value in axis)]
    if not all(map(math.isfinite, numbers)) or min(box.size) < 0:
        raise BoxError(f"{place} has no boxes that can be read: center and size must be finite, and size not negative")
    if box.axes is not None and not _are_orthonormal(box.axes):
        raise BoxError(f"{place} has no boxes that can be read: axes must be three unit vectors at right angles")
    return box


def _are_orthonormal(axes: Sequence[Vector]) -> bool:
    products = [(i == j, sum(a * b for a, b in zip(axes[i], axes[j], strict=True))) for i in range(3) for j in range(3)]
    return all(abs(product - same) <= _UNIT_TOLERANCE for same, product in products)


def _box(record: Mapping[str, Any]) -> ObjectBox:
    axes = record.get("axes")
    return ObjectBox(
        str(record["category"]),
        vector(record["center"]),
        vector(record["size"]),
        float(record.get("yaw_deg", 0.0)),
        str(record.get("id", "")),
        None if axes is None else axes_of(axes),
    )


def vector(values: Iterable[Any]) -> Vector:
    """Three numbers; raises ValueError or TypeError for anything else."""
    x, y, z = map(float, values)
    return x, y, z


def axes_of(rows: Iterable[Iterable[Any]]) -> tuple[Vector, Vector, Vector]:
    """Three vectors of three numbers; raises ValueError or TypeError for anything else."""
    first, second, third = map(vector, rows)
    return first, second, third


def record_of(scene: str, boxes: Iterable[ObjectBox]) -> dict[str, Any]:
    """A scene as `read_boxes` reads it."""
    objects = []
    for box in boxes:
        turned = {"yaw_deg": box.yaw_deg} if box.axes is None else {"axes": [list(axis) for axis in box.axes]}
        named = {"id": box.id} if box.id else {}
        objects.append(
            {"category": box.category, **named, "center": list(box.center), "size": list(box.size), **turned}
        )
    return {"scene_name": scene, "objects": objects}


@dataclass(frozen=True)
class Needed:
    """The objects of one category that a question names. `all_of_them`: it counts them, so it needs every one.

    Otherwise one of them is enough.
    """

    category: str
    boxes: tuple[ObjectBox, ...]
    all_of_them: bool = False

    @cached_property
    def enough(self) -> int:
        """How many of the boxes the question needs."""
        return len(self.boxes) if self.all_of_them else 1


def needed_for(question: str, options: Iterable[str], boxes: Sequence[ObjectBox]) -> tuple[Needed, ...]:
    """The objects that a question and its options name, by category in the order of the boxes.

    A question that begins with "How many" needs all objects of the category that it counts.
    """
    named = named_in(" \n ".join([question, *options]), boxes)
    counts = bool(_ALL_OF_A_KIND.match(question))
    return tuple(
        Needed(category, tuple(box for box in named if box.category == category), counts)
        for category in dict.fromkeys(box.category for box in named)
    )


def named_in(text: str, boxes: Iterable[ObjectBox]) -> list[ObjectBox]:
    """The boxes whose category occurs in a text as whole words, in the singular or the plural, in either case.

    Of overlapping names the longest counts: "table lamp" names no table if there is a category of that name.
    """
    boxes = list(boxes)
    forms = {form.lower(): category for category in {box.category for box in boxes} for form in _forms(category)}
    if not forms:
        return []
    longest_first = "|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))
    found = re.findall(rf"(?<!\w)({longest_first})(?!\w)", text, re.IGNORECASE)
    named = {forms[form.lower()] for form in found}
    return [box for box in boxes if box.category in named]


def _forms(category: str) -> set[str]:
    word = category.replace("_", " ").strip()
    if not word:
        return set()
    return {word, word + "s", word + "es", re.sub("y$", "ies", word), re.sub("fe?$", "ves", word)}
