"""What the camera is moved by, and the limits of a move."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from roomscout.rendering.camera import CameraPose

ROTATION_LIMIT_DEG = 180.0
MOVE_LIMIT_M = 2.0
HEIGHT_LIMIT_M = 0.5
PITCH_LIMIT_DEG = 60.0  # moves take the camera's pitch no further than this, up or down

LIMITS = {
    "rotation_angle_degrees": ROTATION_LIMIT_DEG,
    "forward_meters": MOVE_LIMIT_M,
    "left_meters": MOVE_LIMIT_M,
    "z_delta_meters": HEIGHT_LIMIT_M,
}
"""The largest magnitude of each number in a move that keeps its pitch. Prompts state the same ranges."""
ALL_LIMITS = LIMITS | {"pitch_angle_degrees": 2 * PITCH_LIMIT_DEG}
"""The same of every number: a single move may take the pitch from one limit to the other."""


@dataclass(frozen=True)
class CameraMove:
    """What the environment does: the camera turns, then moves along its new heading. ValueError outside the limits."""

    rotation_angle_degrees: float = 0.0  # to the left
    forward_meters: float = 0.0  # along the new heading
    left_meters: float = 0.0  # across the new heading
    z_delta_meters: float = 0.0  # up
    pitch_angle_degrees: float = field(default=0.0, kw_only=True)  # how much the camera looks further up
    then: tuple["CameraMove", ...] = field(default=(), kw_only=True)  # moves that follow, until one of all is stopped

    def __post_init__(self) -> None:
        for name, limit in ALL_LIMITS.items():
            if not abs(getattr(self, name)) <= limit:  # also true for NaN
                raise ValueError(f"{name} is {getattr(self, name)}: it must be from -{limit:g} to {limit:g}")
        if any(move.then for move in self.then):
            raise ValueError("a move that follows another one has no moves after it")

    @classmethod
    def in_order(cls, moves: Sequence["CameraMove"]) -> "CameraMove":
        """Single moves one after the other."""
        return replace(moves[0], then=tuple(moves[1:])) if moves else CameraMove()

    @property
    def singles(self) -> tuple["CameraMove", ...]:
        """The moves in their order, each alone."""
        return (replace(self, then=()), *self.then) if self.then else (self,)

    @property
    def length_m(self) -> float:
        """The straight-line distance of the first move, metres."""
        return math.hypot(self.forward_meters, self.left_meters, self.z_delta_meters)

    @property
    def turns_alone(self) -> Self:
        """The same turns and looks in place."""
        then = tuple(move.turns_alone for move in self.then)
        return replace(self, forward_meters=0.0, left_meters=0.0, z_delta_meters=0.0, then=then)

    def goal(self, pose: CameraPose) -> CameraPose:
        """The pose to which this leads if nothing stops it."""
        there = pose.moved(self.rotation_angle_degrees, self.forward_meters, self.left_meters, self.z_delta_meters)
        if self.pitch_angle_degrees:
            lowest = min(-PITCH_LIMIT_DEG, pose.pitch_deg)
            highest = max(PITCH_LIMIT_DEG, pose.pitch_deg)
            there = replace(there, pitch_deg=min(max(pose.pitch_deg + self.pitch_angle_degrees, lowest), highest))
        for move in self.then:
            there = move.goal(there)
        return there

    @property
    def in_words(self) -> str:
        """The moves in words, such as "left 30°, forward 1 m"."""
        parts = [
            (self.rotation_angle_degrees, "left", "right", "°"),
            (self.pitch_angle_degrees, "look up", "look down", "°"),
            (self.forward_meters, "forward", "back", " m"),
            (self.left_meters, "step left", "step right", " m"),
            (self.z_delta_meters, "up", "down", " m"),
        ]
        words = [f"{plus if value > 0 else minus} {abs(value):g}{unit}" for value, plus, minus, unit in parts if value]
        return ", ".join([*words, *(move.in_words for move in self.then)]) or "stays"


@dataclass(frozen=True)
class CameraAction(CameraMove):
    """A move, and what the turn answers: a letter, a number as text, or free text; None while exploring. `done`
    requires an answer that the question accepts. The environment carries out the move alone."""

    answer: str | None = None
    done: bool = False

    @classmethod
    def of(cls, move: CameraMove, answer: str | None = None, done: bool = False) -> "CameraAction":
        """The decision to make a move, and what it answers."""
        return CameraAction(**vars(move) | {"answer": answer, "done": done})

    @property
    def unanswered(self) -> "CameraAction":
        """The same move without an answer."""
        return replace(self, answer=None, done=False)

    @property
    def in_words(self) -> str:
        """The decision in words, such as "left 30°, forward 1 m" or "answers 3"."""
        return f"answers {self.answer}" if self.done else super().in_words
