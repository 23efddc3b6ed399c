"""A checkpoint's own view size, focal length, longest reply and what its prompts reveal, from an optional file in its
folder."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from roomscout.models.checkpoint_files import read_record

VIEWS_FILE = "views.json"
"""The file of ViewSettings in a checkpoint folder."""


TellName = Literal["pose", "extent", "turns"]
"""What a prompt can reveal: the camera's pose, the room's extent along x and y, and the moves left."""


@dataclass(frozen=True)
class ViewSettings:
    """Width and height of a view in pixels, focal length in pixels, and the longest reply in tokens.

    `tell` lists what the prompts reveal. By default they keep the room's extent from the model, since it nearly answers
    questions about the room's size. The defaults are for models that were not trained on one view size.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    image_size: tuple[int, int] = (640, 480)
    focal: float = 300.0
    max_new_tokens: int = 512
    tell: tuple[TellName, ...] = ("pose", "turns")


def view_settings_of(model: str) -> ViewSettings:
    """The settings in the model's checkpoint folder, or the defaults. Raises ModelError for a damaged file."""
    return own_view_settings(model) or ViewSettings()


def own_view_settings(model: str) -> ViewSettings | None:
    """The settings in the model's checkpoint folder, None if there are none. Raises ModelError for a damaged file."""
    return read_record(model, VIEWS_FILE, ViewSettings, without="use defaults")
