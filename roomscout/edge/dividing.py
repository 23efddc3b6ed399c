"""A run that workers answer in parts, on GPUs or a cluster: what they are told, and who they are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from roomscout.agent.spec import QuestionSpec, RecordSpec, RunSpec, WorldSpec
from roomscout.base.errors import ConfigError
from roomscout.base.extras import require
from roomscout.data.parts import Part
from roomscout.data.questions import fingerprint
from roomscout.data.scans import report_scans
from roomscout.edge.basis import basis_of
from roomscout.edge.plan import config_errors, plan
from roomscout.edge.record import OF_PART, resume_words
from roomscout.edge.request import NEW_RUN, Request
from roomscout.edge.resolve import resolve
from roomscout.edge.resuming import changed_since, saved_settings
from roomscout.edge.sections import FILTERS
from roomscout.edge.settings import Settings, flags_giving
from roomscout.edge.world import require_scans, world_of
from roomscout.runs.reader import RunReader
from roomscout.runs.records import PartRecord


@dataclass(frozen=True)
class DividedRun:
    """A run that workers answer in parts."""

    questions: QuestionSpec  # what is asked
    world: WorldSpec  # where the scans are; each worker chooses its renderer
    folder: Path | None  # the folder of a run to resume
    retry_failed: bool  # whether its failed questions are asked again
    settings: Mapping[str, Any]  # the settings as JSON values
    of_worker: Mapping[str, Any]  # those that are others for a worker
    changed: Mapping[str, Any]  # those that are others than when the run in `folder` began
    gpus_each: int  # the GPUs of each worker


def divide(settings: Settings, request: Request = NEW_RUN) -> DividedRun:
    """The run to divide among workers, or the one to resume, checked without a GPU as by `plan`."""
    if settings.ray:
        require("--ray", "ray", error=ConfigError)
    with config_errors():
        basis = basis_of(settings, None, request, loads=False)
        world = world_of(basis, chooses_renderer=False)
    if world.makes_scans:
        here = basis.questions.here
        basis.questions.benchmark.make(here)  # which the workers share
        report_scans(here, world.missing(here), "scan")
    else:
        require_scans(basis, world)
    settings = basis.settings
    values = settings.as_json
    of_worker = dict[str, Any]()
    if settings.on_gpus and settings.device == "auto":
        of_worker = {"device": "cuda"}  # it fails rather than use the CPU unasked
    elif settings.on_gpus and settings.device == "cpu" and settings.loads_weights:
        of_worker = {"memory_fraction": settings.memory_fraction / len(settings.gpus)}  # they share the memory
    folder = None if request.run is None else request.run.folder
    changes = {} if basis.facts is None else changed_since(basis.facts.config, values)
    gpus_each = gpus_of_worker(settings.tensor_parallel_size, settings.device, settings.loads_weights)
    return DividedRun(basis.questions, world, folder, request.retry_failed, values, of_worker, changes, gpus_each)


def gpus_of_worker(split: int | Literal["auto"], device: str, loads_weights: bool) -> int:
    """The GPUs that a worker takes on a cluster that has some, if vLLM splits its model over `split`."""
    if device == "cpu" or not loads_weights:
        return 0
    return 1 if split == "auto" else split  # refused with "auto"


def as_asked(run: DividedRun, record: RecordSpec) -> RecordSpec:
    """What run.json says of a run by a worker's `record`, with the settings that were asked for and not a worker's."""
    asked = record.asked | {name: run.settings[name] for name in run.of_worker}
    return replace(record, asked=asked, flags=flags_giving(asked), resume_words=resume_words())


def values_of_part(run: DividedRun, part: str, root: Path, questions: Path) -> dict[str, Any]:
    """The settings for a part, whose folder is below `root`, and which reads this file of questions."""
    usual = Settings().as_json
    undivided = {name: usual[name] for name in ("name", "prices", "ray", "replicas", "gpus", *FILTERS)}
    of_part = {"log_root": str(root), "shard": part, "questions": str(questions)}
    return {**run.settings, **run.of_worker, **undivided, **of_part}


def plan_part(values: Mapping[str, Any], folder: Path | None, retry_failed: bool = False) -> RunSpec:
    """The run of a worker with these settings, as JSON, to whose part any question may come; raises as `plan`."""
    run = None if folder is None else RunReader(folder)
    saved = None if run is None else saved_settings(run)
    spec = plan(resolve({**values, "shard": None}, saved), request=Request(run=run, retry_failed=retry_failed))
    if values["shard"] is None:
        return spec
    part = Part.parse(values["shard"])
    whole = spec.questions.asked.questions
    record = PartRecord(part.number, part.of, len(whole), fingerprint(whole), OF_PART)
    return replace(spec, record=replace(spec.record, part=record))
