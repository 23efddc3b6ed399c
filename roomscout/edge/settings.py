"""The settings of a run as one value, and what is known of each."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import NoneType
from typing import Any, ClassVar, get_origin, get_type_hints

from pydantic import ConfigDict

from roomscout.base.errors import flag
from roomscout.base.text import argument_text
from roomscout.data.parts import Part
from roomscout.edge import sections as of
from roomscout.edge.declaring import Role, Section, Setting, alternatives
from roomscout.edge.types import NO_GPUS
from roomscout.runs.movers import who_moves

CONVERSION = ConfigDict(coerce_numbers_to_str=True, allow_inf_nan=False)  # how pydantic converts values


@dataclass(frozen=True)
class Settings(
    of.ClusterSettings,
    of.OutputSettings,
    of.PlaySettings,
    of.ServerSettings,
    of.ControlSettings,
    of.ScheduleSettings,
    of.ModelSettings,
    of.RenderSettings,
    of.QuestionSettings,
):
    """All settings of a run; every one has its default."""

    __pydantic_config__: ClassVar = CONVERSION

    @property
    def as_json(self) -> dict[str, Any]:
        """All settings as JSON values by name, of which `of` makes them again."""
        return json.loads(json.dumps(vars(self), default=argument_text))

    @property
    def part(self) -> Part | None:
        """The part of all questions that --shard selects."""
        return Part.parse(self.shard) if self.shard is not None else None

    @property
    def loads_weights(self) -> bool:
        """Whether a checkpoint is loaded on this machine, in this process or by vLLM."""
        return self.policy is None and self.engine != "openai"

    @property
    def boxes(self) -> str:
        """Which boxes of objects the model reads, boxes or boxes-seen; empty if none."""
        return next((name for name in self.given if name != "path"), "")

    @property
    def who_moves(self) -> str:
        """Who moves the camera: see `roomscout.runs.movers.who_moves`."""
        return who_moves(self.moves, self.moves_of, self.given)

    @property
    def on_video(self) -> bool:
        """Whether frames of a video are presented instead of views of a scan."""
        return self.present == "video"

    @property
    def on_gpus(self) -> bool:
        """Whether processes on this machine answer parts of the run."""
        return self.gpus != (NO_GPUS,)

    @property
    def in_parts(self) -> bool:
        """Whether workers answer parts of the run, here or on a cluster."""
        return self.ray or self.on_gpus

    @property
    def view_size(self) -> tuple[int, int]:
        """Width and height of the views; --image-size must be resolved."""
        assert self.image_size != "auto", "the size of views is resolved by a plan"
        return self.image_size

    @property
    def most_moves(self) -> int:
        """The maximum number of moves per question: --steps, or 0 if nobody moves the camera or there is none."""
        return 0 if self.moves == "none" or self.on_video else self.steps

    @property
    def images_a_turn(self) -> int:
        """The images of each turn; --frames must be resolved."""
        return int(self.frames) if self.on_video else len(self.see)

    @property
    def most_images(self) -> int:
        """The most images of a conversation."""
        return (self.most_moves + 1) * self.images_a_turn

    @property
    def most_shown(self) -> int:
        """The most images that a conversation shows at a time."""
        kept = self.keep_views
        return self.most_images if kept is None else min(self.most_images, (kept + 1) * self.images_a_turn)


SECTIONS = tuple(kind for kind in reversed(Settings.__mro__[1:]) if issubclass(kind, Section) and kind is not Section)
"""The sections, in the order of the help."""
_FIELDS = {each.name: each for each in fields(Settings)}
SETTINGS: dict[str, Setting] = {name: each.metadata["setting"] for name, each in _FIELDS.items()}
DEFAULTS: dict[str, Any] = {name: each.default for name, each in _FIELDS.items()}
HINTS = {name: hint for name, hint in get_type_hints(Settings, include_extras=True).items() if name in SETTINGS}
"""The annotation of each setting."""
TYPES = {name: [kind for kind in alternatives(hint) if kind is not NoneType] for name, hint in HINTS.items()}
"""The types of each setting's values that are not None."""
SEVERAL = {name for name, types in TYPES.items() if any(get_origin(each) is tuple for each in types)}
"""Settings that take several values."""


def names_in(section: type[Section]) -> tuple[str, ...]:
    """The names of the settings of a section."""
    return tuple(each.name for each in fields(section))


def names_of(*roles: Role) -> tuple[str, ...]:
    """The names of the settings with these roles, as declared."""
    return tuple(name for name, each in SETTINGS.items() if each.role in roles)


ANSWER_SETTINGS = names_of(Role.QUESTION, Role.SCORING, Role.ANSWERER, Role.ANSWER)
"""Settings that could change an answer or its score."""


VERB_WORDS: dict[str, Any] = {
    **{"batch": False, "demo": False, "continue_from": None, "retry_failed": False, "check_data": False, "plan": False},
    **{"ply": None, "question": None, "options": [], "ground_truth": None},
}
"""What run.json has beside settings, by the words of the script: what was asked, with values that need no flag."""


def flags_of(values: Mapping[str, Any]) -> list[str]:
    """The flags that give these settings, as JSON values, without those that name or place a run folder."""
    words = []
    for name, value in values.items():
        if name not in ("continue_from", "log_root", "name"):
            parts = value if isinstance(value, list) else [value]
            words += [flag(name, value)] if isinstance(value, bool) else [flag(name), *map(str, parts)]
    return words


def flags_giving(values: Mapping[str, Any]) -> list[str]:
    """The flags that give these settings and words, as JSON values, without those that have their defaults."""
    usual = VERB_WORDS | Settings().as_json
    return flags_of({name: value for name, value in values.items() if value != usual[name]})
