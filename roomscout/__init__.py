"""RoomScout: a vision-language model explores 3D scans of rooms and answers spatial questions.

`ask` asks one question about one scan, `explore` many; `python -m roomscout --help` lists the command's flags.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from roomscout.agent.policies import Policy as Policy
    from roomscout.data.questions import Question as Question
    from roomscout.edge.api import ask as ask
    from roomscout.edge.api import explore as explore
    from roomscout.edge.api import load_policy as load_policy
    from roomscout.runs.trajectories import Trajectory as Trajectory
    from roomscout.runs.trajectories import load_trajectories as load_trajectories
    from roomscout.training.environment import RoomEnv as RoomEnv
    from roomscout.training.vector import VectorEnv as VectorEnv

__version__ = "0.1.0"

UpAxis = Literal["auto", "x", "y", "z", "-x", "-y", "-z"]
"""The axis of a scan file that points up; "auto" is y for glTF, as its specification requires, else z."""
IMPORTED_FROM = Path(__file__).resolve().parents[1]
"""The folder that a new process needs on its path to import the package."""
SCRIPT = IMPORTED_FROM / "render_point_cloud_qwen_angle_batched.py"
"""The command of a checkout; a wheel does not have it."""
_OFFERED = {
    "Policy": "agent.policies",
    "Question": "data.questions",
    "RoomEnv": "training.environment",
    "Trajectory": "runs.trajectories",
    "VectorEnv": "training.vector",
    "ask": "edge.api",
    "explore": "edge.api",
    "load_policy": "edge.api",
    "load_trajectories": "runs.trajectories",
}
"""The module of each name, imported when the name is used: `import roomscout` takes no time."""
__all__ = ["__version__", *_OFFERED]


def __getattr__(name: str) -> Any:
    if name not in _OFFERED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_OFFERED[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
