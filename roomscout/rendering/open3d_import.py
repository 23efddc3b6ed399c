"""Imports Open3D without Dash, the web framework of its plots in browsers, which takes most of the time to import."""

import sys
import threading
from types import ModuleType

from roomscout.base.interrupts import deferred_interrupts
from roomscout.rendering.geometry import SceneError

_lock = threading.Lock()
_PACKAGES = "libgl1 libegl1 libx11-6 libgomp1 libusb-1.0-0 libudev1 libidn2-0"  # Debian's, of what its wheels need


class Open3DError(SceneError):
    """Open3D cannot be loaded. The message says what to install."""


def import_open3d() -> ModuleType:
    """Open3D, imported with interrupts deferred, which break that; raises Open3DError. A stand-in takes the place of
    Dash, which `open3d.visualization.draw_plotly_server` alone needs: that does not work then."""
    with _lock, deferred_interrupts():
        try:
            if "open3d" not in sys.modules and "dash" not in sys.modules:
                sys.modules["dash"] = _StandIn("dash")
                try:
                    import open3d
                finally:
                    del sys.modules["dash"]
            import open3d
        except (ImportError, OSError) as error:  # Open3D 0.19 loads a library with ctypes, which raises OSError
            fix = f"apt-get install {_PACKAGES}" if "shared object" in str(error) else "pip install open3d"
            raise Open3DError(f"scans need open3d, which cannot be loaded ({error}): {fix}") from error
    return open3d


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> None:
        if name.startswith("__"):  # such as __path__, which would make this a package
            raise AttributeError(name)
