"""Imports through the links at the top of a checkout: agent.state is roomscout.agent.state, not a copy of it."""

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Linked(MetaPathFinder, Loader):
    """Finds the modules below a linked package, and puts those of roomscout in their places."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """A module below the package; None for any other."""
        return ModuleSpec(fullname, self) if fullname.startswith(f"{self._package}.") else None

    def exec_module(self, module: ModuleType) -> None:
        """Replace a module by that of roomscout, as a module itself may do while it is imported."""
        sys.modules[module.__name__] = import_module(f"roomscout.{module.__name__}")


def share(package: str) -> None:
    """Replace a linked package, which is being imported, and from now on all of its modules."""
    sys.meta_path.insert(0, Linked(package))
    sys.modules[package] = import_module(f"roomscout.{package}")
