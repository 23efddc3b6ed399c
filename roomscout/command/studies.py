"""The main command as `roomscout study` starts it: its flags, settings and questions."""

import logging
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roomscout.base.errors import ConfigError, Refusal, UsageError, flag, in_words
from roomscout.base.processes import environment
from roomscout.cluster.in_parts import Workers
from roomscout.command import eval as evaluation
from roomscout.command import resume, words
from roomscout.command.demo import demo_settings
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.questions import fingerprint
from roomscout.edge.basis import selected
from roomscout.edge.flags import flags_parser, read_flags
from roomscout.edge.record import script_words
from roomscout.edge.resolve import located, read_saved, resolve
from roomscout.edge.settings import ANSWER_SETTINGS, SETTINGS, VERB_WORDS

log = logging.getLogger(__name__)

TAKES = ("batch", "demo", "retry_failed")


@dataclass(frozen=True)
class Given:
    """What a command line gives: settings by name, as JSON values, the `part` of --shard as its number and how many
    there are, and whether failed questions of finished cells are retried."""

    settings: dict[str, Any]
    part: tuple[int, int] | None = None
    retry_failed: bool = False


class StudiedCommand:
    """The main command of this package, and what its flags mean."""

    answer_settings: Sequence[str] = tuple(name for name in ANSWER_SETTINGS if SETTINGS[name].study == "cell")
    """The settings of a cell that could change an answer or its score."""

    def __init__(self) -> None:
        self.words: Sequence[str] = script_words()
        self._workers = Workers()

    def start(self, flags: Sequence[str]) -> int:
        """Run it with these flags, in a process of its own, or on workers that stay for the next run that asks for the
        same; returns its exit status. Raises KeyboardInterrupt once it has saved its answers."""
        verb, *arguments = words.in_verbs(flags) if flags[0].startswith("-") else flags
        carries_out: dict[str, Callable[..., int]] = {"eval": evaluation.main, "resume": resume.main}
        if verb not in carries_out or not {"--ray", "--gpus"} & set(arguments):
            return started([*self.words, *flags])
        try:
            status = carries_out[verb](arguments, workers=self._workers)
        except (ConfigError, UsageError, Refusal) as error:
            log.error("error: %s", in_words(error))
            return 2
        if status == 130:
            raise KeyboardInterrupt
        return status

    def close(self) -> None:
        """End the workers, if there are any."""
        self._workers.close()

    def read(self, flags: Sequence[str], folder: Path) -> Given:
        """What flags give to a study in a folder; --demo makes its rooms there. Raises ConfigError or UsageError."""
        parser = flags_parser(usage="roomscout study PRESET FOLDER")
        words.add_words(parser, TAKES)
        typed = read_flags(parser, flags, "study", TAKES)
        unused = [flag(name) for name in typed.settings if SETTINGS[name].study == "never"]
        if unused:
            raise UsageError(f"a study has many questions, in runs in its own folder: leave out {', '.join(unused)}")
        names = set(typed.settings)
        if typed.words["demo"]:
            settings = demo_settings(replace(typed, settings={**typed.settings, "log_root": folder}))
            names |= {"model", "max_batched_turns", "questions", "scan_root"}
        else:
            settings = located(read_saved(typed.settings, typed.sources))  # a preset may add what they need
        values = settings.as_json
        of_cells = {name: values[name] for name in names if SETTINGS[name].study == "cell"}
        return Given(of_cells, settings.part, bool(typed.words["retry_failed"]))

    def completed(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """All settings of a run, from some of them; raises ConfigError."""
        return resolve({name: value for name, value in settings.items() if name not in VERB_WORDS}).as_json

    def questions_sha256(self, settings: Mapping[str, Any]) -> str:
        """The fingerprint of the questions; raises QuestionError if they cannot be read."""
        chosen = resolve(settings)
        return fingerprint(selected(chosen, find_benchmark(chosen.benchmark)).questions)


def started(words: Sequence[str]) -> int:
    """Run a command to its end, on the same terminal; returns its exit status, as a shell gives it after a signal. An
    interrupt ends the command as Ctrl-C does, and is raised when it has ended."""
    with subprocess.Popen(words, env=environment()) as process:
        try:
            status = process.wait()
            return 128 - status if status < 0 else status
        except KeyboardInterrupt:
            process.send_signal(signal.SIGTERM)
            process.wait()
            raise
