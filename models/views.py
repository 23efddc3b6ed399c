"""A checkpoint's own view size, focal length and longest reply, from an optional file in its folder."""

from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import ClassVar

from roomscout.models import EMBEDDED, EXPLORER, ModelError

VIEWS_FILE = "views.json"
"""The file of ViewSettings in a checkpoint folder."""


@dataclass(frozen=True)
class ViewSettings:
    """Width and height of a view in pixels, focal length in pixels, and the longest reply in tokens.

    The defaults are for models that were not trained on one view size.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    image_size: tuple[int, int] = (640, 480)
    focal: float = 300.0
    max_new_tokens: int = 512


def view_settings_of(model: str) -> ViewSettings:
    """The settings in the model's checkpoint folder, or the defaults. Raises ModelError for a damaged file."""
    return own_view_settings(model) or ViewSettings()


def own_view_settings(model: str) -> ViewSettings | None:
    """The settings in the model's checkpoint folder, None if there are none. Raises ModelError for a damaged file."""
    from pydantic import TypeAdapter, ValidationError  # only reading needs pydantic

    folder = EXPLORER if model == EMBEDDED else Path(model).expanduser()
    path = folder / VIEWS_FILE
    try:
        return TypeAdapter(ViewSettings).validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise ModelError(f"{path} is damaged ({place}: {first['msg']}): fix it, or remove it to use defaults") from None


def write_view_settings(folder: Path, settings: ViewSettings) -> None:
    """Write the settings to a checkpoint folder."""
    (folder / VIEWS_FILE).write_text(dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
