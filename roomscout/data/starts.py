"""Where a question starts on the floor plan, if it is not at the first view of its scan."""

from dataclasses import dataclass
from typing import Any, Self

from pydantic import ConfigDict, StrictBool

from roomscout.base.record import OmittedIfNone, Record
from roomscout.base.text import json_in
from roomscout.data.scan_frames import is_empty


@dataclass(frozen=True)
class Start(Record):
    """A place and a heading, in the scan's coordinates."""

    x_m: float  # metres
    y_m: float  # metres
    heading_deg: float  # as in `roomscout.rendering.camera`: 0 looks along +x, 90 along +y
    from_middle: StrictBool = False  # whether x and y count from the middle of the box around all vertices of the scan
    z_m: OmittedIfNone[float | None] = None  # None for the height of the run's other first views
    pitch_deg: OmittedIfNone[float | None] = None  # None for the pitch of the run's other first views

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """The start in a cell of a question file: an object, or its JSON text; None if empty. Raises ValueError."""
        if isinstance(value, str) and value.strip():
            value = json_in(value)
        if not value or is_empty(value):
            return None
        try:
            return cls.from_json(value)
        except ValueError as error:
            wanted = 'such as {"x_m": 1.5, "y_m": -2, "heading_deg": 90}'
            raise ValueError(f"start {value!r} must be an object {wanted}: {error}") from None
