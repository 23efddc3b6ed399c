"""What a reply notes down about the room, and the words for it; an answer is later read off these notes."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.actions import CameraAction
from data.rooms.geometry import wrap_deg
from rendering.camera import CameraPose

STEP_M = 0.25
"""Coordinates and distances are noted in steps of this many metres."""
BEARING_STEP_DEG = 5


@dataclass(frozen=True)
class Note:
    """One object as it is written down: the direction of its middle in the view (degrees, + = left), what it is, how
    far away, and thus where it is on the floor plan: metres along the room's x and y from where the camera began; then
    its longest side. Eyes find the first three in the picture, and the place follows from them and the heading.

    `index` is its position in `Room.objects`, which is not written.
    """

    bearing_deg: int
    category: str
    away_m: float
    x_m: float
    y_m: float
    size_cm: int
    index: int

    @property
    def place(self) -> str:
        """Where it is, in words."""
        return f"{self.x_m:+.2f} {self.y_m:+.2f}"

    @property
    def text(self) -> str:
        """The whole note in words."""
        return f"{self.bearing_deg:+d} {self.category} {self.away_m:.2f} m {self.place} {self.size_cm} cm"


def make_note(
    category: str, offset_m: Sequence[float], pose: CameraPose, start: CameraPose, longest_m: float, index: int
) -> Note:
    """The note of an object whose middle is `offset_m` (x, y) from the camera at `pose`, all rounded as notes are."""
    dx, dy = (float(value) for value in offset_m)
    bearing = float(wrap_deg(np.array(math.degrees(math.atan2(dy, dx)) - pose.heading_deg)))
    return Note(
        round(bearing / BEARING_STEP_DEG) * BEARING_STEP_DEG,
        category,
        stepped(math.hypot(dx, dy)),
        stepped(pose.x_m + dx - start.x_m),
        stepped(pose.y_m + dy - start.y_m),
        rounded_size_cm(longest_m),
        index,
    )


def stepped(metres: float) -> float:
    """Metres rounded to `STEP_M`, never minus zero."""
    return round(metres / STEP_M) * STEP_M + 0.0


def rounded_size_cm(longest_m: float) -> int:
    """Centimetres in steps of 5 up to 1 m and of 10 above."""
    step = 5 if longest_m < 1.0 else 10
    return max(step, round(100 * longest_m / step) * step)


def heading_deg(ahead: Note, origin: Note) -> int:
    """The direction from `origin` to `ahead` as a heading, 0 to 350 in steps of 10 degrees."""
    degrees = math.degrees(math.atan2(ahead.y_m - origin.y_m, ahead.x_m - origin.x_m))
    return round(degrees / 10) * 10 % 360


def turn_deg(before: int, after: int) -> int:
    """The turn from one heading to another: -170 to 180 degrees, + = left."""
    return 180 - (180 - (after - before)) % 360


def view_text(pose: CameraPose, start: CameraPose, new: Sequence[Note]) -> str:
    """What a reply says of its view: where the camera is, counted from the start, and what is new."""
    where = f"At {stepped(pose.x_m - start.x_m):+.2f} {stepped(pose.y_m - start.y_m):+.2f}"
    seen = "; ".join(note.text for note in new)
    return f"{where} facing {round(pose.heading_deg) % 360}. {f'New: {seen}.' if new else 'Nothing new.'}"


def action_text(action: CameraAction) -> str:
    """The JSON object of a reply, its six keys in the prompt's order and numbers as short as they can be."""
    return json.dumps(
        {
            "rotation_angle_degrees": _short(action.rotation_angle_degrees),
            "forward_meters": _short(action.forward_meters),
            "left_meters": _short(action.left_meters),
            "z_delta_meters": _short(action.z_delta_meters),
            "answer": action.answer,
            "done": action.done,
        }
    )


def _short(value: float) -> float:
    return int(value) if value == int(value) else value
