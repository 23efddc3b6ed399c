"""Loads policies by class name: module:Class or path/to/file.py:Class."""

import inspect

from roomscout.agent.policies import Policy
from roomscout.agent.policies.controls import CONTROLS
from roomscout.base.errors import ConfigError
from roomscout.base.loading import NotLoadable, load_attribute


def named_policy(name: str, seed: int) -> Policy:
    """The control of this name, or an instance of the class that it names; raises ConfigError if there is none."""
    if name in CONTROLS:
        return make_policy(CONTROLS[name], seed)
    if ":" not in name:
        raise ConfigError(
            f"--policy {name}: there is no such policy; there is {', '.join(CONTROLS)} and human, or name your own "
            "class as module:Class or path/to/file.py:Class"
        )
    try:
        found = load_attribute(name, "Class")
    except NotLoadable as error:
        raise ConfigError(f"--policy {name}: {error}") from error
    if not isinstance(found, type):
        raise ConfigError(f"--policy {name}: {name.rpartition(':')[2]} is not a class")
    return make_policy(found, seed)


def make_policy(kind: type, seed: int) -> Policy:
    """An instance of a policy class, with the seed if its constructor takes one; raises ConfigError."""
    if Policy not in kind.__mro__ or inspect.isabstract(kind):
        raise ConfigError(f"{kind.__name__} is not a policy: subclass roomscout.Policy and implement `decide`")
    parameters = inspect.signature(kind).parameters
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = [each.name for each in parameters.values() if each.default is each.empty and each.kind not in optional]
    if unknown := [each for each in required if each != "seed"]:
        raise ConfigError(
            f"{kind.__name__}() needs {', '.join(unknown)}: give them defaults, or pass an instance from Python"
        )
    return kind(seed=seed) if "seed" in parameters else kind()


def policy_name(policy: Policy) -> str:
    """The name of a policy in run.json: its `name`, else that of its class."""
    return policy.name or type(policy).__name__
