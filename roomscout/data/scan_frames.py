"""How a scan file is to be read: its path as a question file has it, its unit, and the axis that points up."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Self, get_args

from roomscout import UpAxis

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
    """The path of a scan in a cell, with ~ expanded, and / for \\ unless such a file exists; empty if it is no text."""
    path = cell.strip() if isinstance(cell, str) else ""
    if path.startswith("~"):
        path = str(Path(path).expanduser())
    return path if "\\" not in path or Path(path).exists() else path.replace("\\", "/")
