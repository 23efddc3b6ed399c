"""What an action space is: how a model says how to move the camera."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from roomscout.base.errors import SettingError
from roomscout.envs.actions import CameraMove
from roomscout.rendering.camera import CameraPose, Intrinsics

if TYPE_CHECKING:
    from roomscout.runs.records import ToolUse

LOOK_AROUND = CameraMove(rotation_angle_degrees=45.0)
"""The move for an unreadable reply: the next view at least shows something new."""


class Place(Protocol):
    """Where the camera is and was in turn 0, its intrinsics, and what its view shows: live, or what a record has."""

    pose: CameraPose
    start: CameraPose
    camera: Intrinsics

    def surface_at(self, x: float, y: float) -> np.ndarray | None:
        """The point of the scan that the view shows at a pixel, (3,) world metres; None in a hole. Computed when asked
        for, and recorded with the turn. Raises ValueError if a record lacks it."""

    def pixel_of_mark(self, number: int) -> tuple[float, float] | None:
        """The pixel of a numbered mark of this turn's images; None if they have no such mark."""


Fields = Mapping[str, object]  # the JSON object of a reply, with whatever a model wrote in it


class Read(NamedTuple):
    """A move, each value outside its range as "name value -> limit", and the tools that the reply used before it."""

    move: CameraMove
    clamped: Sequence[str] = ()
    uses: "Sequence[ToolUse]" = ()


class ActionSpaceError(Exception):
    """The code of an action space raised an error. The message names the method, the error, the file and the line."""


@dataclass(frozen=True)
class Key:
    """A key of the object by which a model moves the camera: its `example` in the prompt, the value `still` that does
    not move, its `schema`, and GBNF, which may use the rules `number` and `blank` of replies."""

    example: object = 0
    still: object = 0
    grammar: str = "number"
    schema: Mapping[str, Any] = field(default_factory=lambda: {"type": "number"})


@dataclass(frozen=True)
class ActionSpace:
    """A way to move the camera by a JSON object, which also has the keys `answer` and `done`."""

    name: str  # as errors and the protocol name it
    keys: Mapping[str, Key]  # in the prompt's order
    lines: str  # a part of the system prompt, a line for each key; like all of it, a template: {{ is a brace
    read: Callable[[Fields, Place], tuple[CameraMove, Sequence[str]] | Read]
    """The move that an object asks for where the camera is; raises ValueError in words for the model, which come after
    "Your reply could not be used: ". The object may lack any key, and have any value in it."""
    turning: "ActionSpace | None" = None  # the same without what moves the camera from its place, if it can be used so
    watching: str = ""  # what stands for `lines` where the model's moves are recorded and not carried out
    fallback: CameraMove = LOOK_AROUND  # the small turn after a reply that cannot be read
    pitches: bool = False  # whether moves may change the camera's pitch
    marked: str = ""  # what the prompt adds where the images have numbered marks
    measures: bool = False  # whether a reply may use tools, whose results the next message tells

    @property
    def all_keys(self) -> tuple[str, ...]:
        """The keys of a reply's object, in the prompt's order."""
        return (*self.keys, "answer", "done")

    @property
    def at_place(self) -> "ActionSpace":
        """`turning`; raises SettingError if this has none."""
        if self.turning is None:
            raise SettingError(
                f"the action space {self.name} always moves the camera", setting="translation", value=False
            )
        return self.turning

    @property
    def while_still(self) -> str:
        """What stands for `lines` where nothing moves the camera."""
        *names, last = self.keys
        values = list(dict.fromkeys(json.dumps(key.still) for key in self.keys.values()))
        keys = " and ".join(filter(None, [", ".join(names), last]))
        return f"- {keys}: {' or '.join(values)}, since the camera stays where it is."

    def example(self, still: bool = False) -> str:
        """The object as the prompt shows it, on one line."""
        moves = {name: key.still if still else key.example for name, key in self.keys.items()}
        return json.dumps(moves | {"answer": None, "done": False})

    @property
    def grammar(self) -> str:
        """GBNF for xgrammar: prose without braces, then one object with all keys; `done` is true only with answers."""
        keys = " ".join(rf'"\"{name}\":" blank {key.grammar} "," blank' for name, key in self.keys.items())
        return rf"""
root ::= prose "{{" blank {keys} decision blank "}}"
prose ::= [^{{]*
decision ::= "\"answer\":" blank (looking | answered)
looking ::= "null," blank "\"done\":" blank "false"
answered ::= (text | number) "," blank "\"done\":" blank ("true" | "false")
text ::= "\"" [^"\\\u0000-\u001f]{{1,80}} "\""
number ::= "-"? ("0" | [1-9] [0-9]{{0,3}}) ("." [0-9]{{1,4}})?
blank ::= [ \n]{{0,8}}
"""

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the object, for servers. It allows no prose before it, so the thought is the first key."""
        return {
            "type": "object",
            "properties": {
                "thought": {"type": "string"},
                **{name: dict(key.schema) for name, key in self.keys.items()},
                "answer": {"type": ["string", "number", "null"]},
                "done": {"type": "boolean"},
            },
            "required": ["thought", *self.all_keys],
            "additionalProperties": False,
        }


def shown(value: object) -> str:
    """A value as JSON of at most 40 characters; only the type of lists and objects, which may be deeply nested."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
