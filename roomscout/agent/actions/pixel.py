"""Points of the view to turn to, to look at and to go to."""

import json
import math
import re
from functools import partial

from roomscout.agent.actions.points import MARKED, POINT, direction_of, hole_at, pixel_of
from roomscout.agent.actions.space import ActionSpace, Fields, Key, Place, Read, shown
from roomscout.envs.actions import MOVE_LIMIT_M, PITCH_LIMIT_DEG, CameraMove

STAND_OFF_M = 0.5  # how far before a point the camera stops, along the floor
ANGLE_DEG = 60.0
TURNS = {"turn_left": CameraMove(ANGLE_DEG), "turn_right": CameraMove(-ANGLE_DEG), "turn_around": CameraMove(180.0)}
"""The actions without a point, which lead to what no view shows yet."""
_GO = (
    f" go_to turns to it and moves towards it at the same height, up to {{move_limit}} m, and stops {STAND_OFF_M:g} m "
    "before it."
)
_LINES = (
    "- action: %s. turn_to turns until the point is in the middle between the left and the right edge of the view; "
    "look_at also changes the pitch, within "
    f"-{PITCH_LIMIT_DEG:g} to {PITCH_LIMIT_DEG:g}, until it is in the middle of the view.%s turn_left and turn_right "
    f"turn by {ANGLE_DEG:g} degrees, turn_around by 180: they need no point.\n"
    "- point: [x, y] in the current view, which is {view_width} pixels wide and {view_height} pixels high; x counts "
    "from its left edge, y from its top edge. null without a point."
)


def read(fields: Fields, place: Place, actions: tuple[str, ...]) -> Read:
    """The move of `action`, one of `actions`, towards `point`; a reply that is done needs none."""
    said = fields.get("action")
    if said is None and ("action" in fields or fields.get("done")):
        return Read(CameraMove())
    if said is None:
        raise ValueError(f"it has no action: write one of {', '.join(actions)}")
    action = re.sub(r"[\s-]+", "_", said.strip().lower()) if isinstance(said, str) else None
    if action not in actions:
        raise ValueError(f"there is no action {shown(said)}: actions are {', '.join(actions)}")
    if action in TURNS:
        return Read(TURNS[action])
    point = fields.get("mark") if fields.get("point") is None else fields["point"]
    if point is None:
        raise ValueError(f"{action} needs a point: write [x, y] in pixels of the view")
    pixel = pixel_of("point", point, place)
    left, above = direction_of(pixel, place)
    pitch = above - place.pose.pitch_deg if action == "look_at" else 0.0
    ahead = 0.0
    if action == "go_to":
        surface = place.surface_at(*pixel)
        if surface is None:
            raise ValueError(f"{hole_at(pixel)}: go to another point, or turn to this one")
        ahead = min(max(math.dist(surface[:2], place.pose.position[:2]) - STAND_OFF_M, 0.0), MOVE_LIMIT_M)
    return Read(CameraMove(round(left, 1), round(ahead, 2), pitch_angle_degrees=round(pitch, 1)))


def _space(pointing: tuple[str, ...], more: str, turning: ActionSpace | None = None) -> ActionSpace:
    """The space of the actions that need a point, and TURNS; `more` is what the prompt says of going."""
    actions = (*pointing, *TURNS)
    words = " | ".join(json.dumps(json.dumps(action)) for action in (None, *actions))
    schema = {"type": ["string", "null"], "enum": [None, *actions]}
    said = f"{', '.join(actions[:-1])} or {actions[-1]}; null to stay"
    return ActionSpace(
        name="pixel",
        keys={"action": Key(pointing[-1], None, f"({words})", schema), "point": POINT},
        lines=_LINES % (said, more),
        read=partial(read, actions=actions),
        turning=turning,
        pitches=True,
        marked=MARKED,
    )


PIXEL = _space(("turn_to", "look_at", "go_to"), _GO, turning=_space(("turn_to", "look_at"), ""))
