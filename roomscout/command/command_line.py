"""The command line: flags derived from RunConfig, and the YAML file of --config."""

import inspect
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from roomscout import SCRIPT
from roomscout.agent.config import ConfigError, RunConfig, accepted, alternatives, config_from_dict
from roomscout.agent.resuming import as_begun
from roomscout.base.plain_yaml import read_yaml
from roomscout.base.text import argument_text, did_you_mean
from roomscout.base.wording import flag
from roomscout.data.question_files import QUESTION_FILES
from roomscout.runs.settings import (
    DISPLAY_SETTINGS,
    FILTERS,
    HINTS,
    SECTION_OF,
    SECTION_TYPES,
    SETTINGS,
    default_of,
)

EXAMPLES = (
    '--ply room.ply --question "How many chair(s) are in this room?" --model embedded',
    "--batch --questions rooms/questions.jsonl --scan-root rooms --model embedded",
    "--batch --scan-root scans --max-batched-turns 6",
    "--continue recent",
)
"""What --help of the script begins with."""
ABOUT = "Let a vision-language model explore 3D scans of rooms and answer spatial questions."
"""The first line of --help where Python leaves docstrings out."""
FLAGS = {flag(name): (name, True) for name in SECTION_OF} | {
    flag(f"no_{name}"): (name, False) for name, hint in HINTS.items() if alternatives(hint) == [bool]
}
"""The setting of each flag, and False for the flags that turn a switch off."""


@dataclass(frozen=True)
class Given:
    """The settings that a command line gives, by name: those of its flags, else those of its --config file."""

    settings: dict[str, Any]

    def over(self, base: RunConfig) -> RunConfig:
        """`base` overridden by the given settings; raises ConfigError if a number is out of its bounds."""
        return base.having(**self.settings)


def parse_command_line(argv: list[str], verbs: str = "", examples: Sequence[str] = ()) -> Given:
    """Parse the arguments, and the YAML file of --config if given. Each switch has a `--no-` form that turns it off.

    The help of the console command begins with `verbs`, the text about its verbs, and the `examples` of their use;
    that of the script with EXAMPLES, then `verbs`. Help ends the process.

    Raises ConfigError, naming the flag, if a flag does not exist or has a wrong value, or if the file cannot be read or
    is invalid.
    """
    config_file, words = _split_config_file(argv)
    in_file = _read_yaml(config_file) if config_file else {}
    from_file = config_from_dict(in_file, f"{config_file}").settings
    if {"-h", "--help"} & set(words):
        _show_help(config_from_dict(in_file).settings, verbs, examples)
    in_flags = _values_of(words)
    from_flags = RunConfig.of(**in_flags).settings
    return Given({name: from_file[name] for name in in_file} | {name: from_flags[name] for name in in_flags})


def _show_help(defaults: Mapping[str, Any], verbs: str, examples: Sequence[str]) -> None:
    """Print the help, with these defaults, and end the process."""
    about = [ABOUT] if sys.flags.optimize > 1 else inspect.cleandoc(RunConfig.__doc__ or ABOUT).split("\n\n")
    from_file = "--config FILE.yaml reads the same settings from a YAML file; flags take precedence."
    if Path(sys.argv[0]).name == SCRIPT.name:
        usage = SCRIPT.name
        parts = [*map(_filled, about), "\n".join(f"  python {usage} {each}" for each in EXAMPLES), verbs]
    else:
        usage = "roomscout VERB"
        parts = [_filled(about[0]), verbs, "\n".join(["Examples:", *(f"  {each}" for each in examples)])]
    print_flags(usage, SECTION_TYPES, "\n\n".join(filter(None, [*parts, _filled(from_file)])), defaults)
    sys.exit(0)


def print_flags(usage: str, sections: Iterable[str], description: str, defaults: Mapping[str, Any]) -> None:
    """Print the flags of the named sections of RunConfig, in their order, with these defaults."""
    lines = [f"usage: {usage} [-h] [OPTIONS]", "", description, "", "options:"]
    lines.append(_help_of("-h, --help", "show this help message and exit"))
    for section in sections:
        kind = SECTION_TYPES[section]
        lines += ["", f"{kind.title} options:", *([f"  {kind.advice}", ""] if kind.advice else [])]
        for name, text in kind.helps().items():
            value = defaults[name]
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
            known = f" (default: {shown})" if shown not in ("", "None") else ""
            taken = [each for each in alternatives(HINTS[name]) if each is not NoneType]
            switches = f"{flag(name)}, {flag(f'no_{name}')}"
            values = f"{flag(name)} {SETTINGS[name].values or _values_in_words(taken)}"
            lines.append(_help_of(switches if taken == [bool] else values, text + known))
    print("\n".join(lines))


def _help_of(flags: str, text: str) -> str:
    """The help of a flag, in a column beside it, or below it if it is long."""
    indent, beside = " " * 24, f"  {flags:<20}  "
    if len(beside) > len(indent):
        return f"{beside.rstrip()}\n{_filled(text, indent, indent)}"
    return _filled(text, beside, indent)


def _filled(text: str, first: str = "", indent: str = "") -> str:
    columns = max(shutil.get_terminal_size().columns - 2, 60)
    return textwrap.fill(text, columns, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)


def _values_in_words(taken: Sequence[Any]) -> str:
    """How the help shows values of these types."""
    choices = [str(value) for each in taken for value in get_args(each)]
    return f"{{{','.join(choices)}}}" if choices else taken[0].__name__.upper()


