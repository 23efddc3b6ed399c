"""Policies by name: a control, which is a baseline without a model, or module:Class or path/to/file.py:Class."""

import inspect
from importlib import import_module

from roomscout.agent.policies import Policy
from roomscout.base.errors import ConfigError
from roomscout.base.loading import NotLoadable, load_attribute

CONTROLS = {name: f"roomscout.agent.policies.controls:{name.title()}Policy" for name in ("random", "stay", "planner")}
"""The policies that --policy knows by name, as module:Class. A new one is a class and its entry."""


def named_policy(name: str, seed: int) -> Policy:
    """The control of this name, or an instance of the class that it names; raises ConfigError if there is none."""
    if name in CONTROLS:
        module, _, kind = CONTROLS[name].partition(":")
        return make_policy(getattr(import_module(module), kind), seed)
    try:
        found = load_attribute(name, "Class")
    except NotLoadable as error:
        why = error if ":" in name else f"there is {', '.join(CONTROLS)} and human, or your own: it {error}"
        raise ConfigError(f"--policy {name}: {why}") from error
    if not isinstance(found, type):
        raise ConfigError(f"--policy {name}: {name.rpartition(':')[2]} is not a class")
    return make_policy(found, seed)


def make_policy(kind: type, seed: int) -> Policy:
    """An instance of a policy class, with the seed if its constructor takes one; raises ConfigError."""
    if Policy not in kind.__mro__ or inspect.isabstract(kind):
        raise ConfigError(f"{kind.__name__} is not a policy: subclass roomscout.Policy and implement `decide`")
    signature = inspect.signature(kind)
    given = {"seed": seed} if "seed" in signature.parameters else {}
    try:
        signature.bind(**given)
    except TypeError as error:
        raise ConfigError(f"{kind.__name__}() is {error}: give it a default, or pass an instance from Python") from None
    return kind(**given)


def policy_name(policy: Policy) -> str:
    """The name of a policy in run.json: its `name`, else that of its class."""
    return policy.name or type(policy).__name__
