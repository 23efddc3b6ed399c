"""The command line: a flag for each setting, and the YAML file of --config."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from roomscout.base.errors import ConfigError
from roomscout.base.plain_yaml import read_yaml
from roomscout.base.text import argument_text, did_you_mean
from roomscout.base.wording import flag
from roomscout.edge.declaring import alternatives
from roomscout.edge.reading import read_settings
from roomscout.edge.settings import HINTS, SETTINGS

TYPES = {name: [each for each in alternatives(hint) if each is not NoneType] for name, hint in HINTS.items()}
"""The types of each setting's values that are not None."""
FLAGS = {flag(name): (name, True) for name in SETTINGS} | {
    flag(name, False): (name, False) for name, types in TYPES.items() if types == [bool]
}
"""The setting of each flag, and False for the flags that turn a switch off."""


@dataclass(frozen=True)
class Given:
    """The settings that a command line gives, by name: those of its flags, else those of its --config file.

    `help` says that it asks for help.
    """

    settings: dict[str, Any]
    help: bool = False


def parse_command_line(argv: list[str]) -> Given:
    """Parse flags, and the YAML file of --config if given. Each switch has a `--no-` form that turns it off.

    Raises ConfigError, naming the flag, if a flag does not exist or has a wrong value, or if the file cannot be read.
    """
    words = [part for each in argv for part in (each.split("=", 1) if each.startswith("--config=") else [each])]
    in_file: dict[str, Any] = {}
    if "--config" in words:
        place = words.index("--config")
        if len(words) == place + 1 or "--config" in words[place + 1 :]:
            raise ConfigError("--config takes one YAML file")
        in_file = _read_yaml(Path(words[place + 1]))
        del words[place : place + 2]
    asks_help = bool({"-h", "--help"} & {*words})
    in_flags = {} if asks_help else _values_of(words)
    from_flags = read_settings(in_flags)
    return Given(in_file | {name: getattr(from_flags, name) for name in in_flags}, asks_help)


def _read_yaml(path: Path) -> dict[str, Any]:
    """The settings in a YAML file with their names as keys."""
    try:
        values = read_yaml(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--config {path} cannot be read as YAML: {error}") from None
    values = {} if values is None else values  # an empty file, or one of comments
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path}: expected a mapping of names to values, such as `batch_size: 8`")
    names = {str(key).replace("-", "_"): value for key, value in values.items()}
    if "continue" in names:
        names["continue_from"] = names.pop("continue")
    settings = read_settings(names, f"--config {path}")
    return {name: getattr(settings, name) for name in names}


def _values_of(words: list[str]) -> dict[str, Any]:
    """The setting that each flag gives, by name, as text; of a flag that is given twice, the later one."""
    values: dict[str, Any] = {}
    for typed, *following in _by_flag(words):
        switch, has_value, value = typed.partition("=")
        texts = [value, *following] if has_value else following
        name, turns_on = _setting(switch)
        if TYPES[name] == [bool]:
            if texts:
                raise ConfigError(f"{switch} takes no value: leave out {' '.join(texts)}")
            values[name] = turns_on
            continue
        if not any(texts):
            raise ConfigError(f"{switch} is given without a value")
        several = any(get_origin(each) is tuple for each in TYPES[name])
        if len(texts) > 1 and not several:
            quote = ": put quotes around a text of several words" if str in TYPES[name] else ""
            raise ConfigError(f"{switch} takes one value, got {' '.join(texts)}{quote}")
        given = [Path(each) if Path in TYPES[name] else argument_text(each) for each in texts]
        values[name] = tuple(given) if several and given != ["auto"] else given[0]
    return values


def _by_flag(words: list[str]) -> Iterator[list[str]]:
    """Each flag with the words after it."""
    group: list[str] = []
    for word in words:
        if f"-{word}".partition("=")[0] in FLAGS:
            raise ConfigError(f"there is no flag {word}; did you mean -{word}, with two dashes?")
        if group and (not word.startswith("--") or _is_choice(group[0], word)):
            group.append(word)
            continue
        if not word.startswith("--"):
            raise ConfigError(f"there is no flag {word}; --help lists the flags")
        if group:
            yield group
        group = [word]
    if group:
        yield group


def _is_choice(typed: str, word: str) -> bool:
    """Whether a flag takes this word among a few, such as the -y of --up-axis, which begins like a flag."""
    name, _ = FLAGS.get(typed.replace("_", "-"), ("", False))
    return any(word in get_args(each) for each in TYPES.get(name, ()))


def _setting(typed: str) -> tuple[str, bool]:
    """The setting of a flag, and False for the `--no-` form of a switch; raises ConfigError if there is none."""
    wanted = typed.replace("_", "-")
    if wanted in FLAGS:
        return FLAGS[wanted]
    # Without the dashes, which make any two flags similar.
    names = [each[2:] for each in (*FLAGS, "--config")]
    longer = [each for each in names if each.startswith(f"{wanted[2:]}-")]
    word = longer[0] if len(longer) == 1 else wanted[2:]
    raise ConfigError(f"there is no flag {typed}; {did_you_mean(word, names, '--help lists the flags', '--')}")
