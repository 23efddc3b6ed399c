"""Finds settings that conflict, by what each needs and excludes, and says so."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from roomscout.base.errors import ConfigError, flag
from roomscout.edge.settings import DEFAULTS, SETTINGS, Settings
from roomscout.edge.types import CHECKPOINT

OTHERS: tuple[tuple[Callable[[Settings], object], str], ...] = (
    (
        lambda s: s.engine == "openai" and s.generation == CHECKPOINT,
        "--generation checkpoint reads a file of the checkpoint, and --engine openai has none: a server applies its "
        "own defaults, so leave it out, or give values such as top_p=0.8",
    ),
    (lambda s: s.min_turns > s.steps, "--min-turns is after the last turn, which is that of --steps"),
    (
        lambda s: s.on_gpus and s.engine == "openai" and s.device != "cpu",
        "--engine openai needs no GPU here: leave out --gpus, or add --device cpu for so many processes on the CPU",
    ),
)
"""Conflicts that no term expresses."""


def require_no_conflict(settings: Settings, resumed: bool = False, one_scan: bool = False) -> None:
    """Raise ConfigError with the first conflict between settings of a run, perhaps `resumed`, or about `one_scan`."""
    why = next(Conflicts(settings, resumed, one_scan).sentences(), None)
    if why is not None:
        raise ConfigError(why)


@dataclass(frozen=True)
class Conflicts:
    """The conflicts between settings."""

    settings: Settings
    resumed: bool = False
    one_scan: bool = False

    def sentences(self) -> Iterator[str]:
        """Each conflict in a sentence."""
        for name, declared in SETTINGS.items():
            shown = self._shown(name)
            of_value = [rules for value, rules in declared.when.items() if self._holds(f"{name}={value}")]
            for rules in [declared.rules, *of_value] if self._is_given(name) else of_value:
                for need in rules.needs:
                    if not any(map(self._holds, need.split("|"))):
                        yield f"{shown} needs {' or '.join(map(_typed, need.split('|')))}"
                for term in filter(self._holds, rules.unless):
                    yield f"{shown} conflicts with {self._shown(_parts(term)[0])}: leave one of them out"
            if declared.engines and self.settings.engine not in declared.engines and self._is_given(name):
                yield f"{shown} needs {' or '.join(f'--engine {each}' for each in declared.engines)}"
            if declared.for_many and self.one_scan and self._is_given(name):
                yield f"{shown} is about many questions, and a scan is asked one: leave it out"
        yield from (why for conflicts, why in OTHERS if conflicts(self.settings))

    def _is_given(self, name: str) -> bool:
        """Whether a setting has another value than its default; when a run resumes, "auto" was resolved by the run."""
        return getattr(self.settings, name) != DEFAULTS[name] and not (self.resumed and SETTINGS[name].resolved)

    def _holds(self, term: str) -> bool:
        name, sign, pattern = _parts(term)
        if not sign:
            return self._is_given(name)
        value = getattr(self.settings, name)
        matches = any(fnmatchcase(str(each), pattern) for each in (value if isinstance(value, tuple) else [value]))
        return matches if sign == "=" else self._is_given(name) and not matches

    def _shown(self, name: str) -> str:
        return flag(name, getattr(self.settings, name))


def _parts(term: str) -> tuple[str, str, str]:
    name, sign, pattern = re.fullmatch(r"(\w+)(!?=|)(.*)", term).groups()  # type: ignore[union-attr]
    return name, sign, pattern


def _typed(term: str) -> str:
    name, sign, pattern = _parts(term)
    value = pattern if sign == "=" else None
    return flag(name, value)
