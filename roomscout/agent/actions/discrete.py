"""Steps of a fixed size by their names, several in one reply."""

from collections.abc import Collection

from roomscout.agent.actions.space import ActionSpace, Fields, Key, Place, Read, shown
from roomscout.envs.actions import PITCH_LIMIT_DEG, CameraMove

STEP_M, ANGLE_DEG = 0.25, 30.0
MOST = 5  # steps in one reply
TURNS = {
    "turn_left": CameraMove(ANGLE_DEG),
    "turn_right": CameraMove(-ANGLE_DEG),
    "look_up": CameraMove(pitch_angle_degrees=ANGLE_DEG),
    "look_down": CameraMove(pitch_angle_degrees=-ANGLE_DEG),
}
STEPS = {
    "move_forward": CameraMove(forward_meters=STEP_M),
    "move_backward": CameraMove(forward_meters=-STEP_M),
    "move_left": CameraMove(left_meters=STEP_M),
    "move_right": CameraMove(left_meters=-STEP_M),
} | TURNS
_LINES = (
    f'- actions: up to {MOST} of %s, joined by "|". They are carried out in this order until one is blocked. %s'
    f"turn_left and turn_right turn by {ANGLE_DEG:g} degrees; look_up and look_down change the pitch by {ANGLE_DEG:g} "
    f"degrees, within -{PITCH_LIMIT_DEG:g} to {PITCH_LIMIT_DEG:g}."
)


def read(fields: Fields, place: Place) -> Read:
    """The steps of `actions` in their order; a reply that is done needs none."""
    said = fields.get("actions")
    if said is None and "actions" not in fields and not fields.get("done"):
        raise ValueError(f'it has no actions: write some of {", ".join(STEPS)}, joined by "|"')
    if not isinstance(said, str | None):
        raise ValueError(f'actions must be a text such as "turn_left|move_forward", not {shown(said)}')
    names = [name.strip().lower() for name in (said or "").split("|") if name.strip()]
    if wrong := [name for name in names if name not in STEPS]:
        raise ValueError(f"there is no action {shown(wrong[0])}: actions are {', '.join(STEPS)}")
    if len(names) > MOST:
        raise ValueError(f"it has {len(names)} actions: write at most {MOST}")
    return Read(CameraMove.in_order([STEPS[name] for name in names]))


def _space(names: Collection[str], example: str, more: str = "", turning: ActionSpace | None = None) -> ActionSpace:
    """The space of the steps of these names; `more` is what the prompt says of those that move."""
    step = "(" + " | ".join(rf'"{name}"' for name in names) + ")"
    pattern = f"({'|'.join(names)})"
    grammar = rf'"\"" ({step} ("|" {step}){{0,{MOST - 1}}})? "\""'
    schema = {"type": "string", "pattern": rf"^({pattern}(\|{pattern}){{0,{MOST - 1}}})?$"}
    return ActionSpace(
        name="discrete",
        keys={"actions": Key(example, "", grammar, schema)},
        lines=_LINES % (", ".join(names), more),
        read=read,
        turning=turning,
        fallback=TURNS["turn_left"],
        pitches=True,
    )


_MOVING = f"The four that move go {STEP_M:g} m without turning; "
DISCRETE = _space(STEPS, "turn_left|move_forward", _MOVING, turning=_space(TURNS, "turn_left|look_down"))
