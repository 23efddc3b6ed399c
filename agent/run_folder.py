"""Begins, opens and checks the run folder of a configuration."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from agent.builders import benchmark_of, layouts_of, part_of, questions_of
from agent.config import (
    ConfigError,
    RunConfig,
    answer_settings,
    as_begun,
    changed_settings,
    config_from_dict,
    config_to_dict,
    located,
    resume_command,
)
from agent.parts import Part
from agent.policies.prompts import Prompts, explorer_prompts, prompts_record, recorded_prompts
from data.benchmarks import DEFAULT
from data.questions import Question, fingerprint
from data.scans import ScanNotFound, find_scan, scan_sha256
from runs import RunError
from runs.reader import RunReader, find_part, find_run
from runs.records import PartRecord
from runs.writer import RunWriter, new_run_folder


def begin_folder(
    config: RunConfig,
    questions: Sequence[Question],
    whole: Sequence[Question] | None = None,
    prompts: Prompts | None = None,
) -> RunWriter:
    """Create a folder below `config.log_root` with the questions and run.json, which has the view settings as resolved.

    `whole` are the questions of all parts, by default `questions`. `prompts` are those that a model reads. Raises
    RunError.
    """
    whole = questions if whole is None else whole
    config, part = replace(config, **asdict(config.view)), part_record(config, whole)
    folder = new_run_folder(config.log_root, config.ply is None, (part.number, part.of) if part else None)
    run = RunWriter(folder, resume_command(folder, config, config))
    record = prompts_record(prompts) if prompts else None
    run.begin(config_to_dict(config), questions, whole, protocol(config, prompts), part, record)
    return run


def part_record(config: RunConfig, whole: Sequence[Question]) -> PartRecord | None:
    """The part of the `whole` questions that --shard selects, for run.json; None without --shard."""
    if config.shard is None:
        return None
    part = Part.parse(config.shard)
    settings = tuple(name for name in answer_settings() if name != "shard")
    return PartRecord(part.number, part.of, len(whole), fingerprint(whole), settings)


def run_to_resume(config: RunConfig) -> Path | None:
    """The folder that --continue names; None if --batch should begin a part that has no run yet.

    Raises RunError if there is nothing to resume.
    """
    assert config.continue_from is not None
    if config.shard is None or config.continue_from != "recent":
        return find_run(config.continue_from, config.log_root, batched_only=config.batch)
    part = Part.parse(config.shard)
    folder = find_part(config.log_root, part.number, part.of)
    if folder is None and not config.batch:
        raise RunError(f"--continue recent: no run of --shard {part} below {config.log_root}; begin it with --batch")
    return folder


def open_folder(folder: Path, config: RunConfig) -> RunWriter:
    """Open the folder of an earlier run to resume it with `config`; raises RunError."""
    return RunWriter(folder, resume_command(folder, saved_config(folder), config))


def config_to_resume(folder: Path, config: RunConfig) -> RunConfig:
    """`config` with each "auto" as resolved when the run in `folder` began.

    Raises RunError, or ConfigError if the model, the policy or other settings would change answers.
    """
    begun, wanted = saved_config(folder), located(config)
    if begun.model != wanted.model:
        raise ConfigError(f"{folder} was begun with {begun.model}, not {wanted.model}: resume it with {begun.model}")
    return as_begun(begun, wanted)


def questions_to_resume(folder: Path, config: RunConfig, named: bool = False) -> Sequence[Question]:
    """All questions of the run in `folder`: its own copy, so that their source may be gone or have changed.

    Reads the source again for a run of an earlier version, which has no copy, and if the source was `named` again for
    this resumption or is another file. Raises RunError if that has other questions.
    """
    reader, again = RunReader(folder), named or config.questions != located(saved_config(folder)).questions
    whole = reader.questions if reader.has_questions and not again else questions_of(config)
    reader.require_questions(part_of(whole, config), whole)
    return whole


def require_same_scans(
    run: RunWriter, questions: Sequence[Question], whole: Sequence[Question], config: RunConfig
) -> None:
    """Raise RunError if a pending question would use another scan than the run has recorded for its scene.

    The folder numbers questions by their position in `whole`, of which `questions` may be a part.

    Does not check scenes that the run has not begun or recorded without a fingerprint. Does not check missing scans
    either: their questions fail.
    """
    pending = {question.scene: question for question in questions if not run.is_done(question.id)}
    reader, checked = RunReader(run.folder), set()
    for number in reader.begun:
        question = whole[number - 1]
        scene = question.scene
        if scene not in pending or scene in checked or (recorded := reader.scan(number)) is None:
            continue
        checked.add(scene)
        try:
            path = config.ply or find_scan(config.scan_root, *scene, layouts_of(config))
            same = scan_sha256(path) == recorded.sha256
        except (ScanNotFound, OSError):
            continue
        if not same:
            raise RunError(
                f"{run.folder} has begun {question.scene_name} with the scan {recorded.file}, and {path} is a "
                "different scan: resume with the former, or start a new run"
            )


def note_resumption(run: RunWriter, config: RunConfig) -> None:
    """Record that the run is resumed, and which settings differ from the saved ones."""
    run.note_resumption(changed_settings(saved_config(run.folder), config))


def saved_config(folder: Path) -> RunConfig:
    """The configuration that a run was begun with; raises RunError or ConfigError if run.json is missing or damaged."""
    return config_from_dict(RunReader(folder).facts.config, str(folder / "run.json"))


def saved_prompts(folder: Path) -> Prompts:
    """The prompts of the run in a folder, also of a run that began before prompts were recorded; raises RunError."""
    record = RunReader(folder).facts.prompts
    try:
        return recorded_prompts(record) if record else explorer_prompts()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'run.json'}: its prompts are damaged ({error}); start a new run") from None


def protocol(config: RunConfig, prompts: Prompts | None) -> str:
    """The conditions of the answers in one line. Scores are comparable only between equal protocols."""
    view = config.view
    width, height = view.image_size
    up = "" if config.up_axis == "auto" else f", {config.up_axis} up"
    blind = "BLIND, every view grey: " if config.renderer == "blind" else ""
    engine = "" if config.engine == "transformers" else f"engine {config.engine}"
    where = ", ".join(filter(None, [engine, "" if config.engine == "openai" else config.dtype]))
    constrained = ", constrained to a JSON schema" if config.engine == "openai" else ", constrained"
    greedy = "greedy" if config.engine != "openai" else "temperature 0 unless the server refuses it"
    decoding = greedy if config.temperature == 0 else f"temperature {config.temperature:g}"
    words = f", prompts {prompts.sha256[:12]}" if prompts else ""
    return (
        f"{blind}free camera in the scan, its pose and the room's extent told, {config.steps} moves, {width}x{height} "
        f"px, focal {view.focal:g} px, eye {config.camera_height:g} m (lower in low rooms), pitch "
        f"{config.camera_pitch:g} degrees, first view by {config.first_view}{up}, {where}, {decoding}, replies "
        f"of {view.max_new_tokens} tokens at most{constrained if config.constrained else ''}{words}, "
        f"{'official ' if config.benchmark == DEFAULT else ''}{benchmark_of(config).title} scoring"
    )
