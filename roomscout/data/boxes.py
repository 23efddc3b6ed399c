"""The boxes of a scan's objects: the files that have them, and the objects that a question needs."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import AfterValidator, Field, ValidationError

from roomscout.base.errors import Refusal
from roomscout.base.grouping import grouped
from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record, adapter_of, reasons

BOXES_FILES = ("boxes.json", "rooms.json")  # a file of boxes beside scans: one's own, and that of procedural rooms
_LEVELS = 4  # most folders between a scan and the file, as in scannet/scans/<scene>/<scene>_vh_clean_2.ply
_UNIT_TOLERANCE = 0.01
_ALL_OF_A_KIND = re.compile(r"\s*how many\b|.*\bwhich\b.*\b(closest|nearest) to\b", re.IGNORECASE | re.DOTALL)

Finite = Annotated[float, Field(allow_inf_nan=False)]
Length = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Vector = tuple[Finite, Finite, Finite]
Size = tuple[Length, Length, Length]


def _orthonormal(axes: tuple[Vector, Vector, Vector]) -> tuple[Vector, Vector, Vector]:
    if not np.allclose(np.array(axes) @ np.transpose(axes), np.eye(3), rtol=0, atol=_UNIT_TOLERANCE):
        raise ValueError("must be three unit vectors at right angles")
    return axes


Axes = Annotated[tuple[Vector, Vector, Vector], AfterValidator(_orthonormal)]


class BoxError(Refusal, ValueError):
    """A file of boxes cannot be used; the message names it and how to fix it."""


@dataclass(frozen=True)
class ObjectBox:
    """A box around an object, upright or tilted."""

    category: str  # such as "table_lamp"
    center: Vector  # metres, in the scan's coordinates
    size: Size  # metres
    yaw_deg: OmittedIfEmpty[Finite] = 0.0  # by which an upright box is turned about the vertical
    id: OmittedIfEmpty[str] = ""  # the object's own in its file, if it has one
    axes: OmittedIfNone[Axes | None] = None  # of a tilted box: unit vectors along which its sizes are measured

    @property
    def directions(self) -> tuple[Vector, Vector, Vector]:
        """The unit vectors along which the three sizes are measured."""
        if self.axes is not None:
            return self.axes
        yaw = math.radians(self.yaw_deg)
        cos = math.cos(yaw)
        sin = math.sin(yaw)
        return (cos, sin, 0.0), (-sin, cos, 0.0), (0.0, 0.0, 1.0)

    @property
    def footprint(self) -> tuple[tuple[float, float], ...]:
        """The outline seen from above, (x, y) in metres, in order around the box; four corners if it is upright."""
        if self.axes is not None:
            from scipy.spatial import ConvexHull

            signs = np.stack(np.meshgrid(*[[-0.5, 0.5]] * 3), axis=-1).reshape(-1, 3)
            points = np.unique((signs * self.size) @ np.array(self.axes)[:, :2] + self.center[:2], axis=0)
            hull = ConvexHull(points, qhull_options="QJ")  # also if it is flat
            return tuple((float(x), float(y)) for x, y in points[hull.vertices])
        (cos, sin, _), *_ = self.directions
        half_x = self.size[0] / 2
        half_y = self.size[1] / 2
        corners = ((-half_x, -half_y), (half_x, -half_y), (half_x, half_y), (-half_x, half_y))
        return tuple((self.center[0] + cos * x - sin * y, self.center[1] + sin * x + cos * y) for x, y in corners)

    @property
    def name(self) -> str:
        """The category as words."""
        return self.category.replace("_", " ").strip()

    @property
    def as_standing(self) -> tuple[float, float, float, float]:
        """The longer and the shorter horizontal side and the height (of a tilted box: its side nearest to the vertical)
        in metres, and the heading of the longer one in degrees, counter-clockwise from +x."""
        upright = max(range(3), key=lambda axis: abs(self.directions[axis][2]))
        across, along = sorted((axis for axis in range(3) if axis != upright), key=lambda axis: self.size[axis])
        heading = math.degrees(math.atan2(self.directions[along][1], self.directions[along][0]))
        return self.size[along], self.size[across], self.size[upright], heading

    def moved(self, offset: Sequence[float]) -> "ObjectBox":
        """The same box elsewhere: `offset` (3,) metres."""
        x, y, z = (float(value + step) for value, step in zip(self.center, offset, strict=True))
        return replace(self, center=(x, y, z))


def boxes_file(scan: Path) -> Path | None:
    """The file with the boxes of a scan's objects, in one of the folders above it; None if there is none."""
    paths = (folder / name for folder in scan.parents[: _LEVELS + 1] for name in BOXES_FILES)
    return next((path for path in paths if path.is_file()), None)


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


