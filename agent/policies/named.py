"""Loads policies by class name: module:Class or path/to/file.py:Class."""

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType

from agent.config import ConfigError
from agent.policies import Policy


def named_policy(name: str, seed: int) -> Policy:
    """An instance of the class that --policy names; raises ConfigError if it cannot be loaded."""
    source, _, attribute = name.rpartition(":")
    if not source or not attribute.isidentifier():
        raise ConfigError(f"--policy {name}: takes module:Class or path/to/file.py:Class")
    module = _module(source, name)
    found = getattr(module, attribute, None)
    if found is None:
        raise ConfigError(f"--policy {name}: {source} has no class {attribute}")
    if not isinstance(found, type):
        raise ConfigError(f"--policy {name}: {attribute} is not a class")
    return make_policy(found, seed)


def make_policy(kind: type, seed: int) -> Policy:
    """An instance of a policy class, with the seed if its constructor takes one; raises ConfigError."""
    if Policy not in kind.__mro__ or inspect.isabstract(kind):
        raise ConfigError(f"{kind.__name__} is not a policy: subclass agent.policies.Policy and implement `decide`")
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


def _module(source: str, name: str) -> ModuleType:
    """Import a dotted name, which may be in the current folder, or a file."""
    try:
        if source.endswith(".py"):
            return _module_of_file(Path(source).expanduser(), name)
        if str(Path.cwd()) not in sys.path:
            sys.path.insert(0, str(Path.cwd()))
        return importlib.import_module(source)
    except (ImportError, SyntaxError) as error:
        raise ConfigError(
            f"--policy {name}: {source} cannot be imported from {Path.cwd()} ({error}): run the command from the "
            "folder that contains it, or name its file"
        ) from error


def _module_of_file(path: Path, name: str) -> ModuleType:
    if not path.is_file():
        raise ConfigError(f"--policy {name}: there is no file {path}")
    if str(path.parent.absolute()) not in sys.path:
        sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)  # where dataclasses and pickle look it up
    spec.loader.exec_module(module)
    return module
