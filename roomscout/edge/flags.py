"""The command line: a flag for each setting, and the YAML file of --config."""

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError

from roomscout import UpAxis
from roomscout.base.errors import ConfigError, flag
from roomscout.base.record import adapter_of
from roomscout.base.text import argument_text, either
from roomscout.base.verbs import Parser
from roomscout.edge.declaring import Section
from roomscout.edge.settings import SECTIONS, SETTINGS, SEVERAL, TYPES, VERB_WORDS, names_in


@dataclass(frozen=True)
class Given:
    """What a command line gives, from its flags over its --config file."""

    settings: dict[str, Any]  # settings by name, as they are written
    words: dict[str, Any]  # what a verb takes beside settings, by the names of VERB_WORDS
    sources: dict[str, str]  # the file that a setting is from, by name


def read_flags(parser: Parser, argv: Sequence[str], verb: str = "", takes: Collection[str] = ()) -> Given:
    """What flags give to a verb that `takes` these words, and the YAML file of --config. Raises ConfigError for a file
    that cannot be read, or with other words; ends the process with status 2, as argparse does, for wrong flags."""
    values = vars(parser.parse_args(with_axes(argv)))
    config = values.pop("config", None)
    in_file = {} if config is None else _read_yaml(config)
    words = _words_of(in_file, config)
    words |= {name: value for name, value in values.items() if name in VERB_WORDS}
    others = [name for name, value in words.items() if value != VERB_WORDS[name] and name not in takes]
    if others:
        raise ConfigError(f"--config {config}: {flag(others[0])} says what to do, and {verb} does not take it")
    settings = {name: value for name, value in {**in_file, **values}.items() if name not in VERB_WORDS}
    sources = dict.fromkeys(in_file.keys() - values.keys(), f"--config {config}")
    return Given(settings, VERB_WORDS | words, sources)


def read_words(argv: Sequence[str]) -> dict[str, Any]:
    """What the file of --config says to do, by the names of VERB_WORDS; raises ConfigError."""
    parser = Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    config = parser.parse_known_args(argv)[0].config
    values = {} if config is None else _read_yaml(config)
    return _words_of(values, config)


def _words_of(in_file: Mapping[str, Any], config: Path | None) -> dict[str, Any]:
    """What a YAML file says to do, by the names of VERB_WORDS; raises ConfigError."""
    words = {name: value for name, value in in_file.items() if name in VERB_WORDS and value is not None}
    for name, value in words.items():
        if isinstance(VERB_WORDS[name], bool):  # all values are text
            try:
                words[name] = adapter_of(bool).validate_python(value)
            except ValidationError:
                raise ConfigError(f"--config {config}: {flag(name)} takes yes or no, got {value}") from None
    return words


def with_axes(argv: Sequence[str]) -> list[str]:
    """The arguments with `--up-axis -y` as `--up-axis=-y`: argparse takes a word with a dash for a flag."""
    words = list(argv)
    for place in range(len(words) - 1, 0, -1):
        if words[place - 1] == "--up-axis" and words[place] in get_args(UpAxis):
            words[place - 1] += f"={words.pop(place)}"
    return words


def flags_parser(
    sections: Iterable[type[Section]] = SECTIONS,
    usage: str = "roomscout VERB",
    description: str = "",
    defaults: Mapping[str, Any] | None = None,
) -> Parser:
    """A parser with the flags of these sections; its help has their texts if it is given the `defaults` to show."""
    parser = Parser(
        prog="roomscout",
        usage=f"{usage} [-h] [OPTIONS]",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE.yaml", help="read settings from a YAML file; flags take precedence"
    )
    for section in sections:
        group = parser.add_argument_group(f"{section.title} options", section.advice or None)
        helps = {} if defaults is None else section.helps()
        for name in names_in(section):
            text = _help(name, helps[name], defaults[name]) if defaults is not None else None
            if TYPES[name] == [bool]:
                group.add_argument(flag(name), dest=name, action=argparse.BooleanOptionalAction, help=text)
                continue
            convert = Path if Path in TYPES[name] else argument_text
            group.add_argument(
                flag(name),
                dest=name,
                type=partial(_value, convert),
                metavar=SETTINGS[name].values or None,
                choices=_choices(name),
                nargs="+" if name in SEVERAL else None,
                help=text,
            )
    return parser


def _value(convert: Callable[[str], Any], text: str) -> Any:
    if not text:
        raise argparse.ArgumentTypeError("takes a value, got an empty text")
    return convert(text)


def _choices(name: str) -> list[Any] | None:
    types = TYPES[name]
    return [value for each in types for value in get_args(each)] if {*map(get_origin, types)} == {Literal} else None


def _help(name: str, text: str, default: Any) -> str:
    """The help of a flag for argparse, with the choices of a registry and the default."""
    if (choices := SETTINGS[name].choices) is not None:
        text = text.replace("{choices}", either([*choices()]))
    shown = " ".join(map(str, default)) if isinstance(default, tuple) else str(default)
    text += f" (default: {shown})" if shown not in ("", "None") else ""
    return text.replace("%", "%%")


def _read_yaml(path: Path) -> dict[str, Any]:
    from roomscout.base.plain_yaml import read_yaml

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
    return names
