"""The command line: flags derived from RunConfig, and the YAML file of --config."""

import inspect
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import tyro

from roomscout import SCRIPT
from roomscout.agent.config import FILTERS, SECTION_OF, ConfigError, RunConfig, config_from_dict, flag
from roomscout.agent.resuming import as_begun
from roomscout.data.plain_yaml import read_yaml
from roomscout.data.text import argument_text

EXAMPLES = (
    '--ply room.ply --question "How many chair(s) are in this room?" --model embedded',
    "--batch --questions rooms/questions.jsonl --scan-root rooms --model embedded",
    "--batch --scan-root scans --max-batched-turns 6",
    "--continue recent",
)
"""What --help begins with."""
FOREIGN = {
    "--limit": "--num-questions",
    "--output-dir": "--log-root",
    "--resume": "--continue",
    "--scan": "--ply",
    "--max-turns": "--steps, which counts moves: a question has one turn more",
    "--max-steps": "--steps",
    "--attn-implementation": "--attention",
    "--tasks": "--question-types",
}
"""Flags of other tools, and what has that meaning here."""


@dataclass(frozen=True)
class Given:
    """The settings that a command line gives, by name: those of its flags, else those of its --config file."""

    settings: dict[str, Any]

    def over(self, base: RunConfig) -> RunConfig:
        """`base` overridden by the given settings; raises ConfigError if a number is out of its bounds."""
        return base.having(**self.settings)


def parse_command_line(argv: list[str], verbs: str = "") -> Given:
    """Parse the arguments, and the YAML file of --config if given. Each switch has a `--no-` form that turns it off.

    The help begins with examples and `verbs`, the text about the verbs of the command.

    Raises ConfigError if the file cannot be read or is invalid, or if a filter of questions has no value. Invalid flags
    end the process with status 2, as usual for command-line tools.
    """
    config_file, flags = _split_config_file(argv)
    _refuse_foreign(flags)
    for given, following in pairwise([*flags, "--"]):
        if given.replace("_", "-") in map(flag, FILTERS) and following.startswith("--"):
            raise ConfigError(f"{given} is given without a value: leave it out to ask all questions")
    in_file = _read_yaml(config_file) if config_file else {}
    prog = SCRIPT.name if Path(sys.argv[0]).name == SCRIPT.name else "roomscout"
    examples = "\n".join(f"  {'python ' * (prog == SCRIPT.name)}{prog} {each}" for each in EXAMPLES)
    about = [inspect.cleandoc(RunConfig.__doc__ or ""), examples, verbs]
    about.append("--config FILE.yaml reads the same settings from a YAML file; flags take precedence.")
    parsed = tyro.cli(
        RunConfig,
        default=config_from_dict(in_file, f"{config_file}"),
        args=flags,
        prog=prog,
        description="\n\n".join(each.strip("\n") for each in about if each),
        config=(tyro.conf.OmitArgPrefixes,),
    )
    in_flags = _names_in(flags)
    return Given(
        {name: _decoded(value) for name, value in parsed.settings.items() if name in in_file or name in in_flags}
    )


def _refuse_foreign(flags: list[str]) -> None:
    """Raise ConfigError for a flag of other tools, and for a number after --batch, naming the flag that is meant."""
    for word, following in pairwise([*flags, ""]):
        name = word.partition("=")[0].replace("_", "-")
        if name in FOREIGN:
            raise ConfigError(f"there is no {name}; did you mean {FOREIGN[name]}?")
        if word == "--batch" and following.isdecimal():
            raise ConfigError(f"--batch takes no value; did you mean --batch --batch-size {following}?")


def _names_in(flags: list[str]) -> set[str]:
    """The settings that flags give a value, whatever it is."""
    words = {word.partition("=")[0].replace("_", "-") for word in flags}
    return {name for name in SECTION_OF if words & {flag(name), flag(f"no_{name}")}}


def _decoded(value: Any) -> Any:
    """The value of a flag, texts decoded as UTF-8 whatever the locale."""
    if isinstance(value, tuple):
        return tuple(map(_decoded, value))
    return argument_text(value) if isinstance(value, str) else value


def resumed(saved: RunConfig, given: Given) -> RunConfig:
    """The configuration of a resumed run: the saved one, overridden by what is given now.

    Ignores --batch and --demo. "auto" keeps the value that it was resolved to when the run began. Raises ConfigError
    naming the flags that would change answers.
    """
    settings = {name: value for name, value in given.settings.items() if name not in ("batch", "demo")}
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
