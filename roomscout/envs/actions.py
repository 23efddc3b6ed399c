"""The action of a turn and its limits."""

from dataclasses import dataclass

ROTATION_LIMIT_DEG = 180.0
MOVE_LIMIT_M = 2.0
HEIGHT_LIMIT_M = 0.5

LIMITS = {
    "rotation_angle_degrees": ROTATION_LIMIT_DEG,
    "forward_meters": MOVE_LIMIT_M,
    "left_meters": MOVE_LIMIT_M,
    "z_delta_meters": HEIGHT_LIMIT_M,
}
"""The largest magnitude of each number in an action. Prompts state the same ranges."""


@dataclass(frozen=True)
class CameraAction:
    """One turn's decision. The camera turns first (+ = left), then moves along its new heading.

    `answer` is a letter, a number as text, or free text for an open question; None while exploring. `done` requires an
    answer that the question accepts. Raises ValueError for numbers outside LIMITS.
    """

    rotation_angle_degrees: float = 0.0
    forward_meters: float = 0.0
    left_meters: float = 0.0
    z_delta_meters: float = 0.0
    answer: str | None = None
    done: bool = False

    def __post_init__(self) -> None:
        for name, limit in LIMITS.items():
            if not abs(getattr(self, name)) <= limit:  # also true for NaN
                raise ValueError(f"{name} is {getattr(self, name)}: it must be from -{limit:g} to {limit:g}")

    @property
    def in_words(self) -> str:
        """The action in words, such as "left 30°, forward 1 m"."""
        if self.done:
            return f"answers {self.answer}"
        parts = [
            (self.rotation_angle_degrees, "left", "right", "°"),
            (self.forward_meters, "forward", "back", " m"),
            (self.left_meters, "step left", "step right", " m"),
            (self.z_delta_meters, "up", "down", " m"),
        ]
        moves = [f"{plus if value > 0 else minus} {abs(value):g}{unit}" for value, plus, minus, unit in parts if value]
        return ", ".join(moves) or "stays"
