"""Resumes a run with settings that leave its answers unchanged."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roomscout.agent.policies.prompts import Prompts, validated_prompts
from roomscout.base.errors import ConfigError, flag
from roomscout.data.parts import Part
from roomscout.edge.declaring import Role
from roomscout.edge.flags import Given
from roomscout.edge.request import NEW_RUN, Request
from roomscout.edge.resolve import absolute, read_saved, resolve
from roomscout.edge.settings import DEFAULTS, SETTINGS, VERB_WORDS, Settings, names_of
from roomscout.runs import NEWEST, RunError
from roomscout.runs.reader import RunReader, find_part, find_run


def folder_to_resume(
    wanted: str, root: Path, shard: str | None = None, name: str | None = None, batch: bool = False
) -> Path | None:
    """The folder of the run to resume: `wanted`, or the newest below `root`, also of a `shard` or of a `name`, and with
    `batch` of many questions; None if a part should begin that has no run yet. Raises RunError or ConfigError."""
    folder = find_run(wanted, root, batched_only=batch) if shard is None or wanted != NEWEST else None
    if folder is None:
        try:
            part = Part.parse(str(shard))
        except ValueError as error:
            raise ConfigError(f"--shard {error}") from None
        folder = find_part(root, part.number, part.of, name)
        if folder is None and batch:
            return None
        if folder is None:
            raise RunError(f"--continue: no run of --shard {part} below {root}; begin it with --batch")
    facts = RunReader(folder).facts
    if facts.config["shard"] is None and facts.part is not None:
        raise RunError(f"{folder} has what one worker answered of the run {folder.parents[1]}: resume that")
    if name not in (None, facts.name):
        raise ConfigError(f"--name {name} names a new run: leave it out to resume one")
    return folder


def saved_settings(run: RunReader) -> Settings:
    """The settings of a run, without those of what is printed; RunError or ConfigError if it is damaged."""
    values = dict(run.facts.config)
    file = run.folder / "run.json"
    lacking = SETTINGS.keys() - values.keys()
    if lacking:
        raise RunError(f"{file} is damaged: it lacks {', '.join(map(flag, sorted(lacking)))}; start a new run")
    usual = Settings().as_json
    values |= {name: usual[name] for name in names_of(Role.DISPLAY)}
    return read_saved({name: value for name, value in values.items() if name not in VERB_WORDS}, str(file))


def begun_or_resumed(
    given: Given, wanted: str | None, batch: bool = False, retry_failed: bool = False
) -> tuple[Settings, Request]:
    """The settings of a command line, and the run that it resumes, `wanted` by name or as the newest; or a new run if
    none is wanted, or a part that has none yet. Raises RunError or ConfigError, also for settings that would change
    answers."""
    changes = {name: value for name, value in given.settings.items() if name != "name"}
    folder = None
    if wanted is not None:
        root = absolute(Path(changes.get("log_root", DEFAULTS["log_root"])))
        folder = folder_to_resume(wanted, root, changes.get("shard"), given.settings.get("name"), batch)
    if folder is None:
        return resolve(given.settings, source=given.sources), NEW_RUN
    run = RunReader(folder)
    scan = run.facts.config["ply"]
    settings = resolve(changes, saved_settings(run), given.sources, scan is not None)
    ply = None if scan is None else Path(scan)
    return settings, Request(ply=ply, run=run, questions_named="questions" in changes, retry_failed=retry_failed)


def changed_since(begun: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, as JSON values, that differ from those with which a run began, but not what a call prints."""
    kept = {*names_of(Role.DISPLAY), *VERB_WORDS}
    return {name: value for name, value in now.items() if name not in kept and value != begun[name]}


def saved_prompts(run: RunReader) -> Prompts:
    """The prompts of a run; raises RunError."""
    record = run.facts.prompts
    try:
        return validated_prompts(record.templates) if record else Prompts()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{run.folder / 'run.json'}: its prompts are damaged ({error}); start a new run") from None
