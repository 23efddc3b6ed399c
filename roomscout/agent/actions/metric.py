"""Turns in degrees and moves in metres: what a model says by default, and the same with the camera's pitch."""

import math
from collections.abc import Mapping
from functools import partial

from roomscout.agent.actions.space import ActionSpace, Fields, Key, Place, Read, shown
from roomscout.data.answers import NUMBER, UNIT_WORDS
from roomscout.envs.actions import LIMITS, PITCH_LIMIT_DEG, CameraMove

UNITS = {"degrees": ("degrees", "degree", "deg", "°"), "meters": UNIT_WORDS["m"]}
"""What may follow a number that is a text, by the unit in the name of the number."""

_TURNS = "- rotation_angle_degrees: -{rotation_limit} to {rotation_limit}. Positive turns left, negative turns right."
_MOVES = """\
- forward_meters: -{move_limit} to {move_limit}. Negative moves backward.
- left_meters: -{move_limit} to {move_limit}. Positive moves left, negative moves right.
- z_delta_meters: -{height_limit} to {height_limit}. Positive moves up, negative moves down."""
_PITCH = f"""
- pitch_angle_degrees: -{PITCH_LIMIT_DEG:g} to {PITCH_LIMIT_DEG:g}. Positive looks further up, negative further down; \
the pitch itself stays from -{PITCH_LIMIT_DEG:g} to {PITCH_LIMIT_DEG:g}."""


def _read(limits: Mapping[str, float], fields: Fields, place: Place) -> Read:
    """The numbers of an object; missing ones are 0, and those outside their range are limited to it."""
    numbers, clamped = {}, []
    for name, limit in limits.items():
        value = _finite(name, fields.get(name))
        numbers[name] = min(max(value, -limit), limit)
        if numbers[name] != value:
            clamped.append(f"{name} {value:g} -> {numbers[name]:g}")
    return Read(CameraMove(**numbers), clamped)  # type: ignore[arg-type]


def _finite(name: str, value: object) -> float:
    """A number, also as a text, alone or with the unit that its name says; raises ValueError for anything else."""
    if value is None:
        return 0.0
    if isinstance(value, str):
        number = NUMBER.match(plain := value.strip().replace("\u2212", "-"))
        if number and plain[number.end() :].strip().lower() in ("", *UNITS[name.rsplit("_", 1)[1]]):
            value = float(number[0])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be a number, not {shown(value)}")
    if not abs(value) < math.inf:  # also false for NaN, and an int too large for a float compares without raising
        raise ValueError(f"{name} must be a finite number")
    return float(min(max(value, -1e9), 1e9))


def _space(name: str, count: str, limits: Mapping[str, float], more: str = "") -> ActionSpace:
    """The space of these numbers; `more` are the lines on those that METRIC lacks, which turn the camera in place."""
    reading = partial(_read, limits)
    turns = {number: Key() for number in limits if number not in LIMITS or number == "rotation_angle_degrees"}
    return ActionSpace(
        name=name,
        keys=dict.fromkeys(limits, Key()),
        lines=f"{_TURNS} The camera turns first, then moves along its new heading.\n{_MOVES}{more}",
        read=reading,
        turning=ActionSpace(name, turns, _TURNS + more, reading, pitches=bool(more)),
        watching=f"The first {count} numbers say how you would move the camera if you controlled it. They are recorded "
        f"and not carried out:\n{_TURNS}\n{_MOVES}{more}",
        pitches=bool(more),
    )


METRIC = _space("metric", "four", LIMITS)
METRIC_PITCH = _space("metric-pitch", "five", LIMITS | {"pitch_angle_degrees": PITCH_LIMIT_DEG}, _PITCH)
