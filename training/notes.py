"""What a reply notes down about the room, and the words for it; an answer is later read off these notes."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

from agent.actions import CameraAction
from rendering.camera import CameraPose

STEP_M = 0.25
"""Coordinates are noted in steps of this many metres."""


@dataclass(frozen=True)
class Note:
    """One object as it is written down: where its middle is on the floor plan, in metres along the room's x and y from
    where the camera began, and its longest side. `index` is its position in `Room.objects`, which is not written."""

    category: str
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
        return f"{self.category} {self.place} {self.size_cm} cm"


def make_note(category: str, offset_m: Sequence[float], longest_m: float, index: int) -> Note:
    """The note of an object whose middle is `offset_m` (x, y) from the start, all rounded as notes are."""
    x, y = (stepped(float(value)) for value in offset_m)
    return Note(category, x, y, rounded_size_cm(longest_m), index)


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
