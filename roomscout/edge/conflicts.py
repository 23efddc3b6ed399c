"""Finds settings that conflict, by what each needs and excludes, and says so."""

import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from roomscout.base.errors import ConfigError
from roomscout.base.wording import flag
from roomscout.edge.declaring import Rules
from roomscout.edge.settings import DEFAULTS, SETTINGS, Settings

OTHERS: tuple[tuple[Callable[[Settings], object], str], ...] = (
    (lambda s: s.min_turns > s.steps, "--min-turns is after the last turn, which is that of --steps"),
    (
        lambda s: s.on_gpus and s.engine == "openai" and s.device != "cpu",
        "--engine openai needs no GPU here: leave out --gpus, or add --device cpu for so many processes on the CPU",
    ),
)
"""Conflicts that no term expresses."""


def require_no_conflict(settings: Settings) -> None:
    """Raise ConfigError with the first conflict between settings. Call it once all of them are known."""
    if why := next(_conflicts(settings), None):
        raise ConfigError(why)


def _conflicts(settings: Settings) -> Iterator[str]:
    for name, declared in SETTINGS.items():
        shown = _shown(name, settings)
        for rules in _rules_of(name, settings):
            for need in rules.needs:
                if not any(_holds(term, settings) for term in need.split("|")):
                    yield f"{shown} needs {' or '.join(map(_typed, need.split('|')))}"
            for term in rules.unless:
                if _holds(term, settings):
                    yield f"{shown} conflicts with {_shown(_parts(term)[0], settings)}: leave one of them out"
        if declared.engines and settings.engine not in declared.engines and _is_given(name, settings):
            yield f"{shown} needs {' or '.join(f'--engine {each}' for each in declared.engines)}"
    yield from (why for conflicts, why in OTHERS if conflicts(settings))


def _rules_of(name: str, settings: Settings) -> Iterator[Rules]:
    """What a setting needs and excludes with the value that it has."""
    if _is_given(name, settings):
        yield SETTINGS[name].rules
    for value, rules in SETTINGS[name].when.items():
        if _holds(f"{name}={value}", settings):
            yield rules


def _is_given(name: str, settings: Settings) -> bool:
    """Whether a setting has another value than its default; when a run resumes, "auto" was resolved by the run."""
    resolved = SETTINGS[name].resolved and settings.continue_from is not None
    return getattr(settings, name) != DEFAULTS[name] and not resolved


def _holds(term: str, settings: Settings) -> bool:
    """Whether a term of `Rules` holds."""
    name, sign, pattern = _parts(term)
    if not sign:
        return _is_given(name, settings)
    value = getattr(settings, name)
    matches = any(fnmatchcase(str(each), pattern) for each in (value if isinstance(value, tuple) else [value]))
    return matches if sign == "=" else _is_given(name, settings) and not matches


def _parts(term: str) -> tuple[str, str, str]:
    name, sign, pattern = re.fullmatch(r"(\w+)(!?=|)(.*)", term).groups()  # type: ignore[union-attr]
    return name, sign, pattern


def _typed(term: str) -> str:
    """What to type so that a term holds."""
    name, sign, pattern = _parts(term)
    return flag(name, pattern if sign == "=" else None)


def _shown(name: str, settings: Settings) -> str:
    """A setting with its value, as typed."""
    value: Any = getattr(settings, name)
    return flag(name, " ".join(map(str, value)) if isinstance(value, tuple) else value)
