"""Optional files in a checkpoint folder that say what its model was trained on, in JSON."""

from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Any, ClassVar, Literal

from roomscout.models import EMBEDDED, EXPLORER, ModelError

VIEWS_FILE = "views.json"  # the file of ViewSettings in a checkpoint folder
TellName = Literal["pose", "extent", "turns"]  # the camera's pose, the room's extent along x and y, the moves left


def checkpoint_folder(model: str) -> Path:
    """The folder in which a model's checkpoint would be; for a hub id there is none."""
    return EXPLORER if model == EMBEDDED else Path(model).expanduser()


def write_record(folder: Path, name: str, record: Any) -> None:
    """Write a record, a dataclass, to a file of a checkpoint folder."""
    (folder / name).write_text(dumps(asdict(record), indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class ViewSettings:
    """Width, height and focal length of a view in pixels, the longest reply in tokens, and what prompts `tell`: not the
    room's extent, which nearly answers questions. The defaults are for models not trained on one view size."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    image_size: tuple[int, int] = (640, 480)
    focal: float = 300.0
    max_new_tokens: int = 512
    tell: tuple[TellName, ...] = ("pose", "turns")

    def focal_at(self, width: int) -> float:
        """The focal length of views of another width, which show as much of the room."""
        return self.focal * width / self.image_size[0]


def view_settings_of(model: str) -> ViewSettings:
    """The settings in the model's checkpoint folder, or the defaults. Raises ModelError for a damaged file."""
    return own_view_settings(model) or ViewSettings()


def own_view_settings(model: str) -> ViewSettings | None:
    """The settings in the model's checkpoint folder, None if there are none. Raises ModelError for a damaged file."""
    from pydantic import ValidationError  # only reading needs pydantic

    from roomscout.base.record import adapter_of, reasons

    path = checkpoint_folder(model) / VIEWS_FILE
    try:
        found: ViewSettings = adapter_of(ViewSettings).validate_json(path.read_bytes())
        return found
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        raise ModelError(f"{path} is damaged ({reasons(error)}): fix it, or remove it to use defaults") from None
