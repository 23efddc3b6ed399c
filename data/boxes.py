"""Where the boxes of a scan's objects are known: beside procedural rooms, in the file rooms.json."""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

BOXES_FILE = "rooms.json"
_LEVELS = 4
"""How many folders above a scan may hold the file: scannet/scans/<scene>/<scene>_vh_clean_2.ply has the most."""


class BoxError(ValueError):
    """A file of boxes is damaged; the message names it."""


@dataclass(frozen=True)
class ObjectBox:
    """An upright box around an object: `center` and `size` in metres, turned by `yaw_deg` about the vertical."""

    category: str
    center: tuple[float, float, float]
    size: tuple[float, float, float]
    yaw_deg: float

    @property
    def footprint(self) -> tuple[tuple[float, float], ...]:
        """The four corners seen from above, (x, y) in metres, in order around the box."""
        yaw = math.radians(self.yaw_deg)
        cos, sin = math.cos(yaw), math.sin(yaw)
        half_x, half_y = self.size[0] / 2, self.size[1] / 2
        corners = ((-half_x, -half_y), (half_x, -half_y), (half_x, half_y), (-half_x, half_y))
        return tuple((self.center[0] + cos * x - sin * y, self.center[1] + sin * x + cos * y) for x, y in corners)


def boxes_file(scan: Path) -> Path | None:
    """The file with the boxes of a scan's objects, in one of the folders above it; None if there is none."""
    found = (folder / BOXES_FILE for folder in scan.parents[: _LEVELS + 1])
    return next((path for path in found if path.is_file()), None)


def read_boxes(path: Path) -> dict[str, tuple[ObjectBox, ...]]:
    """The boxes in a file by scene name; raises BoxError."""
    try:
        return {
            str(room["scene_name"]): tuple(map(_box, room["objects"]))
            for room in json.loads(path.read_text(encoding="utf-8"))
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BoxError(f"{path} has no boxes that can be read ({type(error).__name__}: {error})") from None


def _box(record: dict[str, Any]) -> ObjectBox:
    x, y, z = map(float, record["center"])
    width, depth, height = map(float, record["size"])
    return ObjectBox(str(record["category"]), (x, y, z), (width, depth, height), float(record["yaw_deg"]))


def named_in(text: str, boxes: Iterable[ObjectBox]) -> list[ObjectBox]:
    """The boxes whose category occurs in a text as whole words, in the singular or the plural, in either case."""
    return [box for box in boxes if _names(text, box.category)]


def _names(text: str, category: str) -> bool:
    word = category.replace("_", " ").strip()
    forms = {word, word + "s", word + "es", re.sub("y$", "ies", word), re.sub("fe?$", "ves", word)}
    either = "|".join(map(re.escape, sorted(forms)))
    return bool(word) and re.search(rf"(?<!\w)(?:{either})(?!\w)", text, re.IGNORECASE) is not None
