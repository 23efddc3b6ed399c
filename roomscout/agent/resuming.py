"""Resumes a run with settings that leave its answers unchanged."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roomscout import SCRIPT
from roomscout.agent.config import (
    ConfigError,
    RenderSettings,
    RunConfig,
)
from roomscout.base.text import on_disk
from roomscout.base.wording import named
from roomscout.data.benchmarks import benchmark_names
from roomscout.models import EMBEDDED
from roomscout.runs.settings import ANSWER_SETTINGS, DISPLAY_SETTINGS, FILTERS, RECORD_SETTINGS, SETTINGS, flags_of

COMMAND = [str(SCRIPT)] if SCRIPT.exists() else ["-m", "roomscout"]


def with_absolute_paths(config: RunConfig) -> RunConfig:
    """The configuration with absolute paths and `~` expanded, so that the run can be resumed from any folder."""
    what, asked, model = config.what_to_run, config.questions, config.model
    is_name = model.policy is not None or model.model == EMBEDDED or model.model.startswith("scripted:")
    folder = _absolute(Path(model.model))
    return config.having(
        ply=what.ply and _absolute(what.ply),
        benchmark=_located_benchmark(asked.benchmark),
        questions=asked.questions and _absolute(asked.questions),
        scan_root=scan_root_of(config.views.scan_root, asked.questions),
        model=str(folder) if folder.is_dir() and not is_name and model.engine != "openai" else model.model,
        prompts=model.prompts and _absolute(model.prompts),
        adapter=model.adapter and _absolute(model.adapter),
        moves_of=config.controls.moves_of and _absolute(config.controls.moves_of),
        videos=config.controls.videos and _absolute(config.controls.videos),
        frames_of=config.controls.frames_of and _absolute(config.controls.frames_of),
        actions=_located_file(config.controls.actions),
        policy=model.policy and _located_file(model.policy),
        vllm_python=config.vllm.vllm_python and _absolute(config.vllm.vllm_python),
        log_root=_absolute(config.output.log_root),
        prices=config.output.prices and _absolute(config.output.prices),
    )


def scan_root_of(scan_root: Path, questions: Path | None) -> Path:
    """The absolute scan root: the folder of the question file if the default one is not there."""
    root = _absolute(scan_root)
    if questions is not None and scan_root == RenderSettings.scan_root and not root.is_dir():
        return _absolute(questions).parent
    return root


def _located_benchmark(named: str) -> str:
    """A benchmark's folder or file with an absolute path; the name of one that ships as it is."""
    is_folder = named not in benchmark_names() and on_disk(Path(named).expanduser()).is_dir()
    return str(_absolute(Path(named))) if is_folder else _located_file(named)


def _located_file(named: str) -> str:
    """`path/to/file.py:NAME` with an absolute path; any other name as it is."""
    source, _, name = named.rpartition(":")
    return f"{_absolute(Path(source))}:{name}" if source.endswith(".py") else named


def _absolute(path: Path) -> Path:
    return on_disk(path.expanduser().absolute())


def changed_settings(begun: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, as JSON values, that differ from those with which a run began, but not what is printed.

    An "auto" is what it was when the run began.
    """
    kept = {*DISPLAY_SETTINGS, *(name for name, value in now.items() if value == "auto" and SETTINGS[name].resolved)}
    return {name: value for name, value in now.items() if value != begun[name] and name not in kept}


def changed_flags(names: Sequence[str], before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The flags of those named settings that differ."""
    return [named(each) for each in names if _as_compared(each, before[each]) != _as_compared(each, now[each])]


def _as_compared(name: str, value: Any) -> Any:
    """A setting's value; filters compare as sets, since questions are asked in the order of their source."""
    return frozenset(value) if name in FILTERS and isinstance(value, tuple) else value


def as_begun(begun: RunConfig, wanted: RunConfig) -> RunConfig:
    """`wanted` with absolute paths, and with each "auto" as resolved when the run began.

    Raises ConfigError naming the flags that would change answers or records.
    """
    wanted = with_absolute_paths(wanted)
    autos = [name for name, value in wanted.settings.items() if value == "auto" and SETTINGS[name].resolved]
    wanted = wanted.having(**{name: begun.settings[name] for name in autos})
    before, now = with_absolute_paths(begun).settings, wanted.settings
    for names, what in ((ANSWER_SETTINGS, "answers"), (RECORD_SETTINGS, "the records")):
        if changed := changed_flags(names, before, now):
            fix = f"leave {'it' if len(changed) == 1 else 'them'} out to resume it, or start a new run"
            raise ConfigError(f"{', '.join(changed)} would change {what} of this run: {fix}")
    return wanted


def resume_command(folder: Path, changed: Mapping[str, Any]) -> str:
    """The command that resumes a run from any folder, with the `changed_settings` since it began."""
    is_console_command = Path(sys.argv[0]).name == "roomscout"
    words = ["roomscout", "resume"] if is_console_command else [sys.executable, *COMMAND, "--continue"]
    return shlex.join([*words, str(folder.resolve()), *flags_of(changed)])
