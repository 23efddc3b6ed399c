"""Optional files in a checkpoint folder that say what its model was trained on, as records in JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from json import dumps
from pathlib import Path
from typing import Any, TypeVar

from roomscout.models import EMBEDDED, EXPLORER, ModelError

RecordT = TypeVar("RecordT")
MOST_SHOWN = 40
"""The most characters of a wrong value that an error shows."""


def checkpoint_folder(model: str) -> Path:
    """The folder in which a model's checkpoint would be; for a hub id there is none."""
    return EXPLORER if model == EMBEDDED else Path(model).expanduser()


def read_record(model: str, name: str, record: type[RecordT], without: str) -> RecordT | None:
    """The `record` in the file `name` of a model's checkpoint folder; None if there is no such file.

    `without` says what happens if the file is removed. Raises ModelError for a damaged file.
    """
    from pydantic import TypeAdapter, ValidationError  # only reading needs pydantic

    path = checkpoint_folder(model) / name
    try:
        return TypeAdapter(record).validate_json(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror})") from None
    except ValidationError as error:
        why = invalid_in_words(error.errors()[0])
        raise ModelError(f"{path} is damaged ({why}): fix it, or remove it to {without}") from None


def invalid_in_words(problem: Mapping[str, Any]) -> str:
    """What is wrong with a value, of the errors of a pydantic.ValidationError, with its place and what was given."""
    place, kind = ".".join(map(str, problem["loc"])), problem["type"]
    if kind == "value_error":  # words of our own
        return f"{place + ': ' if place else ''}{problem['msg'].removeprefix('Value error, ')}"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return f"there is no {place}"
    if kind == "json_invalid":
        return problem["msg"]
    wanted = problem["msg"].removeprefix("Input ").replace("valid array", "list").replace("valid tuple", "list")
    return f"{place or 'it'} {wanted}, got {str(problem['input'])[:MOST_SHOWN]!r}"


def write_record(folder: Path, name: str, record: Any) -> None:
    """Write a record, a dataclass, to a file of a checkpoint folder."""
    (folder / name).write_text(dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