def _values_of(words: list[str]) -> dict[str, Any]:
    """The setting that each flag gives, by name, as text; of a flag that is given twice, the later one.

    Raises ConfigError for a flag that does not exist or has too many or too few values.
    """
    values: dict[str, Any] = {}
    for given, *following in _by_flag(words):
        typed, _, value = given.partition("=")
        if "=" in given:
            following = [value, *following]
        name, turns_on = _setting(typed)
        taken = [each for each in alternatives(HINTS[name]) if each is not NoneType]
        if taken == [bool]:
            if following:
                raise ConfigError(_takes_no_value(typed, following))
            values[name] = turns_on
            continue
        if not any(following):
            fix = "leave it out to ask all questions" if name in FILTERS else f"it takes {accepted(HINTS[name])}"
            raise ConfigError(f"{typed} is given without a value: {fix}")
        texts = [Path(each) if Path in taken else argument_text(each) for each in following]
        several = any(get_origin(each) is tuple for each in taken)
        if len(texts) > 1 and not several:
            quote = ": put quotes around a text of several words" if str in taken else ""
            raise ConfigError(f"{typed} takes one value, got {' '.join(map(str, texts))}{quote}")
        values[name] = tuple(texts) if several and texts != ["auto"] else texts[0]
    return values


def _by_flag(words: list[str]) -> Iterator[list[str]]:
    """Each flag with the words after it. Raises ConfigError for words before the first flag."""
    group: list[str] = []
    for word in words:
        if group and _takes_word(group[0], word):
            group.append(word)
            continue
        if word.startswith("-") and not word.startswith("--") and f"-{word}".partition("=")[0] in FLAGS:
            raise ConfigError(f"there is no flag {word}; did you mean -{word}, with two dashes?")
        if word.startswith("--"):
            if group:
                yield group
            group = [word]
        elif group:
            group.append(word)
        else:
            raise ConfigError(f"there is no flag {word}; --help lists the flags")
    if group:
        yield group


def _takes_word(typed: str, word: str) -> bool:
    """Whether a flag takes this word among a few, such as the -y of --up-axis, which begins like a flag."""
    name, _ = FLAGS.get(typed.replace("_", "-"), (None, False))
    return name is not None and any(word in get_args(each) for each in alternatives(HINTS[name]))


def _setting(typed: str) -> tuple[str, bool]:
    """The setting of a flag, and False for the `--no-` form of a switch.

    Raises ConfigError if there is none.
    """
    wanted = typed.replace("_", "-")
    if wanted in FLAGS:
        return FLAGS[wanted]
    # Without the dashes, which make any two flags similar.
    names = [each[2:] for each in (*FLAGS, "--config")]
    longer = [each for each in names if each.startswith(f"{wanted[2:]}-")]
    word = longer[0] if len(longer) == 1 else wanted[2:]
    fix = did_you_mean(word, names, "--help lists the flags", "--")
    raise ConfigError(f"there is no flag {typed}; {fix}")


def _takes_no_value(switch: str, given: list[str]) -> str:
    """That a switch is given a value, and what is likely meant."""
    first, *_ = given
    if switch == "--batch" and first.isdecimal():
        return f"{switch} takes no value; did you mean --batch --batch-size {first}?"
    if switch == "--batch" and Path(first).suffix in QUESTION_FILES:
        return f"{switch} takes no value; did you mean --batch --questions {first}?"
    if first.lower() in ("false", "no", "off", "0") and not switch.startswith("--no"):
        return f"{switch} takes no value: write {flag('no_' + switch[2:])}"
    return f"{switch} takes no value: leave out {' '.join(given)}"


def resumed(saved: RunConfig, given: Given) -> RunConfig:
    """The configuration of a resumed run: the saved one, overridden by what is given now.

    Ignores --batch and --demo. "auto" keeps the value that it was resolved to when the run began. Raises ConfigError
    naming the flags that would change answers.
    """
    settings = {name: value for name, value in given.settings.items() if name not in ("batch", "demo")}
    if (name := settings.pop("name", None)) not in (None, saved.output.name):
        raise ConfigError(f"--name {name} names a new run: leave it out to resume one")
    saved = saved.having(**{name: default_of(name) for name in DISPLAY_SETTINGS})
    return as_begun(saved, saved.having(**settings)).checked()


def _split_config_file(argv: list[str]) -> tuple[Path | None, list[str]]:
    """Separate `--config FILE` (or `--config=FILE`) from the other arguments."""
    rest, path, waiting = [], None, False
    for argument in argv:
        if argument.startswith("--config") and (waiting or path):
            raise ConfigError("--config is given twice: put all settings in one YAML file")
        if waiting:
            path, waiting = Path(argument), False
        elif argument == "--config":
            waiting = True
        elif argument.startswith("--config="):
            path = Path(argument.partition("=")[2])
        else:
            rest.append(argument)
    if waiting:
        raise ConfigError("--config takes a YAML file")
    return path, rest


def _read_yaml(path: Path) -> dict[str, Any]:
    """The YAML file with names of settings as keys. Values stay text, to be converted by each field's type."""
    if not path.is_file():
        raise ConfigError(f"--config {path}: there is no such file")
    try:
        values = read_yaml(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"--config {path}: cannot be read as YAML: {error}") from None
    values = {} if values is None else values  # an empty file, or one of comments
    if not isinstance(values, dict):
        raise ConfigError(f"--config {path}: expected a mapping of names to values, such as `batch_size: 8`")
    names = {str(key).replace("-", "_"): value for key, value in values.items()}
    if "continue" in names:
        names["continue_from"] = names.pop("continue")
    return names
