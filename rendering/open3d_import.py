"""Imports Open3D without Dash, the web framework of its plots in browsers, which takes most of the time to import."""

import sys
import threading
from importlib import import_module
from types import ModuleType
from typing import Any

_lock = threading.Lock()


def import_open3d() -> ModuleType:
    """Open3D. Raises ImportError, or OSError if a shared library is missing.

    Open3D imports Dash for `open3d.visualization.draw_plotly_server` and has no option to leave it out. So while Open3D
    is imported, a stand-in for Dash is in `sys.modules`; the function still works and then imports Dash.
    """
    with _lock:
        if "open3d" not in sys.modules and "dash" not in sys.modules:
            sys.modules["dash"] = _StandIn("dash")
            try:
                import open3d
            finally:
                del sys.modules["dash"]
        import open3d
    return open3d


class _StandIn(ModuleType):
    """Dash for `from dash import NAME`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # such as __path__, which would make this a package
            raise AttributeError(name)
        return _OnUse(name)


class _OnUse:
    """A name of Dash, which is imported when the name is called or one of its attributes is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(import_module("dash"), self._name)(*arguments, **options)

    def __getattr__(self, attribute: str) -> Any:
        return getattr(getattr(import_module("dash"), self._name), attribute)
