"""Begins, opens and checks the run folder of a configuration."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from roomscout.agent.builders import layouts_of, part_of, questions_of
from roomscout.agent.config import (
    ConfigError,
    ControlSettings,
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
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.data.parts import Part
from roomscout.data.questions import Question, fingerprint
from roomscout.data.scans import ScanNotFound, scan_of, scan_sha256
from roomscout.data.sources import Source
from roomscout.data.video_protocol import VideoProtocol
from roomscout.models.adapters import adapter_sha256
from roomscout.models.engines import checkpoint_of
from roomscout.models.transformers.source import hub_revision
from roomscout.rendering.camera import Intrinsics
from roomscout.runs import NEWEST, RunError
from roomscout.runs.baselines import BLIND, READING
from roomscout.runs.journal import pending_samples
from roomscout.runs.movers import GIVEN_PATH, MOVERS
from roomscout.runs.prices import Price
from roomscout.runs.reader import RunReader, find_part, find_run
from roomscout.runs.records import PartRecord
from roomscout.runs.settings import ANSWER_SETTINGS, RECORD_SETTINGS, SETTINGS
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
    conditions = protocol(config, prompts, own_rows=source is None or source.own)
    revision = model_revision(config.model, prompts or config.video)
    run.begin(config.as_json, questions, whole, conditions, part, record, guesses, source, revision, price)
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

    Reads the source again for a run of an earlier version, which has no copy, and if the source was `named` again for
    this resumption or is another file. Raises RunError if that has other questions.
    """
    reader = RunReader(folder)
    find_benchmark(asked.benchmark)  # executes code, which reading a run alone does not
    again = named or asked.questions != with_absolute_paths(saved_config(folder)).questions.questions
    whole = reader.questions if reader.has_questions and not again else questions_of(what, asked)
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


def protocol(config: RunConfig, prompts: Prompts | None, own_rows: bool = True) -> str:
    """The conditions of the answers in one line. Scores are comparable only between equal protocols.

    `prompts` are those of a model, None for a policy without one, of which its prompts and tokens are not said.
    `own_rows` says that the questions are the benchmark's own, and not others in its types.
    """
    view, views, model, benchmark = config.view, config.views, config.model, config.questions.benchmark
    scoring = f"{'official ' if benchmark == DEFAULT and own_rows else ''}{find_benchmark(benchmark).title} scoring"
    if config.video is not None:
        return f"{_on_video(config, config.video)}{_replies(config)}, official prompt and reading, {scoring}"
    width, height = view.image_size
    camera = Intrinsics(width, height, view.focal)
    in_view = f" ({camera.horizontal_fov_deg:.0f} x {camera.vertical_fov_deg:.0f} degrees in view)"
    more = "".join(f"with {name}, " for name in views.see[1:])
    up = "" if views.up_axis == "auto" else f", {views.up_axis} up"
    up += "" if views.scale == 1 else f", scans scaled by {views.scale:g}"
    blind = BLIND if views.renderer == "blind" else ""
    told, reading = "", ""
    which = "all objects" if config.controls.boxes == "boxes" else "the objects in view"
    boxes = f", boxes of {which} given as text" if config.controls.boxes else ""
    replies = "" if model.temperature == 0 else f", {_decoding(model)}"
    if prompts:
        told, reading = f", {_told(view.tell)} told", READING
        replies = f"{'' if model.policy == 'human' else _replies(config)}, prompts {prompts.sha256[:12]}"
    return (
        f"{blind}{_camera(config.controls)}{_actions(config.controls)}{told}{boxes}, "
        f"{config.most_moves} moves, "
        f"{_counted(config.controls)}{width}x{height} px, {more}focal {view.focal:g} px{in_view}, "
        f"eye {views.camera_height:g} m (lower in low rooms), pitch {views.camera_pitch:g} degrees, "
        f"first view by {views.first_view}{up}{replies}, "
        f"{scoring}{reading}"
    )


def _on_video(config: RunConfig, video: VideoProtocol) -> str:
    """Which frames are shown, and in which words, for a protocol."""
    width, height = config.view.image_size
    words = hashlib.sha256(json.dumps(asdict(video), sort_keys=True).encode()).hexdigest()
    shown = "as one video" if config.controls.video_input == "native" else "in one message"
    frames = f"{config.frames} frame{'' if config.frames == 1 else 's'}"
    return f"video protocol, {frames} of at most {width * height} pixels {shown}, words {words[:12]}"


def _decoding(model: ModelSettings) -> str:
    """How tokens are chosen, for a protocol."""
    greedy = "greedy" if model.engine != "openai" else "temperature 0 unless the server refuses it"
    return greedy if model.temperature == 0 else f"temperature {model.temperature:g}"


def _replies(config: RunConfig) -> str:
    """How a model makes its replies, for a protocol."""
    model, server = config.model, config.server
    engine = "" if model.engine == "transformers" else f"engine {model.engine}"
    where = ", ".join(filter(None, [engine, "" if model.engine == "openai" else model.dtype, model.quantize]))
    constrained = ", constrained to a JSON schema" if model.engine == "openai" else ", constrained"
    asked = "" if server.system_role else ", system prompt in the first user message"
    asked += f", further parameters {server.extra_body}" if server.extra_body else ""
    revision = f", revision {model.revision}" if model.revision else ""
    adapter = f", adapter {model.adapter.name} {adapter_sha256(model.adapter)[:12]}" if model.adapter else ""
    return (
        f", {where}{revision}{adapter}, {_decoding(model)}, replies of {config.view.max_new_tokens} tokens at most"
        f"{constrained if model.constrained else ''}{asked}"
    )


def _actions(controls: ControlSettings) -> str:
    """The action space for a protocol; empty for the default one."""
    name = controls.actions.rpartition("/")[2]
    return "" if name == ControlSettings.actions else f" by {name} actions"


def _camera(controls: ControlSettings) -> str:
    """Who moves the camera, for a protocol."""
    if controls.moves_of is not None:
        return f"camera moved in the scan as in run {controls.moves_of.name}"
    moved = GIVEN_PATH if "path" in controls.given else MOVERS.get(controls.moves)
    words = moved.words if moved else "free camera{turning} in the scan"
    return words.format(turning="" if controls.translation else " that only turns")


def _told(tell: Sequence[str]) -> str:
    """What the prompts reveal, for a protocol; without a word of the turns if they do, as usual."""
    words = {"pose": "its pose", "extent": "the room's extent"}
    told = " and ".join(words[name] for name in tell if name in words) or "no pose"
    return told if "turns" in tell else f"{told} and no turns"


def _counted(controls: ControlSettings) -> str:
    """How views are presented and which answers count, for a protocol; empty as usual."""
    parts = ["all views in one message"] if controls.at_once else []
    parts += [f"the first view and the last {controls.keep_views} shown"] if controls.keep_views else []
    parts += [f"no answer before turn {controls.min_turns}"] if controls.min_turns else []
    return "".join(f"{part}, " for part in parts)
