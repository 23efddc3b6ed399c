"""What a question file says of a scan: its path, its unit, the axis that points up, and a start in it."""

import math
import os
from dataclasses import dataclass
from typing import Annotated, Any, Self, get_args

from pydantic import ConfigDict, Field, StrictBool

from roomscout import UpAxis
from roomscout.base.files import file_name
from roomscout.base.record import OmittedIfNone, Record
from roomscout.base.text import json_in

_UNITS = {"m": 1.0, "cm": 0.01, "mm": 0.001}


@dataclass(frozen=True)
class ScanFrame:
    """The unit of a scan in metres and its up axis; None is that of the run."""

    scale: float | None = None
    up_axis: UpAxis | None = None

    def over(self, up_axis: UpAxis, scale: float) -> tuple[UpAxis, float]:
        """The up axis and the scale of the scan in a run with these."""
        return self.up_axis or up_axis, scale if self.scale is None else self.scale

    @classmethod
    def read(cls, scale: object, up_axis: object) -> Self:
        """From the cells of a question file, in any format; raises ValueError that says what they take."""
        metres: float | None = None
        if not is_empty(scale):
            try:
                metres = _UNITS.get(str(scale)) or float(str(scale).replace(",", "."))
            except ValueError:
                metres = math.nan
            if not 0 < metres < math.inf:
                raise ValueError(f"scale {scale!r} must be the metres of the scan's unit, such as 0.01, or m, cm or mm")
        if is_empty(up_axis):
            return cls(metres)
        axis = next((name for name in get_args(UpAxis) if name == up_axis), None)
        if axis is None:
            raise ValueError(f"up_axis {up_axis!r} must be one of {', '.join(get_args(UpAxis))}")
        return cls(metres, axis)


def is_empty(cell: object) -> bool:
    """Whether a cell of a question file has nothing: pandas writes NaN for it."""
    return cell is None or cell == "" or (isinstance(cell, float) and math.isnan(cell))


def scan_path(cell: object) -> str:
    """The path of a scan in a cell, as `file_name`, with ~ expanded; raises ValueError."""
    return os.path.expanduser(file_name(cell, "scan"))  # noqa: PTH111 (Path's raises if there is no such user)


Pitch = Annotated[float, Field(ge=-90, le=90)]


@dataclass(frozen=True)
class Start(Record):
    """A place and a heading, in the scan's coordinates: metres, z up, from the origin of its file."""

    x_m: float  # metres
    y_m: float  # metres
    heading_deg: Annotated[float, Field(ge=-360, le=360)]  # as in `roomscout.rendering.camera`: 0 is +x, 90 is +y
    from_middle: StrictBool = False  # whether x and y count from the middle of the box around all vertices of the scan
    z_m: OmittedIfNone[float | None] = None  # None for the height of the run's other first views
    pitch_deg: OmittedIfNone[Pitch | None] = None  # above the horizon; None for that of the run's other first views

    __pydantic_config__ = ConfigDict(extra="forbid", allow_inf_nan=False)

    @classmethod
    def read(cls, value: Any) -> Self | None:
        """The start in a cell of a question file: an object, or its JSON text; None if empty. Raises ValueError."""
        if not value or is_empty(value) or (isinstance(value, str) and not value.strip()):
            return None
        wrong = f"start {value!r} must be an object such as " + '{"x_m": 1.5, "y_m": -2, "heading_deg": 90}'
        try:
            start = json_in(value) if isinstance(value, str) else value
        except ValueError:
            raise ValueError(wrong) from None
        try:
            return cls.from_json(start)
        except ValueError as error:
            raise ValueError(f"{wrong}: {error}") from None
