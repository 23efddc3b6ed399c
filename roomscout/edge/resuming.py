"""Resumes a run with settings that leave its answers unchanged."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from roomscout.agent.policies.prompts import Prompts, validated_prompts
from roomscout.base.errors import ConfigError
from roomscout.base.wording import flag
from roomscout.data.benchmark import Benchmark
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.parts import Part, cut
from roomscout.data.questions import Question, questions_asked
from roomscout.edge.declaring import Role
from roomscout.edge.flags import Given
from roomscout.edge.reading import changed, located, read_settings
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import ANSWER_SETTINGS, DEFAULTS, SETTINGS, Settings, names_of
from roomscout.edge.types import CHECKPOINT
from roomscout.runs import NEWEST, RunError
from roomscout.runs.reader import RunReader, find_part, find_run


def completed(given: Given) -> tuple[Settings, Path | None]:
    """The settings that a command line gives, also over those of the run that it resumes, and that run's folder. Raises
    ConfigError naming the flags that would change answers, RunError if there is nothing to resume."""
    settings = read_settings(given.settings)
    settings = located(settings)
    if settings.continue_from is None:
        return settings, None
    folder = _folder_to_resume(settings.continue_from, settings.log_root, settings.shard, settings.name, settings.batch)
    if folder is None:
        return changed(settings, continue_from=None, retry_failed=False), None
    saved = saved_settings(folder)
    if saved.shard is None and RunReader(folder).facts.part is not None:
        raise RunError(f"{folder} has what one worker answered of the run {folder.parents[1]}: resume that")
    now = {name: value for name, value in given.settings.items() if name not in ("batch", "demo")}
    if (name := now.pop("name", None)) not in (None, saved.name):
        raise ConfigError(f"--name {name} names a new run: leave it out to resume one")
    settings = as_begun(saved, changed(saved, **now))
    if "questions" in now:  # refuses a file that has changed
        benchmark = find_benchmark(settings.benchmark)
        questions_to_resume(folder, settings.questions, settings.shard, benchmark, named=True)
    return settings, folder


def _folder_to_resume(wanted: str, root: Path, shard: str | None, name: str | None, batch: bool) -> Path | None:
    """The folder that --continue names; None if --batch should begin a part that has no run yet."""
    if shard is None or wanted != NEWEST:
        return find_run(wanted, root, batched_only=batch)
    part = Part.parse(shard)
    folder = find_part(root, part.number, part.of, name)
    if folder is None and not batch:
        raise RunError(f"--continue: no run of --shard {part} below {root}; begin it with --batch")
    return folder


def saved_settings(folder: Path) -> Settings:
    """The settings with which a run was begun; raises RunError or ConfigError if run.json is missing or damaged."""
    values = RunReader(folder).facts.config
    file = folder / "run.json"
    if lacking := SETTINGS.keys() - values.keys():
        raise RunError(f"{file} is damaged: it lacks {', '.join(map(flag, sorted(lacking)))}; start a new run")
    saved = read_settings(values, str(file))
    return changed(saved, **{name: DEFAULTS[name] for name in names_of(Role.DISPLAY)})


def as_begun(begun: Settings, wanted: Settings) -> Settings:
    """`wanted` with absolute paths, and with each "auto" as resolved when the run began. Raises ConfigError naming the
    flags that would change answers or records."""
    if begun.model != wanted.model:
        raise ConfigError(f"the run was begun with {begun.model}, not {wanted.model}: resume it with {begun.model}")
    resolved = [name for name in SETTINGS if SETTINGS[name].resolved and getattr(wanted, name) in ("auto", CHECKPOINT)]
    wanted = changed(located(wanted), **{name: getattr(begun, name) for name in resolved})
    begun = located(begun)
    for names, what in ((ANSWER_SETTINGS, "answers"), (names_of(Role.RECORD), "the records")):
        if differing := [
            name for name in names if _compared(name, getattr(begun, name)) != _compared(name, getattr(wanted, name))
        ]:
            flags = ", ".join(map(flag, differing))
            raise ConfigError(f"{flags} would change {what} of this run: leave out to resume it, or start a new run")
    return wanted


def _compared(name: str, value: Any) -> Any:
    """A setting's value; filters compare as sets, since questions are asked in the order of their source."""
    return frozenset(value) if name in FILTERS and isinstance(value, tuple) else value


def changed_since(begun: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, as JSON values, that differ from those with which a run began, but not what one call does or
    prints."""
    kept = {*names_of(Role.DISPLAY, Role.CALL)}
    return {name: value for name, value in now.items() if value != begun[name] and name not in kept}


def questions_to_resume(
    folder: Path, file: Path | None, shard: str | None, benchmark: Benchmark, named: bool = False
) -> Sequence[Question]:
    """All questions of the run in `folder`, from its own copy, or from their source if its `file` was `named` again or
    is another one; raises RunError if that has other questions."""
    reader = RunReader(folder)
    saved = saved_settings(folder)
    again = named or file != saved.questions
    whole = questions_asked(vars(saved) | {"questions": file}, benchmark).questions if again else reader.questions
    reader.require_questions(part_of(whole, shard), whole)
    return whole


def saved_prompts(folder: Path) -> Prompts:
    """The prompts of the run in a folder; raises RunError."""
    record = RunReader(folder).facts.prompts
    try:
        return validated_prompts(record.templates) if record else Prompts()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'run.json'}: its prompts are damaged ({error}); start a new run") from None


def part_of(whole: Sequence[Question], shard: str | None) -> Sequence[Question]:
    """The questions of `whole` to ask: all, or those of --shard; raises ConfigError if there are too few scenes."""
    if shard is None:
        return whole
    part = Part.parse(shard)
    try:
        return cut(whole, part.of)[part.number - 1]
    except ValueError as error:
        raise ConfigError(f"--shard {part}: {error}") from None
