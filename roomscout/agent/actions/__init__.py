"""Action spaces, by which a model says how to move the camera: each module here has those of one kind."""

from functools import cache
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from roomscout.base.errors import SettingError
from roomscout.base.loading import NotLoadable, load_attribute

if TYPE_CHECKING:
    from roomscout.agent.actions.space import ActionSpace

SPACES = {
    "discrete": "discrete:DISCRETE",
    "metric": "metric:METRIC",
    "metric-pitch": "metric:METRIC_PITCH",
    "pixel": "pixel:PIXEL",
    "tools": "tools:TOOLS",
    "tools-metric-pitch": "tools:TOOLS_METRIC_PITCH",
    "tools-discrete": "tools:TOOLS_DISCRETE",
    "tools-pixel": "tools:TOOLS_PIXEL",
}
"""The spaces of this package, as "module:NAME" here. A new one is a module and its entry."""


@cache
def find_space(name: str) -> "ActionSpace":
    """The space of a name, one here or a user's as path/to/file.py:NAME; raises SettingError."""
    if name in SPACES:
        return resolve_name(f"{__name__}.{SPACES[name]}")
    try:
        space = load_attribute(name)
    except NotLoadable as error:
        why = error if ":" in name else f"there is {', '.join(sorted(SPACES))}, or your own as FILE.py:NAME"
        raise SettingError(f"the action space {name} cannot be loaded: {why}", setting="actions") from error
    from roomscout.agent.actions.space import ActionSpace

    if not isinstance(space, ActionSpace):
        raise SettingError(f"{name} is not an ActionSpace but of the type {type(space).__name__}", setting="actions")
    return space
