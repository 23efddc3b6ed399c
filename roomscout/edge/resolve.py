"""From values by names of settings, as flags, YAML, run.json or Python give them, to `Settings` that go together."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from roomscout.agent.play import LANGUAGES
from roomscout.base.errors import ConfigError, flag
from roomscout.base.record import adapter_of
from roomscout.base.text import did_you_mean, on_disk
from roomscout.data.benchmark_names import benchmark_names
from roomscout.edge.declaring import Role
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import ANSWER_SETTINGS, CONVERSION, DEFAULTS, HINTS, SETTINGS, SEVERAL, Settings, names_of
from roomscout.edge.types import CHECKPOINT
from roomscout.models import EMBEDDED

Source = str | Mapping[str, str]  # where values are from, or where each is by its name


def resolve(
    given: Mapping[str, Any], saved: Settings | None = None, source: Source = "", one_scan: bool = False
) -> Settings:
    """The settings of a run: the `given` values over those that were `saved` when it began, or over the defaults, with
    absolute paths, and in a resumed run with each "auto" as it was resolved then. A new run resolves the others when it
    is planned, by its checkpoint and its questions.

    Raises ConfigError for a value that is invalid, for settings that conflict, also with a run about `one_scan`, and
    for those that would change the answers or records of the saved run."""
    settings = read_saved(given, source)
    if saved is not None:
        settings = replace(saved, **{name: getattr(settings, name) for name in given})
        settings = _as_begun(saved, located(settings))
    why = next(Conflicts(settings, saved is not None, one_scan).sentences(), None)
    if why is not None:
        raise ConfigError(why)
    return settings if saved is not None else located(settings)


def changed(settings: Settings, changes: Mapping[str, Any]) -> Settings:
    """Settings with some values that model or policy decide; raises ConfigError for one that is invalid."""
    values = dict[str, Any]()
    for name, value in changes.items():
        adapter = adapter_of(HINTS[name], **CONVERSION)
        try:
            values[name] = adapter.validate_python(_several(name, value))
        except ValidationError as error:
            raise ConfigError(_in_words(name, list(error.errors()), value)) from None
    return replace(settings, **values)


def read_saved(values: Mapping[str, Any], source: Source) -> Settings:
    """The settings with these values, which may conflict; ConfigError names each that is invalid, and its source."""
    unknown = [name for name in values if name not in SETTINGS]
    known = {name: _several(name, value) for name, value in values.items() if name in SETTINGS}
    by_name: dict[str, list[Any]] = {}  # a union has one problem per member
    try:
        settings: Settings = adapter_of(Settings).validate_python(known)
    except ValidationError as error:
        for problem in error.errors():
            by_name.setdefault(str(problem["loc"][0]), []).append(problem)
    problems = {name: _in_words(name, problems, values[name]) for name, problems in by_name.items()}
    for name in unknown:
        fix = did_you_mean(flag(name), map(flag, SETTINGS), "--help lists all of them")
        problems[name] = f"there is no setting {flag(name)}; {fix}"
    if not problems:
        return settings
    texts = list[str]()
    for name, why in problems.items():
        origin = source if isinstance(source, str) else source.get(name, "")
        is_new = origin and not any(text.startswith(origin) for text in texts)
        texts += [f"{origin}: {why}"] if is_new else [why]
    raise ConfigError("; ".join(texts))


def _several(name: str, value: Any) -> Any:
    """The value of a setting that takes several; one text stands for a list of one."""
    return (str(value),) if name in SEVERAL and isinstance(value, str | Path) else value


def _in_words(name: str, problems: list[Any], value: Any) -> str:
    """What is wrong with a setting, as pydantic or a function of edge/types.py says it."""
    said = [problem["msg"] for problem in problems]
    own = [text.removeprefix("Value error, ") for text in said if text.startswith("Value error, ")]
    if own:
        return f"{flag(name)} {own[0]}"
    first, *others = dict.fromkeys(text.removeprefix("Input should be ") for text in said)
    got = " ".join(map(str, value)) if isinstance(value, list | tuple) else value
    return f"{flag(name)}: {' or '.join([said[0].replace(first, '') + first, *others])}, got {got}"


def located(settings: Settings) -> Settings:
    """Settings that name files by absolute paths, with `~` expanded, so that a run can be resumed from any folder."""
    paths: dict[str, Any] = {name: absolute(value) for name, value in vars(settings).items() if isinstance(value, Path)}
    paths["scan_root"] = scan_root_of(settings.scan_root, settings.questions)
    for name in ("benchmark", "actions", "policy"):
        source, _, attribute = (getattr(settings, name) or "").rpartition(":")
        if source.endswith(".py"):
            paths[name] = f"{absolute(Path(source))}:{attribute}"
    if settings.words not in LANGUAGES:
        paths["words"] = str(absolute(Path(settings.words)))
    folder = absolute(Path(settings.model))
    if settings.loads_weights and settings.model != EMBEDDED and folder.is_dir():
        paths["model"] = str(folder)
    if settings.benchmark not in benchmark_names() and absolute(Path(settings.benchmark)).is_dir():
        paths["benchmark"] = str(absolute(Path(settings.benchmark)))
    return replace(settings, **paths)


def scan_root_of(scan_root: Path, questions: Path | None) -> Path:
    """The absolute scan root: the folder of the question file if the default one is not there."""
    root = absolute(scan_root)
    if questions is not None and scan_root == DEFAULTS["scan_root"] and not root.is_dir():
        return absolute(questions).parent
    return root


def absolute(path: Path) -> Path:
    """An absolute path, with `~` expanded."""
    return on_disk(path.expanduser().absolute())


def _as_begun(begun: Settings, wanted: Settings) -> Settings:
    """`wanted` with each "auto" as resolved when the run began. Raises ConfigError naming the flags that would change
    answers or records."""
    begun = located(begun)
    if begun.model != wanted.model:
        raise ConfigError(f"the run was begun with {begun.model}, not {wanted.model}: resume it with {begun.model}")
    undecided = [name for name in SETTINGS if SETTINGS[name].resolved and getattr(wanted, name) in ("auto", CHECKPOINT)]
    wanted = replace(wanted, **{name: getattr(begun, name) for name in undecided})
    for names, what in ((ANSWER_SETTINGS, "answers"), (names_of(Role.RECORD), "the records")):
        differing = [name for name in names if _compared(begun, name) != _compared(wanted, name)]
        if differing:
            flags = ", ".join(map(flag, differing))
            raise ConfigError(f"{flags} would change {what} of this run: leave out to resume it, or start a new run")
    return wanted


def _compared(settings: Settings, name: str) -> Any:
    """A setting's value; filters compare as sets, since questions are asked in the order of their source."""
    value = getattr(settings, name)
    return frozenset(value) if name in FILTERS and isinstance(value, tuple) else value


OTHER_CONFLICTS: tuple[tuple[Callable[[Settings], object], str], ...] = (
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


@dataclass(frozen=True)
class Conflicts:
    """The conflicts between settings of a run, perhaps `resumed`, or about `one_scan`."""

    settings: Settings
    resumed: bool
    one_scan: bool

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
        yield from (why for conflicts, why in OTHER_CONFLICTS if conflicts(self.settings))

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
