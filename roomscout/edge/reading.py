"""Values by the names of settings, from flags, YAML, run.json or Python, as `Settings`; files by absolute paths."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from roomscout.base.errors import ConfigError
from roomscout.base.text import did_you_mean, on_disk
from roomscout.base.wording import flag
from roomscout.data.benchmark_names import benchmark_names
from roomscout.edge.settings import DEFAULTS, SETTINGS, SEVERAL, Settings
from roomscout.models import EMBEDDED

_adapter = cache(TypeAdapter)


def read_settings(values: Mapping[str, Any], source: str = "") -> Settings:
    """The settings with these values, converted to their types; raises ConfigError naming each that is invalid, and
    the `source`, if given."""
    problems = [_unknown(name) for name in values if name not in SETTINGS]
    given = {name: _several(name, value) for name, value in values.items() if name in SETTINGS}
    try:
        settings: Settings = _adapter(Settings).validate_python(given)
    except ValidationError as error:
        by_name: dict[str, list[Any]] = {}  # a union has one problem per member
        for problem in error.errors():
            by_name.setdefault(str(problem["loc"][0]), []).append(problem)
        problems = [_in_words(name, found, values[name]) for name, found in by_name.items()] + problems
    if problems:
        raise ConfigError("; ".join([f"{source}: {problems[0]}" if source else problems[0], *problems[1:]]))
    return settings


def changed(settings: Settings, **changes: Any) -> Settings:
    """Settings with some changed, as `read_settings` reads them."""
    return replace(settings, **{name: getattr(read_settings(changes), name) for name in changes})


def _several(name: str, value: Any) -> Any:
    """The value of a setting that takes several; one text stands for a list of one."""
    return (str(value),) if name in SEVERAL and isinstance(value, str | Path) else value


def _unknown(name: str) -> str:
    fix = did_you_mean(flag(name), map(flag, SETTINGS), "--help lists all of them")
    return f"there is no setting {flag(name)}; {fix}"


def _in_words(name: str, problems: list[Any], value: Any) -> str:
    """What is wrong with a setting, as pydantic or a function of edge/types.py says it."""
    said = [problem["msg"] for problem in problems]
    if own := [text for text in said if text.startswith("Value error, ")]:
        return f"{flag(name)} {own[0].removeprefix('Value error, ')}"
    first, *others = dict.fromkeys(text.removeprefix("Input should be ") for text in said)
    got = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return f"{flag(name)}: {' or '.join([said[0].replace(first, '') + first, *others])}, got {got}"


def located(settings: Settings) -> Settings:
    """Settings that name files by absolute paths, with `~` expanded, so that a run can be resumed from any folder."""
    found: dict[str, Any] = {
        name: value and _absolute(value) for name, value in vars(settings).items() if isinstance(value, Path)
    }
    found["scan_root"] = scan_root_of(settings.scan_root, settings.questions)
    for name in ("benchmark", "actions", "policy", "model"):
        found[name] = _located(getattr(settings, name))
    folder = _absolute(Path(settings.model))
    is_folder = settings.loads_weights and settings.model != EMBEDDED and folder.is_dir()
    found["model"] = str(folder) if is_folder else settings.model
    if settings.benchmark not in benchmark_names() and _absolute(Path(settings.benchmark)).is_dir():
        found["benchmark"] = str(_absolute(Path(settings.benchmark)))
    return changed(settings, **found)


def scan_root_of(scan_root: Path, questions: Path | None) -> Path:
    """The absolute scan root: the folder of the question file if the default one is not there."""
    root = _absolute(scan_root)
    if questions is not None and scan_root == DEFAULTS["scan_root"] and not root.is_dir():
        return _absolute(questions).parent
    return root


def _located(name: str | None) -> str | None:
    """`path/to/file.py:NAME` with an absolute path; any other name as it is."""
    source, _, attribute = (name or "").rpartition(":")
    return f"{_absolute(Path(source))}:{attribute}" if source.endswith(".py") else name


def _absolute(path: Path) -> Path:
    return on_disk(path.expanduser().absolute())