@dataclass(frozen=True)
class SceneBoxes(Record):
    """A scene of a file of boxes: its name and the boxes of its objects."""

    scene_name: str
    objects: tuple[ObjectBox, ...]


def read_boxes(path: Path) -> dict[str, tuple[ObjectBox, ...]]:
    """The boxes in a file by scene name, as docs/data.md describes it; raises BoxError."""
    try:
        return {
            scene.scene_name: scene.objects for scene in adapter_of(list[SceneBoxes]).validate_json(path.read_bytes())
        }
    except OSError as error:
        raise BoxError(f"{path} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise BoxError(f"{path} has no boxes that can be read: {reasons(error)}") from None


@dataclass(frozen=True)
class Needed:
    """The objects of a category that a question names: it needs all if it counts them or asks for the nearest."""

    category: str
    boxes: tuple[ObjectBox, ...]
    enough: int  # how many of the boxes the question needs


def needed_for(question: str, options: Iterable[str], boxes: Sequence[ObjectBox]) -> tuple[Needed, ...]:
    """The objects that a question and its options name, by category in the order of the boxes. A question that begins
    with "How many", or asks which is the closest, needs all objects of a category."""
    named = named_in(" \n ".join([question, *options]), boxes)
    most = None if _ALL_OF_A_KIND.match(question) else 1
    by_category = grouped((box.category, box) for box in named)
    return tuple(Needed(category, tuple(of_it), len(of_it[:most])) for category, of_it in by_category.items())


def named_in(text: str, boxes: Sequence[ObjectBox]) -> list[ObjectBox]:
    """The boxes whose category occurs in a text as whole words, in the singular or the plural, in either case. Of
    overlapping names the longest counts: "table lamp" names no table if there is a category of that name."""
    named = {category for category, _, _ in _mentions(text, boxes)}
    return [box for box in boxes if box.category in named]


def category_named(name: str, boxes: Sequence[ObjectBox]) -> str | None:
    """The category of boxes that the name of an object names, read as by `named_in`: of adjacent ones the last, so that
    a desk lamp is a lamp. None for none, and for several with other words between them."""
    text = name.replace("_", " ")
    mentions = _mentions(text, boxes)
    apart = [text[end:start] for (_, _, end), (_, start, _) in pairwise(mentions)]
    if not mentions or any(between.strip(" -") for between in apart):
        return None
    return mentions[-1][0]


def _mentions(text: str, boxes: Sequence[ObjectBox]) -> list[tuple[str, int, int]]:
    """The categories of boxes that a text names, each with its start and end there."""
    forms, pattern = _forms_of(frozenset(box.category for box in boxes))
    found = pattern.finditer(text) if forms else ()
    return [(forms[low], *match.span()) for match in found if (low := match.group().lower()) in forms]


@lru_cache(maxsize=256)
def _forms_of(categories: frozenset[str]) -> tuple[dict[str, str], re.Pattern[str]]:
    """The categories by their forms in lower case, and what finds the longest form at a place of a text."""
    forms = {form.lower(): category for category in sorted(categories) for form in _forms(category)}
    longest_first = "|".join(re.escape(form) for form in sorted(forms, key=lambda form: (-len(form), form)))
    return forms, re.compile(rf"(?<!\w)({longest_first})(?!\w)", re.IGNORECASE)


def _forms(category: str) -> set[str]:
    word = category.replace("_", " ").strip()
    if not word:
        return set()
    return {word, word + "s", word + "es", re.sub("y$", "ies", word), re.sub("fe?$", "ves", word)}
