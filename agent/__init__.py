"""The evaluation loop: configuration, scheduling, turns and policies. `ask` and `explore` run it from Python."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agent.api import Trajectory, ask, explore, load_policy, load_trajectories

__all__ = ["Trajectory", "ask", "explore", "load_policy", "load_trajectories"]


def __getattr__(name: str) -> Any:
    """Import the Python API on first use."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from agent import api

    return getattr(api, name)
