"""Views and replies that suit a model: a checkpoint folder may bring its own settings in a small JSON file."""

from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import ClassVar

from models import EMBEDDED, EXPLORER, ModelError

VIEWS_FILE = "views.json"
"""The file of a checkpoint folder with its ViewSettings."""


@dataclass(frozen=True)
class ViewSettings:
    """Width and height of a view in pixels, focal length in pixels, and the longest reply in tokens.

    The defaults suit any model that was not trained on views of one size.
    """

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    image_size: tuple[int, int] = (640, 480)
    focal: float = 300.0
    max_new_tokens: int = 512


def view_settings_of(model: str) -> ViewSettings:
    """The settings in the model's checkpoint folder, or the defaults where there are none; raises ModelError for a file
    that is damaged."""
    return own_view_settings(model) or ViewSettings()


def own_view_settings(model: str) -> ViewSettings | None:
    """The settings in the model's checkpoint folder, None where it has none.

    Reads one small file; loads no model. Raises ModelError for a file that is damaged.
    """
    from pydantic import TypeAdapter, ValidationError  # only to read a file: training writes them without

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
    """Write the settings into a checkpoint folder."""
    (folder / VIEWS_FILE).write_text(dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
