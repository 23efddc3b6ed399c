"""Policies by name: a control, which is a baseline without a model, or module:Class or path/to/file.py:Class."""

import inspect
from pkgutil import resolve_name

from roomscout.agent.policies import Policy
from roomscout.base.errors import SettingError
from roomscout.base.loading import NotLoadable, load_attribute

CONTROLS = {name: f"roomscout.agent.policies.controls:{name.title()}Policy" for name in ("random", "stay", "planner")}
"""The policies known by name, as module:Class. A new one is a class and its entry."""


def named_policy(name: str, seed: int) -> Policy:
    """The control of this name, or an instance of the class that it names; raises SettingError if there is none."""
    if name in CONTROLS:
        return make_policy(resolve_name(CONTROLS[name]), seed)
    try:
        kind = load_attribute(name, "Class")
    except NotLoadable as error:
        why = error if ":" in name else f"there is {', '.join(CONTROLS)} and human, or your own: it {error}"
        raise SettingError(f"{name} cannot be loaded: {why}", setting="policy") from error
    if not isinstance(kind, type):
        raise SettingError(f"{name} is not a class", setting="policy")
    return make_policy(kind, seed)


def make_policy(kind: type, seed: int) -> Policy:
    """An instance of a policy class, with the seed if its constructor takes one; raises SettingError."""
    if Policy not in kind.__mro__ or inspect.isabstract(kind):
        why = f"{kind.__name__} is not a policy: subclass roomscout.Policy and implement `decide`"
        raise SettingError(why, setting="policy")
    signature = inspect.signature(kind)
    arguments = {"seed": seed} if "seed" in signature.parameters else {}
    try:
        signature.bind(**arguments)
    except TypeError as error:
        why = f"{kind.__name__}() is {error}: give it a default, or pass an instance from Python"
        raise SettingError(why, setting="policy") from None
    return kind(**arguments)


def policy_name(policy: Policy) -> str:
    """The name of a policy in run.json: its `name`, else that of its class."""
    return policy.name or type(policy).__name__
