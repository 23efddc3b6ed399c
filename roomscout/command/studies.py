"""The main command as `roomscout study` starts it: its flags, settings and questions."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roomscout.agent.builders import questions_of
from roomscout.agent.config import ConfigError, RunConfig, config_from_dict
from roomscout.agent.resuming import COMMAND, with_absolute_paths
from roomscout.analysis.study import command
from roomscout.analysis.study.cells import Given
from roomscout.base.wording import named
from roomscout.command.command_line import parse_command_line
from roomscout.command.demo import demo_config, demo_defaults
from roomscout.data.parts import Part
from roomscout.data.questions import QuestionError, fingerprint
from roomscout.runs.settings import SETTINGS


class StudiedCommand:
    """The main command of this package, as `analysis.study.cells.MainCommand` describes it."""

    def __init__(self) -> None:
        self.words: Sequence[str] = [sys.executable, *COMMAND]

    def read(self, flags: Sequence[str], folder: Path) -> Given:
        """What flags give to a study in a folder; --demo makes its rooms there. Raises ConfigError."""
        given = parse_command_line(list(flags))
        if unused := [named(name) for name in given.settings if SETTINGS[name].study == "never"]:
            raise ConfigError(
                f"a study answers many questions, in runs in its own folder: leave out {', '.join(unused)}"
            )
        config, names = given.over(RunConfig()), set(given.settings)
        what = config.what_to_run
        if what.demo:
            demo = demo_defaults(given).having(retry_failed=False)
            config = demo_config(with_absolute_paths(demo.having(log_root=folder)).checked())
            names |= {"model", "max_batched_turns", "questions", "scan_root"}
        else:
            config = with_absolute_paths(config)
        values = config.as_json
        shard = config.cluster.shard
        part = Part.parse(shard) if shard is not None else None
        return Given(
            {name: values[name] for name in names if SETTINGS[name].study == "cell"},
            (part.number, part.of) if part else None,
            what.retry_failed,
        )

    def completed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a run, from some of them; raises ConfigError."""
        return config_from_dict({**settings, "batch": True}).checked().as_json

    def questions_sha256(self, settings: Mapping[str, Any]) -> str:
        """The fingerprint of the questions; raises ConfigError if they cannot be read."""
        config = config_from_dict(dict(settings))
        try:
            return fingerprint(questions_of(config.what_to_run, config.questions))
        except QuestionError as error:
            raise ConfigError(str(error)) from None


def main(arguments: Sequence[str]) -> int:
    """The verb `study`; returns its exit status."""
    return command.main(arguments, StudiedCommand())
