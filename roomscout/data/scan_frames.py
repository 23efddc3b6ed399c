"""How a scan file is to be read: its path as people write it, its unit, and the axis that points up."""

import math
import re
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any, Self, get_args
from urllib.parse import unquote, urlsplit

from roomscout import UpAxis

_UNITS = {
    spelling: metres
    for metres, spellings in {
        "1": "m meter meters metre metres",
        "0.01": "cm centimeter centimeters centimetre centimetres",
        "0.001": "mm millimeter millimeters millimetre millimetres",
    }.items()
    for spelling in spellings.split()
}
"""What people call the unit of a scan, and its metres."""
_WINDOWS_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


@dataclass(frozen=True)
class ScanFrame:
    """The unit of a scan in metres and its up axis; None is that of the run."""

    scale: float | None = None
    up_axis: UpAxis | None = None

    def __str__(self) -> str:
        scale = "no scale" if self.scale is None else f"scale {self.scale:g}"
        return f"{scale} and {'no up_axis' if self.up_axis is None else f'up_axis {self.up_axis}'}"

    @property
    def columns(self) -> dict[str, Any]:
        """The columns of a question file that are given."""
        given = {"scale": self.scale, "up_axis": self.up_axis}
        return {name: value for name, value in given.items() if value is not None}

    def over(self, up_axis: UpAxis, scale: float) -> tuple[UpAxis, float]:
        """The up axis and the scale of the scan in a run with these."""
        return self.up_axis or up_axis, scale if self.scale is None else self.scale

    @classmethod
    def read(cls, scale: object, up_axis: object) -> Self:
        """From the cells of a question file, in any format; raises ValueError that says what they take."""
        return cls(_scale(scale), _up_axis(up_axis))


def _is_empty(cell: object) -> bool:
    return cell is None or (isinstance(cell, float) and math.isnan(cell)) or str(cell).strip() == ""


def _scale(cell: object) -> float | None:
    if _is_empty(cell):
        return None
    text = str(cell).strip()
    text = text.replace(",", ".") if re.fullmatch(r"\d*,\d+", text) else text  # a decimal comma
    text = _UNITS.get(text.lower().removeprefix("1").strip(), text) if isinstance(cell, str) else text
    try:
        value = math.nan if isinstance(cell, bool) or not isinstance(cell, str | Real) else float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ValueError(f"scale {cell!r} must be the metres of the scan's unit, such as 0.01 for centimetres")
    return value


def _up_axis(cell: object) -> UpAxis | None:
    if _is_empty(cell):
        return None
    known = {name.removeprefix("+"): name for name in get_args(UpAxis)}
    name = re.sub("[\u2212\u2013]", "-", str(cell).strip().lower()).removeprefix("+")
    if (name := re.sub(r"(?<=[xyz])[\s_-]*up", "", name)) not in known:
        raise ValueError(f"up_axis {cell!r} must be one of {', '.join(get_args(UpAxis))}")
    return known[name]


def scan_path(written: str) -> str:
    """The path of a scan as written in a question file: without blanks and file://, with ~ expanded, and with / for \\.

    Keeps the backslashes of a path that exists here as it is written, and of a path of a Windows drive.
    """
    path = written.strip()
    if path.startswith("file://"):
        path = unquote(urlsplit(path).path)
    if path.startswith(("~/", "~\\")):
        path = str(Path.home() / path[2:])
    if "\\" not in path or Path(path).exists() or _WINDOWS_DRIVE.match(path):
        return path
    return path.replace("\\", "/")


def of_another_machine(path: str) -> bool:
    """Whether a path begins with a Windows drive, which this machine does not have."""
    return bool(_WINDOWS_DRIVE.match(path))
