"""Values by the names of settings, from flags, YAML, run.json or Python, as `Settings`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from roomscout.base.errors import ConfigError
from roomscout.base.text import did_you_mean
from roomscout.base.wording import flag
from roomscout.edge.settings import SETTINGS, SEVERAL, Settings

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
