"""The run folder of a configuration: begun, opened again, and read back."""

from collections.abc import Sequence
from pathlib import Path

from agent.config import (
    ConfigError,
    RunConfig,
    answer_settings,
    changed_settings,
    config_from_dict,
    config_to_dict,
    resume_command,
)
from agent.parts import Part
from data.questions import Question, fingerprint
from runs import RunError
from runs.reader import RunReader, find_part, find_run
from runs.records import PartRecord
from runs.writer import RunWriter, new_run_folder


def begin_folder(
    config: RunConfig, fingerprint: str, number_of_questions: int, part: PartRecord | None = None
) -> RunWriter:
    """A new folder below `config.log_root` with its run.json; `part` says which part of a whole it is, if it is one.
    Raises RunError."""
    folder = new_run_folder(config.log_root, config.ply is None, (part.number, part.of) if part else None)
    run = RunWriter(folder, resume_command(folder, config, config))
    run.begin(config_to_dict(config), number_of_questions, fingerprint, protocol(config), part)
    return run


def part_record(config: RunConfig, whole: Sequence[Question]) -> PartRecord | None:
    """Which part of the `whole` questions a configuration asks, for run.json; None where it asks all of them."""
    if config.shard is None:
        return None
    part = Part.parse(config.shard)
    settings = tuple(name for name in answer_settings() if name != "shard")
    return PartRecord(part.number, part.of, len(whole), fingerprint(whole), settings)


def run_to_resume(config: RunConfig) -> Path | None:
    """The folder that --continue names; None where --batch may begin a part of which there is no run yet. Raises
    RunError where there is nothing to resume."""
    assert config.continue_from is not None
    if config.shard is None or config.continue_from != "recent":
        return find_run(config.continue_from, config.log_root, batched_only=config.batch)
    part = Part.parse(config.shard)
    folder = find_part(config.log_root, part.number, part.of)
    if folder is None and not config.batch:
        raise RunError(f"--continue recent: no run of --shard {part} below {config.log_root}; begin it with --batch")
    return folder


def open_folder(folder: Path, config: RunConfig) -> RunWriter:
    """The folder of an earlier run, to resume it as `config` says.

    Raises RunError, and ConfigError for a run that another model or policy began.
    """
    begun = saved_config(folder)
    if begun.model != config.model:
        raise ConfigError(f"{folder} was begun with {begun.model}, not {config.model}: resume it with that")
    return RunWriter(folder, resume_command(folder, begun, config))


def note_resumption(run: RunWriter, config: RunConfig) -> None:
    """Record that the run is resumed, and which settings differ from its first ones."""
    run.note_resumption(changed_settings(saved_config(run.folder), config))


def saved_config(folder: Path) -> RunConfig:
    """The configuration that a run was begun with; raises RunError or ConfigError where run.json does not say."""
    return config_from_dict(RunReader(folder).facts.config, str(folder / "run.json"))


def protocol(config: RunConfig) -> str:
    """How the answers came about, in one line: what must be equal for two scores to be compared."""
    width, height = config.image_size
    up = "" if config.up_axis == "auto" else f", {config.up_axis} up"
    blind = "BLIND, every view grey: " if config.renderer == "blind" else ""
    decoding = "greedy" if config.temperature == 0 else f"temperature {config.temperature:g}"
    return (
        f"{blind}free camera in the scan, its pose and the room's extent told, {config.steps} moves, {width}x{height} "
        f"px, focal {config.focal:g} px, eye {config.camera_height:g} m, pitch {config.camera_pitch:g} degrees, first "
        f"view by {config.first_view}{up}, {config.dtype}, {decoding}, replies of {config.max_new_tokens} tokens at "
        f"most{', constrained' if config.constrained else ''}, official VSI-Bench scoring"
    )
