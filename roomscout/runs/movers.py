"""Who may move the camera in place of the model (`--moves`, `--given path`): all that is known of each mover."""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class MoverEntry(NamedTuple):
    """A mover: its class as module:Class, a `Mover` made with the run's seed, the views' intrinsics, and whether it may
    leave its place, which it never does with `turns_only`. `words` tell a protocol what the camera does, with
    `{turning}` where --no-translation is said; `title` is for titles of runs."""

    target: str
    words: str
    title: str
    turns_only: bool = False


MOVERS: Mapping[str, MoverEntry] = {
    "spin": MoverEntry("roomscout.agent.policies.movers:Spin", "camera that spins in place in the scan", "spin", True),
    "random": MoverEntry(
        "roomscout.agent.policies.movers:RandomMoves", "camera{turning} with random moves in the scan", "random moves"
    ),
    "coverage": MoverEntry(
        "roomscout.agent.policies.movers:GreedyCoverage",
        "camera{turning} moved in the scan to show the most new surface",
        "coverage",
    ),
    "none": MoverEntry(
        "roomscout.agent.policies.movers:Still", "camera at the first view in the scan", "first view only", True
    ),
}
GIVEN_PATH = MoverEntry(
    "roomscout.agent.policies.movers:ShowNeeded",
    "camera{turning} moved in the scan to show what each question needs",
    "given path",
)
"""The mover of --given path, which knows what a question needs."""
TURNS_ONLY = frozenset(name for name, entry in MOVERS.items() if entry.turns_only)


def who_moves(moves: str, moves_of: object, given: Collection[str]) -> str:
    """Who moves the camera under these settings: "model", a name of MOVERS, "recorded" (as in another run) or "given
    path"."""
    if moves_of is not None:
        return "recorded"
    return "given path" if "path" in given else moves
