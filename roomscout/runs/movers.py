"""Who may move the camera in place of the model, as the settings moves and given say: all that is known of each."""

from collections.abc import Collection, Mapping
from typing import NamedTuple


class MoverEntry(NamedTuple):
    """A mover, made with the run's seed."""

    target: str  # its class, a `Mover`, as module:Class
    title: str  # for titles of runs
    turns_only: bool = False  # whether it never leaves its place


MOVERS: Mapping[str, MoverEntry] = {
    "spin": MoverEntry("roomscout.agent.policies.movers:Spin", "spin", True),
    "random": MoverEntry("roomscout.agent.policies.movers:RandomMoves", "random moves"),
    "coverage": MoverEntry("roomscout.agent.policies.movers:GreedyCoverage", "coverage"),
    "none": MoverEntry("roomscout.agent.policies.movers:Still", "first view only", True),
}
GIVEN_PATH = MoverEntry("roomscout.agent.policies.movers:ShowNeeded", "given path")  # knows what a question needs
TURNS_ONLY = frozenset(name for name, entry in MOVERS.items() if entry.turns_only)


def who_moves(moves: str, moves_of: object, given: Collection[str]) -> str:
    """Who moves the camera: "model", a name of MOVERS, "recorded" (as in another run) or "given path"."""
    if moves_of is not None:
        return "recorded"
    return "given path" if "path" in given else moves
