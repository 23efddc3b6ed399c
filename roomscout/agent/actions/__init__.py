"""Action spaces, by which a model says how to move the camera: each module here has those of one kind (--actions)."""

import importlib
import pkgutil
from functools import cache

from roomscout.agent.actions.metric import METRIC
from roomscout.agent.actions.space import ActionSpace
from roomscout.base.errors import ConfigError
from roomscout.base.loading import NotLoadable, load_attribute


@cache
def action_spaces() -> dict[str, ActionSpace]:
    """The spaces of this package by their names."""
    modules = [importlib.import_module(f"{__name__}.{each.name}") for each in pkgutil.iter_modules(__path__)]
    found = [each for module in modules for each in vars(module).values() if isinstance(each, ActionSpace)]
    return {each.name: each for each in found}


@cache
def find_space(name: str) -> ActionSpace:
    """The space that --actions names, one here or a user's as path/to/file.py:NAME; raises ConfigError."""
    if name in action_spaces():
        return action_spaces()[name]
    try:
        found = load_attribute(name)
    except NotLoadable as error:
        why = error if ":" in name else f"there is {', '.join(sorted(action_spaces()))}, or your own as FILE.py:NAME"
        raise ConfigError(f"--actions {name}: {why}") from error
    if not isinstance(found, ActionSpace):
        raise ConfigError(f"--actions {name}: {type(found).__name__} is not an ActionSpace")
    return found


__all__ = ["METRIC", "ActionSpace", "action_spaces", "find_space"]
