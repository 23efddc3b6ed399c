"""The controls with which a page composes a reply, made from an action space itself: its keys, and what it reads."""

import json
import re
from collections.abc import Mapping
from typing import Any

from roomscout.agent.actions.points import SeenPlace, direction_of
from roomscout.agent.actions.space import Key
from roomscout.agent.state import QuestionState
from roomscout.envs.actions import ALL_LIMITS, CameraMove
from roomscout.models import Reply

ANGLE_STEP_DEG, LENGTH_STEP_M = 15.0, 0.25
"""What one press of a key adds to a number."""
PROBE = 0.25
"""A number within the range of any key, from which follows what the key does."""
KEYS = {
    "rotation_angle_degrees": ("ArrowLeft", "ArrowRight"),
    "forward_meters": ("ArrowUp", "ArrowDown"),
    "left_meters": ("Shift+ArrowLeft", "Shift+ArrowRight"),
    "z_delta_meters": ("Shift+ArrowUp", "Shift+ArrowDown"),
    "pitch_angle_degrees": ("PageUp", "PageDown"),
}
"""The keys of a keyboard that make a number of a move larger and smaller."""


def controls_of(state: QuestionState) -> dict[str, Any]:
    """The fields of a reply as JSON values, and the `shortcuts`, which change a field by a button or a key.

    What a shortcut does to the camera is found out by having the space read the reply that it makes; those that it
    cannot read, or that move by several numbers, are left out. Raises ActionSpaceError.
    """
    space = state.rules.space if state.rules.translation else state.rules.space.at_place
    fields = [_field(name, key) for name, key in space.keys.items()]
    shortcuts: list[dict[str, Any]] = []
    for field in fields:
        probes = [PROBE, -PROBE] if field.get("number") else [*field.get("choices", ()), *field.get("words", ())]
        for probe in probes:
            decision = state.read(Reply(json.dumps({field["name"]: probe})), last_turn=False)
            moved = {name: amount for name in ALL_LIMITS if (amount := getattr(decision.action, name))}
            if decision.error is not None or len(moved) != 1 or decision.action.then:
                continue
            ((name, amount),) = moved.items()
            shortcut = {"field": field["name"], "append" if "words" in field else "set": probe}
            if field.get("number"):
                step = ANGLE_STEP_DEG if "degrees" in name else LENGTH_STEP_M
                per_unit, amount = amount / probe, step if amount > 0 else -step
                shortcut = {"field": field["name"], "add": amount / per_unit, "per_unit": per_unit}
            key = KEYS[name][amount < 0]
            free = all(each["key"] != key for each in shortcuts)
            label = CameraMove(**{name: amount}).in_words
            shortcuts.append(shortcut | {"key": key if free else "", "label": label})
    return {"fields": fields, "shortcuts": shortcuts}


def aimed(state: QuestionState, controls: Mapping[str, Any], x: float, y: float) -> dict[str, float]:
    """The numbers that turn the camera towards a pixel of the view, by their fields; none if no number turns it."""
    left, above = direction_of((x, y), SeenPlace(state.observation, state.environment.sight))
    angles = {"ArrowLeft": left, "PageUp": above - state.observation.pose.pitch_deg}
    turns = [each for each in controls["shortcuts"] if "add" in each and each["key"] in angles]
    return {each["field"]: round(angles[each["key"]] / each["per_unit"], 1) for each in turns}


def _field(name: str, key: Key) -> dict[str, Any]:
    """A key of the space: its value that does not move the camera, and what its schema allows."""
    found: dict[str, Any] = {"name": name, "still": key.still, "example": key.example}
    lists = [form for form in key.schema.get("anyOf", [key.schema]) if form.get("type") == "array"]
    if lists:
        found["points"] = 1 if lists[0]["items"].get("type") == "number" else lists[0].get("maxItems", 1)
    elif "enum" in key.schema:
        found["choices"] = [each for each in key.schema["enum"] if each is not None]
    elif "pattern" in key.schema:
        found["words"] = list(dict.fromkeys(re.findall(r"[A-Za-z]\w*", key.schema["pattern"])))
        found["between"] = "".join(re.findall(r"\W+", str(key.example))[:1])
    else:
        found["number"] = key.schema.get("type") == "number"
    return found
