"""The explorer's notes about the room: their contents and text format. Answers are derived from these notes."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from roomscout.envs.actions import LIMITS, CameraAction
from roomscout.models.checkpoint_files import ViewSettings
from roomscout.rendering.camera import CameraPose
from roomscout.rooms.geometry import wrap_deg

STEP_M = 0.25
"""Resolution of coordinates and distances in notes, metres."""
BEARING_STEP_DEG = 5
STRIDE_M = 0.5
"""Walks are multiples of this, and so are positions relative to the start."""
LONGEST_WALK_M = 1.5
"""Long enough to see behind objects, short enough to be often unobstructed when a pupil misjudges the free space."""
TURN_DEG = 90
VIEWS_AROUND = 360 // TURN_DEG
VIEWS = ViewSettings(image_size=(288, 160), focal=105.0, max_new_tokens=320, tell=("pose", "extent", "turns"))
"""The explorer's views, saved with its checkpoints: 45 tokens and 108 degrees each, so that four cover the full circle,
and an object at the border of two is complete in both. The token limit fits its longest replies."""
FIRST = CameraPose(0.0, 0.0, 0.0, 0.0)
"""The start pose, the origin of the notes' coordinates."""

PLACE_WORD = re.compile(r" [+-]\d+\.\d\d")
"""One coordinate of a place, as one token."""

_WHERE = re.compile(r"At ([+-]\d+\.\d\d) ([+-]\d+\.\d\d) facing (\d+)\.")
_NOTE = re.compile(r"([+-]\d+) ([a-z ]+?) (\d+\.\d\d) m ([+-]\d+\.\d\d) ([+-]\d+\.\d\d) (\d+) cm[;.]")


@dataclass(frozen=True)
class Note:
    """A note of one object. The view shows bearing, category and distance; its place on the floor plan follows from
    them and the camera's pose."""

    bearing_deg: int  # of its centre in the view, + = left
    category: str  # one of CATEGORIES
    away_m: float  # from the camera to its centre
    ahead_m: float  # of the start, on the floor plan
    left_m: float  # of the start
    size_cm: int  # its longest side
    index: int  # in `Room.objects`, -1 if unknown; not part of the text

    @property
    def place(self) -> str:
        """The place as text."""
        return f"{self.ahead_m:+.2f} {self.left_m:+.2f}"

    @property
    def mirrored(self) -> "Note":
        """The note in a horizontally mirrored view; valid only for the first view."""
        return replace(self, bearing_deg=-self.bearing_deg, left_m=0.0 - self.left_m)

    @property
    def text(self) -> str:
        """The whole note as text."""
        return f"{self.bearing_deg:+d} {self.category} {self.away_m:.2f} m {self.place} {self.size_cm} cm"


def make_note(
    category: str, offset_m: Sequence[float], pose: CameraPose, start: CameraPose, longest_m: float, index: int
) -> Note:
    """The note of an object whose centre is `offset_m` (x, y) from the camera at `pose`, rounded as in the text."""
    dx = float(offset_m[0])
    dy = float(offset_m[1])
    bearing = float(wrap_deg(np.array(math.degrees(math.atan2(dy, dx)) - pose.heading_deg)))
    ahead, left = in_start_frame(pose.x_m + dx - start.x_m, pose.y_m + dy - start.y_m, start)
    return Note(
        round(bearing / BEARING_STEP_DEG) * BEARING_STEP_DEG,
        category,
        stepped(math.hypot(dx, dy)),
        stepped(ahead),
        stepped(left),
        rounded_size_cm(longest_m),
        index,
    )


def in_start_frame(dx_m: float, dy_m: float, start: CameraPose) -> tuple[float, float]:
    """Convert an offset along the room's x and y to metres ahead and to the left of the start's heading."""
    dx, dy, _ = start.forward
    return dx_m * float(dx) + dy_m * float(dy), dy_m * float(dx) - dx_m * float(dy)


def stepped(metres: float) -> float:
    """Metres rounded to `STEP_M`, without negative zero."""
    return round(metres / STEP_M) * STEP_M + 0.0


def rounded_size_cm(longest_m: float) -> int:
    """Centimetres in steps of 5 below 1 m and of 10 above."""
    step = 5 if longest_m < 1.0 else 10
    return max(step, round(100 * longest_m / step) * step)


def heading_deg(ahead: Note, origin: Note) -> int:
    """The direction from `origin` to `ahead`, 0 to 350 in steps of 10 degrees; 0 is the heading at the start."""
    degrees = math.degrees(math.atan2(ahead.left_m - origin.left_m, ahead.ahead_m - origin.ahead_m))
    return round(degrees / 10) * 10 % 360


def apart(to: Note, origin: Note) -> str:
    """The offset from `origin` to `to` as text: metres ahead and left in the start frame."""
    return f"{to.ahead_m - origin.ahead_m:+.2f} {to.left_m - origin.left_m:+.2f}"


def turn_deg(before: int, after: int) -> int:
    """The turn from one heading to another: -170 to 180 degrees, + = left."""
    return 180 - (180 - (after - before)) % 360


def pose_words(pose: CameraPose, start: CameraPose) -> str:
    """The camera's position and heading as text, relative to the start."""
    ahead, left = in_start_frame(pose.x_m - start.x_m, pose.y_m - start.y_m, start)
    facing = round(pose.heading_deg - start.heading_deg) % 360
    return f"{stepped(ahead):+.2f} {stepped(left):+.2f} facing {facing}"


def view_text(pose: CameraPose, start: CameraPose, new: Sequence[Note]) -> str:
    """The first line of a reply: the camera's pose and the new notes."""
    seen = "; ".join(note.text for note in new)
    return f"At {pose_words(pose, start)}. {f'New: {seen}.' if new else 'Nothing new.'}"


def notes_in(reply: str) -> list[Note]:
    """Parse the new notes of a reply, in order."""
    line = reply.split("\n")[0].partition("New:")[2]
    return [
        Note(int(bearing), category, float(away), float(ahead), float(left), int(size), -1)
        for bearing, category, away, ahead, left, size in _NOTE.findall(line)
    ]


def seen_from_first(reply: str) -> list[Note]:
    """The new notes of the teacher's reply, converted as if its view had been the first."""
    match = _WHERE.match(reply)
    assert match is not None, f"not a reply of the teacher: {reply!r}"
    at_ahead, at_left, facing = map(float, match.groups())
    then = replace(FIRST, heading_deg=facing)
    moved = []
    for note in notes_in(reply):
        ahead, left = in_start_frame(note.ahead_m - at_ahead, note.left_m - at_left, then)
        moved.append(replace(note, ahead_m=stepped(ahead), left_m=stepped(left)))
    return moved


def action_text(action: CameraAction) -> str:
    """The JSON object of a reply: the keys in the prompt's order, whole numbers without decimals."""
    numbers = {name: getattr(action, name) for name in LIMITS}
    short = {name: int(value) if value == int(value) else value for name, value in numbers.items()}
    return json.dumps(short | {"answer": action.answer, "done": action.done})
