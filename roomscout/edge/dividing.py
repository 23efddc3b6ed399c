"""A run that workers answer in parts (--ray, --gpus): what they are told, and who they are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from roomscout.agent.running import make_scans, report_scans
from roomscout.agent.spec import QuestionSpec, RecordSpec, RunSpec, WorldSpec
from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.data.parts import Part
from roomscout.data.questions import fingerprint
from roomscout.edge.draft import OF_PART, Draft
from roomscout.edge.planning import plan
from roomscout.edge.reading import read_settings
from roomscout.edge.resuming import changed_since
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import Settings, flags_giving
from roomscout.runs.reader import RunReader
from roomscout.runs.records import PartRecord


@dataclass(frozen=True)
class DividedRun:
    """A run that workers answer in parts, with its settings as JSON values, those that are others for a worker, the
    GPUs of each, and what `changed` since the run in `folder` began."""

    questions: QuestionSpec
    world: WorldSpec
    folder: Path | None
    settings: Mapping[str, Any]
    of_worker: Mapping[str, Any]
    changed: Mapping[str, Any]
    gpus_each: int


def divide(settings: Settings, folder: Path | None) -> DividedRun:
    """The run to divide among workers, or the one in `folder` to resume, checked without a GPU as by `plan`."""
    if settings.ray:
        require("--ray", "ray", error=ConfigError)
    draft = Draft.of(settings, folder=folder)
    settings = draft.settings
    questions = draft.questions
    world = draft.resolved(loads=False).world
    if world.makes_scans:
        make_scans(questions, world)  # which the workers share
    else:
        report_scans(questions, world, required=folder is None)
    values = settings.as_json
    of_worker = dict[str, Any]()
    if settings.on_gpus and settings.device == "auto":
        of_worker = {"device": "cuda"}  # it fails rather than use the CPU unasked
    elif settings.on_gpus and settings.device == "cpu" and settings.loads_weights:
        of_worker = {"memory_fraction": settings.memory_fraction / len(settings.gpus)}  # they share the memory
    changes = changed_since(RunReader(folder).facts.config, values) if folder is not None else {}
    gpus_each = gpus_of_worker(settings.tensor_parallel_size, settings.device, settings.loads_weights)
    return DividedRun(questions, world, folder, values, of_worker, changes, gpus_each)


def gpus_of_worker(split: int | Literal["auto"], device: str, loads_weights: bool) -> int:
    """The GPUs that a worker takes on a cluster that has some, if vLLM splits its model over `split`."""
    if device == "cpu" or not loads_weights:
        return 0
    return 1 if split == "auto" else split  # refused with "auto"


def as_asked(run: DividedRun, record: RecordSpec) -> RecordSpec:
    """What run.json says of a run by a worker's `record`, with the settings that were asked for where a worker's are
    others."""
    values = {**record.settings, **{name: run.settings[name] for name in run.of_worker}}
    return replace(record, settings=values, flags=flags_giving(values))


def values_of_part(run: DividedRun, part: str, root: Path, questions: Path) -> dict[str, Any]:
    """The settings for a part, whose folder is below `root`, and which reads this file of questions."""
    usual = Settings().as_json
    here = {name: usual[name] for name in ("name", "prices", "ray", "replicas", "gpus", *FILTERS)}
    resumed = run.settings["continue_from"] if run.settings["retry_failed"] else None
    return {
        **run.settings, **run.of_worker, **here,
        "log_root": str(root), "shard": part, "questions": str(questions), "continue_from": resumed,
    }  # fmt: skip


def plan_part(values: Mapping[str, Any], folder: Path | None) -> RunSpec:
    """The run of a worker with these settings, as JSON values, to whose part any question may come; raises the errors
    of `plan`."""
    spec = plan(read_settings({**values, "shard": None}), folder=folder)
    if values["shard"] is None:
        return spec
    part = Part.parse(values["shard"])
    whole = spec.questions.asked.questions
    record = PartRecord(part.number, part.of, len(whole), fingerprint(whole), OF_PART)
    return replace(spec, record=replace(spec.record, part=record))
