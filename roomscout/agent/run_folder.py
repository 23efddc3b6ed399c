"""Begins, opens and checks the run folder of a configuration."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from roomscout.agent.builders import layouts_of, part_of, questions_of
from roomscout.agent.config import (
    ConfigError,
    ModelSettings,
    OutputSettings,
    QuestionSettings,
    RunConfig,
    WhatToRun,
    config_from_dict,
)
from roomscout.agent.policies.prompts import Prompts, explorer_prompts, prompts_record, recorded_prompts
from roomscout.agent.resuming import (
    as_begun,
    resume_command,
    with_absolute_paths,
)
from roomscout.base.wording import named
from roomscout.data.benchmarks import find_benchmark
from roomscout.data.parts import Part
from roomscout.data.questions import Question, fingerprint
from roomscout.data.scans import ScanNotFound, scan_of, scan_sha256
from roomscout.data.sources import Source
from roomscout.data.video_protocol import VideoProtocol
from roomscout.models.adapters import adapter_sha256
from roomscout.models.engines import checkpoint_of
from roomscout.models.transformers.source import hub_revision
from roomscout.runs import NEWEST, RunError
from roomscout.runs.journal import pending_samples
from roomscout.runs.prices import Price
from roomscout.runs.reader import RunReader, find_part, find_run
from roomscout.runs.records import PartRecord
from roomscout.runs.settings import ANSWER_SETTINGS, RECORD_SETTINGS, SETTINGS, Role, names_of
from roomscout.runs.writer import RunWriter, named_folder, new_run_folder
from roomscout.scoring.baselines import Guesses


def begin_folder(
    config: RunConfig,
    questions: Sequence[Question],
    whole: Sequence[Question] | None = None,
    prompts: Prompts | None = None,
    guesses: Guesses | None = None,
    source: Source | None = None,
    price: Price | None = None,
) -> RunWriter:
    """Create a folder below --log-root with the questions and run.json, which has the resolved configuration.

    `whole` are the questions of all parts, by default `questions`. `prompts` are those that a model reads, `guesses`
    the answers of the most-frequent-answer baseline, `source` says whose questions they are, `price` is that of the
    model's tokens. Raises RunError.
    """
    whole = questions if whole is None else whole
    part, single = part_record(config.cluster.shard, whole), config.what_to_run.ply is not None
    numbers = (part.number, part.of) if part else None
    folder = new_run_folder(config.output.log_root, not single, numbers, config.output.name)
    run = RunWriter(folder, resume_command(folder, {}))
    record = prompts_record(prompts) if prompts else None
    scoring = {name: config.as_json[name] for name in names_of(Role.SCORING)}
    conditions = conditions_of(config, prompts), answerer_of(config), scoring
    revision = model_revision(config.model, prompts or config.video)
    run.begin(config.as_json, questions, whole, *conditions, part, record, guesses, source, revision, price)
    return run


def model_revision(model: ModelSettings, prompts: Prompts | VideoProtocol | None) -> str | None:
    """The commit of the checkpoint, if a model answers, which reads `prompts`, that this machine loads from the hub."""
    there = prompts and model.engine != "openai"
    return hub_revision(checkpoint_of(model.model, model.revision)) if there else None


def require_new_name(output: OutputSettings, shard: str | None) -> None:
    """Raise RunError if --name is that of an existing run, before a model is loaded."""
    if output.name is not None:
        part = Part.parse(shard) if shard is not None else None
        named_folder(output.log_root, output.name, (part.number, part.of) if part else None)


def part_record(shard: str | None, whole: Sequence[Question]) -> PartRecord | None:
    """The part of the `whole` questions that --shard selects, for run.json; None without --shard."""
    if shard is None:
        return None
    part = Part.parse(shard)
    settings = tuple(name for name in (*ANSWER_SETTINGS, *RECORD_SETTINGS) if name != "shard")
    return PartRecord(part.number, part.of, len(whole), fingerprint(whole), settings)


def run_to_resume(what: WhatToRun, output: OutputSettings, shard: str | None) -> Path | None:
    """The folder that --continue names; None if --batch should begin a part that has no run yet.

    Raises RunError if there is nothing to resume.
    """
    assert what.continue_from is not None
    if shard is None or what.continue_from != NEWEST:
        return find_run(what.continue_from, output.log_root, batched_only=what.batch)
    part = Part.parse(shard)
    folder = find_part(output.log_root, part.number, part.of, output.name)
    if folder is None and not what.batch:
        raise RunError(
            f"{named('resume')}: no run of {named(shard=part)} below {output.log_root}; begin it with {named('batch')}"
        )
    return folder


def config_to_resume(folder: Path, config: RunConfig) -> RunConfig:
    """`config` with each "auto" as resolved when the run in `folder` began.

    Raises RunError, or ConfigError if the model, the policy or other settings would change answers.
    """
    saved = saved_config(folder)
    begun, wanted = saved.model.model, with_absolute_paths(config).model.model
    if begun != wanted:
        raise ConfigError(f"{folder} was begun with {begun}, not {wanted}: resume it with {begun}")
    return as_begun(saved, config)


def questions_to_resume(
    folder: Path, what: WhatToRun, asked: QuestionSettings, shard: str | None, named: bool = False
) -> Sequence[Question]:
    """All questions of the run in `folder`: its own copy, so that their source may be gone or have changed.

    Reads the source again if it was `named` again for this resumption or is another file. Raises RunError if that has
    other questions.
    """
    reader = RunReader(folder)
    find_benchmark(asked.benchmark)  # executes code, which reading a run alone does not
    again = named or asked.questions != with_absolute_paths(saved_config(folder)).questions.questions
    whole = questions_of(what, asked) if again else reader.questions
    reader.require_questions(part_of(whole, shard), whole)
    return whole


def require_same_scans(
    run: RunWriter,
    questions: Sequence[Question],
    whole: Sequence[Question],
    asked: QuestionSettings,
    scan_root: Path,
    ply: Path | None,
) -> None:
    """Raise RunError if a pending question would use another scan than the run has recorded for its scene.

    The folder numbers questions by their position in `whole`, of which `questions` may be a part. All are about the
    scan `ply`, if that is given.

    Does not check scenes that the run has not begun or recorded without a fingerprint. Does not check missing scans
    either: their questions fail.
    """
    pending = {question.scene for question in questions if pending_samples(run, question.id, asked.samples)}
    reader, checked, layouts = RunReader(run.folder), set(), layouts_of(asked.benchmark)
    for episode in reader.begun:
        question = whole[episode.number - 1]
        scene = question.scene
        if scene not in pending or scene in checked or (recorded := reader.scan(episode)) is None:
            continue
        checked.add(scene)
        try:
            path = ply or scan_of(question, scan_root, layouts)
            same = scan_sha256(path) == recorded.sha256
        except (ScanNotFound, OSError):
            continue
        if not same:
            if recorded.file == str(path):
                raise RunError(f"{path} has changed since the run began: restore it, or start a new run")
            raise RunError(
                f"{run.folder} has begun {question.scene_name} with the scan {recorded.file}, and {path} is a "
                "different scan: resume with the former, or start a new run"
            )


def saved_config(folder: Path) -> RunConfig:
    """The configuration that a run was begun with, without settings of other versions that it left unset.

    Raises RunError or ConfigError if run.json is missing or damaged.
    """
    facts = RunReader(folder).facts
    known = {name: value for name, value in facts.config.items() if name in SETTINGS or value is not None}
    return config_from_dict({**known, "tell": facts.setting("tell")}, str(folder / "run.json"))


def saved_prompts(folder: Path) -> Prompts:
    """The prompts of the run in a folder, also of a run that began before prompts were recorded; raises RunError."""
    record = RunReader(folder).facts.prompts
    try:
        return recorded_prompts(record) if record else explorer_prompts()
    except (ValueError, KeyError, TypeError) as error:
        raise RunError(f"{folder / 'run.json'}: its prompts are damaged ({error}); start a new run") from None


def conditions_of(config: RunConfig, prompts: Prompts | None) -> dict[str, Any]:
    """The settings under which a run answers, as resolved, with the words that a model reads and code by their hash.

    `prompts` are those of a model in a scan, None for a policy without one.
    """
    values = config.as_json
    found = {name: values[name] for name in sorted(names_of(Role.ANSWER))} | {"prompts": prompts and prompts.sha256}
    if config.video is not None:
        found["words"] = hashlib.sha256(json.dumps(asdict(config.video), sort_keys=True).encode()).hexdigest()
    if code := code_sha256(config.controls.actions):
        found["actions_sha256"] = code
    return found


def answerer_of(config: RunConfig) -> dict[str, Any]:
    """The settings of what answers, with the weights of an adapter and the code of a policy by their hash."""
    model, values = config.model, config.as_json
    found = {name: values[name] for name in sorted(names_of(Role.ANSWERER))}
    if model.adapter is not None:
        found["adapter_sha256"] = adapter_sha256(model.adapter)
    if model.policy is not None and (code := code_sha256(model.policy)):
        found["policy_sha256"] = code
    return found


def code_sha256(name: str) -> str | None:
    """The hash of the file that `path/to/file.py:NAME` or `module:NAME` names; None for other names."""
    source, _, _ = name.rpartition(":")
    if not source:
        return None
    spec = None if source.endswith(".py") else find_spec(source)
    path = Path(source if spec is None or spec.origin is None else spec.origin)
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
