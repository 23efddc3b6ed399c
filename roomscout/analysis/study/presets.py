"""The comparisons that `roomscout study` knows. A new one is an entry of PRESETS."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

GIVEN = "the run that --moves-of names"


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    name: str  # of the cell, in tables and plots
    settings: Mapping[str, Any] = field(default_factory=dict)  # that differ from what the user gives, by name
    moves_of: str = ""  # the name of the cell whose moves it repeats, or GIVEN
    moves: int | None = None  # its place in a curve of the score by the number of moves; None without one
    series: str = ""  # the curve; a cell without one is a point of all curves

    @property
    def folder(self) -> str:
        """The name of its folder."""
        return self.name.replace(" ", "_").replace("'", "")


@dataclass(frozen=True)
class Preset:
    """A comparison of cells."""

    does: str  # the question that it answers
    cells: tuple[Cell, ...]  # of which all are compared with the first one
    shared: Mapping[str, Any] = field(default_factory=dict)  # settings of all cells that have no others
    steps: tuple[str, ...] = ()
    """What each of the first cells, which are a ladder, lacks to the next one, and the last of them to 100 percent."""
    also: str = ""  # what else differs between the cells, beside what the comparison is about

    @property
    def sets(self) -> set[str]:
        """The settings that the preset decides: those of the first cell, since all others are compared with it."""
        moving = {"moves", "moves_of"} if any(cell.moves_of for cell in self.cells) else set()
        return {*self.cells[0].settings, *self.shared, *moving}

    @property
    def takes_moves_of(self) -> bool:
        """Whether the user must name a run with --moves-of."""
        return any(cell.moves_of == GIVEN for cell in self.cells)


def _budget(moves: tuple[int, ...]) -> tuple[Cell, ...]:
    """No move, then for each number of moves a cell that may answer earlier and one that must use all of them."""
    cells = [Cell("0 moves", {"steps": 0, "min_turns": 0}, moves=0)]
    for most in moves:
        cells.append(Cell(f"{most} free", {"steps": most, "min_turns": 0}, moves=most, series="free"))
        cells.append(Cell(f"{most} forced", {"steps": most, "min_turns": most}, moves=most, series="forced"))
    return tuple(cells)


_IN_THE_SCAN = {"present": "turns", "videos": None, "frames": "auto"}
"""The settings of a cell in a study whose other cells show frames of videos."""

PRESETS = {
    "controls": Preset(
        "Is exploring better than a spin, random moves, covering the room, one view or none?",
        (
            Cell("model", {"moves": "model"}),
            *(Cell(mover, {"moves": mover}) for mover in ("spin", "random", "coverage", "none")),
            Cell("blind", {"renderer": "blind"}),
        ),
    ),
    "budget": Preset(
        "What do more moves gain, if the model may answer earlier (free) and if it must use all of them (forced)?",
        _budget((1, 3, 7, 15)),
    ),
    "passive": Preset(
        "Does it matter that the model chose its views, or that it saw them turn by turn?",
        (
            Cell("moving itself"),
            Cell("own path in turns", moves_of="moving itself"),
            Cell("own path at once", {"present": "once"}, moves_of="moving itself"),
            Cell("another's path", moves_of=GIVEN),
        ),
    ),
    "motion": Preset(
        "What does moving gain over turning in place?",
        (Cell("with translation", {"translation": True}), Cell("turning only", {"translation": False})),
    ),
    "video": Preset(
        "What does exploring gain over the usual protocol, frames of a video? Needs --videos.",
        (
            Cell("video"),
            *(
                Cell(name, {**_IN_THE_SCAN, "moves": moves})
                for name, moves in (("first view", "none"), ("spin", "spin"), ("exploring", "model"))
            ),
        ),
        {"present": "video", "moves": "model"},
        also="“video” replies with an answer alone, in 16 tokens that are read strictly; the others may think aloud.",
    ),
    "ladder": Preset(
        "Which step loses the points: looking, perceiving, what was out of view, or reasoning?",
        (
            Cell("own views", {"given": []}),
            Cell("own views replayed", {"given": []}, moves_of="own views"),
            Cell("path", {"given": ["path"]}),
            Cell("boxes seen", {"given": ["path", "boxes-seen"]}),
            Cell("boxes", {"given": ["path", "boxes"]}),
            Cell("path blind", {"given": ["path"], "renderer": "blind"}),
        ),
        steps=("acting", "looking", "perceiving", "out of view", "reasoning"),
        also="“own views” alone may answer early and says its moves; “path blind” has the path's words and no picture.",
    ),
    "actions": Preset(
        "Does acting fail because it is said in degrees and metres?",
        tuple(Cell(space, {"actions": space}) for space in ("metric", "metric-pitch", "discrete", "pixel", "tools")),
        also="A turn of “discrete” goes at most 1.25 m, one of “metric” 2 m; “pixel” and “tools” aim at what is seen.",
    ),
    "pitch": Preset(
        "What is it worth to look up and down, or to look at another height?",
        (
            Cell("15 down", {"camera_pitch": -15.0, "actions": "metric"}),
            Cell("level", {"camera_pitch": 0.0, "actions": "metric"}),
            Cell("30 down", {"camera_pitch": -30.0, "actions": "metric"}),
            Cell("chosen", {"camera_pitch": -15.0, "actions": "metric-pitch"}),
        ),
    ),
    "sees": Preset(
        "Does an image beside the view help: depth, a map of what was seen, a plan of the room, or marks on surfaces?",
        (
            Cell("rgb", {"see": ["rgb"]}),
            *(Cell(f"rgb {name}", {"see": ["rgb", name]}) for name in ("depth", "map", "plan", "marks")),
        ),
    ),
    "history": Preset(
        "Do the views of earlier turns help or distract?",
        (
            Cell("all views", {"keep_views": None}),
            *(Cell(f"last {kept}", {"keep_views": kept}) for kept in (4, 2, 1)),
        ),
    ),
    "anytime": Preset(
        "What is each turn worth? After each of them the model also answers as if it were the last.",
        tuple(Cell(mover, {"moves": mover, "anytime": True}) for mover in ("model", "spin", "coverage")),
    ),
}
"""The presets by name."""
