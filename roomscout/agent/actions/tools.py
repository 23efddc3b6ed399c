"""The other spaces with the tool `measure`: the distance in the scan between two points of the view."""

import math
from dataclasses import replace
from functools import partial

from roomscout.agent.actions.discrete import DISCRETE
from roomscout.agent.actions.metric import METRIC, METRIC_PITCH
from roomscout.agent.actions.pixel import PIXEL
from roomscout.agent.actions.points import MARKED, ONE, ONE_SCHEMA, hole_at, pixel_of, written
from roomscout.agent.actions.space import ActionSpace, Fields, Key, Place, Read
from roomscout.envs.actions import CameraMove
from roomscout.runs.records import ToolUse

MEASURE = Key(
    example=None,
    still=None,
    grammar=f'("null" | "[" blank {ONE} "," blank {ONE} blank "]")',
    schema={"anyOf": [{"type": "array", "items": ONE_SCHEMA, "minItems": 2, "maxItems": 2}, {"type": "null"}]},
)
_LINE = (
    "\n- measure: [[x1, y1], [x2, y2]], two points of the current view, which is {view_width} pixels wide and "
    "{view_height} pixels high, x from its left edge and y from its top edge; or null. The next message tells the "
    "straight-line distance in metres between the surfaces there: the width or height of an object if they are two of "
    "its edges, or the gap between two objects. It is measured before the camera moves."
)


def with_measure(space: ActionSpace, name: str) -> ActionSpace:
    """A space of that name with the same moves, in which a reply may also measure."""
    return replace(
        space,
        name=name,
        keys={**space.keys, "measure": MEASURE},
        lines=space.lines + _LINE,
        read=partial(read, space),
        turning=with_measure(space.turning, name) if space.turning else None,
        marked=MARKED,
        measures=True,
    )


def read(space: ActionSpace, fields: Fields, place: Place) -> Read:
    """The move of a space without `measure`, none if the object has only that, and what it measured."""
    said = fields.get("measure")
    if said is None:
        return Read(*space.read(fields, place))
    moved = Read(*space.read(fields, place)) if any(key in fields for key in space.keys) else Read(CameraMove())
    return moved._replace(uses=(*moved.uses, measured(said, place)))


def measured(said: object, place: Place) -> ToolUse:
    """The distance between two points of the view, to the centimetre, none if one is a hole; ValueError if outside."""
    if isinstance(said, list) and len(said) == 4:
        said = [said[:2], said[2:]]
    if not isinstance(said, list) or len(said) != 2:
        raise ValueError(f"measure must be [[x1, y1], [x2, y2]] in pixels, not {written(said)}")
    ends = []
    for pixel in [pixel_of("measure", point, place) for point in said]:
        if (surface := place.surface_at(*pixel)) is None:
            return ToolUse("measure", f"nothing: {hole_at(pixel)}", None)
        ends.append(surface)
    metres = round(math.dist(*ends), 2)
    return ToolUse("measure", f"{metres:.2f} m between {written(said[0])} and {written(said[1])}", metres)


TOOLS = with_measure(METRIC, "tools")
TOOLS_METRIC_PITCH = with_measure(METRIC_PITCH, "tools-metric-pitch")
TOOLS_DISCRETE = with_measure(DISCRETE, "tools-discrete")
TOOLS_PIXEL = with_measure(PIXEL, "tools-pixel")
