"""Where a question starts on the floor plan, if it is not at the first view of its scan."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Start:
    """A place and a heading: metres, and degrees as in `roomscout.rendering.camera` (0 looks along +x, 90 along +y).

    With `from_middle`, x and y count from the middle of the box around all vertices of the scan; without it, they are
    in the scan's coordinates. The camera starts at the height of the run's other first views.
    """

    x_m: float
    y_m: float
    heading_deg: float
    from_middle: bool = False

    @classmethod
    def read(cls, value: object) -> Self | None:
        """The start in a cell of a question file: an object, or its JSON text; None if empty. Raises ValueError."""
        if isinstance(value, str) and value.strip():
            value = json.loads(value)
        if not value or (isinstance(value, float) and math.isnan(value)):
            return None
        wanted = 'it must have numbers, as in {"x_m": 1.5, "y_m": -2, "heading_deg": 90}'
        if not isinstance(value, Mapping) or not value.keys() <= set(cls.__dataclass_fields__):
            raise ValueError(f"start is {value!r}; {wanted}")
        try:
            x, y, heading = (float(value[name]) for name in ("x_m", "y_m", "heading_deg"))
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"start is {value!r}; {wanted}") from None
        if not all(map(math.isfinite, (x, y, heading))) or not isinstance(value.get("from_middle", False), bool):
            raise ValueError(f"start is {value!r}; its numbers must be finite, and from_middle true or false")
        return cls(x, y, heading, value.get("from_middle", False))

    def to_json(self) -> dict[str, Any]:
        """The value of the column `start`."""
        return asdict(self)
