"""The run folder of a configuration: begun, opened again, and read back."""

from pathlib import Path

from agent.config import ConfigError, RunConfig, changed_settings, config_from_dict, config_to_dict, resume_command
from runs.reader import RunReader
from runs.writer import RunWriter, new_run_folder


def begin_folder(config: RunConfig, fingerprint: str, number_of_questions: int) -> RunWriter:
    """A new folder below `config.log_root` with its run.json; raises RunError."""
    folder = new_run_folder(config.log_root, batched=config.ply is None)
    run = RunWriter(folder, resume_command(folder, config, config))
    run.begin(config_to_dict(config), number_of_questions, fingerprint, protocol(config))
    return run


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
    engine = "" if config.engine == "transformers" else f"engine {config.engine}"
    where = ", ".join(filter(None, [engine, "" if config.engine == "openai" else config.dtype]))
    constrained = ", constrained to a JSON schema" if config.engine == "openai" else ", constrained"
    decoding = "greedy" if config.temperature == 0 else f"temperature {config.temperature:g}"
    return (
        f"{blind}free camera in the scan, its pose and the room's extent told, {config.steps} moves, {width}x{height} "
        f"px, focal {config.focal:g} px, eye {config.camera_height:g} m, pitch {config.camera_pitch:g} degrees, first "
        f"view by {config.first_view}{up}, {where}, {decoding}, replies of {config.max_new_tokens} tokens at "
        f"most{constrained if config.constrained else ''}, official VSI-Bench scoring"
    )
