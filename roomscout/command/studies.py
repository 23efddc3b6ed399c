"""The main command as `roomscout study` starts it: its flags, settings and questions."""

import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roomscout.agent.running import COMMAND
from roomscout.analysis.study import command
from roomscout.analysis.study.cells import Given, started
from roomscout.base.errors import ConfigError
from roomscout.base.wording import flag
from roomscout.command.demo import demo_settings
from roomscout.data.questions import QuestionError, fingerprint
from roomscout.edge import flags as edge_flags
from roomscout.edge.conflicts import require_no_conflict
from roomscout.edge.parts import asked_by
from roomscout.edge.reading import located, read_settings
from roomscout.edge.settings import ANSWER_SETTINGS, SETTINGS, flags_giving

if TYPE_CHECKING:
    from roomscout.cluster.in_parts import Workers

log = logging.getLogger(__name__)


class StudiedCommand:
    """The main command of this package, as `analysis.study.cells.MainCommand` describes it."""

    answer_settings: Sequence[str] = tuple(name for name in ANSWER_SETTINGS if SETTINGS[name].study == "cell")

    def __init__(self) -> None:
        self.words: Sequence[str] = [sys.executable, *COMMAND]
        self._workers: Workers | None = None

    def start(self, flags: Sequence[str]) -> int:
        """Run it with these flags, in a process of its own, or on workers that stay for the next run that asks for the
        same; returns its exit status. Raises KeyboardInterrupt once it has saved its answers."""
        given = edge_flags.parse_command_line(list(flags)) if flags[0].startswith("-") else None
        settings = read_settings(given.settings) if given else None
        if given is None or settings is None or not (settings.ray or settings.on_gpus):
            return started([*self.words, *flags])
        from roomscout.cluster.in_parts import Workers
        from roomscout.command.runs import REFUSALS, session_of

        self._workers = self._workers or Workers()
        try:
            status = session_of(given, self._workers)
        except (ConfigError, *REFUSALS) as error:
            log.error("error: %s", error)
            return 2
        assert isinstance(status, int), "workers answer this run"
        if status == 130:
            raise KeyboardInterrupt
        return status

    def close(self) -> None:
        """End the workers, if there are any."""
        if self._workers is not None:
            self._workers.close()

    def read(self, flags: Sequence[str], folder: Path) -> Given:
        """What flags give to a study in a folder; --demo makes its rooms there. Raises ConfigError."""
        given = edge_flags.parse_command_line(list(flags))
        if unused := [flag(name) for name in given.settings if SETTINGS[name].study == "never"]:
            raise ConfigError(f"a study has many questions, in runs in its own folder: leave out {', '.join(unused)}")
        settings = read_settings(given.settings)
        names = set(given.settings)
        if settings.demo:
            in_folder = {**given.settings, "log_root": folder, "retry_failed": False}
            settings = demo_settings(edge_flags.Given(in_folder))
            names |= {"model", "max_batched_turns", "questions", "scan_root"}
        else:
            settings = located(settings)
        values = settings.as_json
        part = settings.part
        return Given(
            {name: values[name] for name in names if SETTINGS[name].study == "cell"},
            (part.number, part.of) if part else None,
            bool(given.settings.get("retry_failed")),
        )

    def completed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a run, from some of them; raises ConfigError."""
        found = read_settings({**settings, "batch": True})
        require_no_conflict(found)
        return found.as_json

    def flags(self, settings: Mapping[str, Any]) -> list[str]:
        """The flags that give these settings, as JSON values."""
        return flags_giving(settings)

    def questions_sha256(self, settings: Mapping[str, Any]) -> str:
        """The fingerprint of the questions; raises ConfigError if they cannot be read."""
        try:
            return fingerprint(asked_by(vars(read_settings(settings))).questions)
        except QuestionError as error:
            raise ConfigError(str(error)) from None


def main(arguments: Sequence[str]) -> int:
    """The verb `study`; returns its exit status."""
    with closing(StudiedCommand()) as studied:
        return command.main(arguments, studied)
