"""`RunSpec`: all that a run needs to know, complete and checked, by part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout import UpAxis
from roomscout.agent.policies import Policy
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.state import Rules
from roomscout.data.benchmark import Benchmark
from roomscout.data.questions import Question, Selection
from roomscout.data.scans import Layouts
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.vllm import VllmOptions
from roomscout.runs.prices import Price
from roomscout.runs.records import PartRecord


@dataclass(frozen=True)
class QuestionSpec:
    """The questions of this part, `here`, of all that are `asked`; `is_one` says that it is one about a scan file."""

    asked: Selection
    here: Sequence[Question]
    samples: int
    benchmark: Benchmark
    is_one: bool

    @property
    def episodes(self) -> int:
        """The number of answers."""
        return len(self.here) * self.samples

    @property
    def pictures(self) -> int:
        """The most pictures of a question."""
        return max((len(each.images) for each in self.asked.questions), default=0)


@dataclass(frozen=True)
class WorldSpec:
    """Where the scans are, and how views of them are drawn, or with `films` frames of videos shown. `ply` is the
    scan of all questions, else they are below `scan_root` in these `layouts`; `renderer` None is the best that works
    here."""

    scan_root: Path
    ply: Path | None
    layouts: Layouts
    up_axis: UpAxis
    scale: float
    camera: CameraSettings
    renderer: str | None
    cuda_device: int | None
    films: FilmSettings | None
    makes_scans: bool


@dataclass(frozen=True)
class EngineSpec:
    """What decides: a `policy`, or the model of this `name` with the options of its engine."""

    name: str
    policy: Policy | None = None
    options: ModelOptions | None = None
    server: ServerOptions | None = None
    vllm: VllmOptions | None = None
    constrained: bool = False


@dataclass(frozen=True)
class ScheduleSpec:
    """Turns per question, and which questions take theirs together, as `Scheduler` takes them."""

    steps: int
    batch_size: int
    max_batched_turns: int
    refill: bool
    concurrency: int | None
    anytime: bool


@dataclass(frozen=True)
class RecordSpec:
    """What run.json says of the run, and where its folder goes; `folder` is that of a run to resume. Settings and
    conditions are JSON values as in `RunFacts`, with the renderer that was asked for; `resume_flags` give those that
    `changed`, by name, since it began. `prompts` are those that a model reads."""

    folder: Path | None
    log_root: Path
    name: str | None
    settings: dict[str, Any]
    flags: Sequence[str]
    resume_flags: Sequence[str]
    conditions: Mapping[str, Any]
    answerer: Mapping[str, Any]
    scoring: Mapping[str, Any]
    changed: Mapping[str, Any]
    part: PartRecord | None
    prompts: Prompts | None
    revision: str | None
    price: Price | None
    budget: float | None
    retry_failed: bool


@dataclass(frozen=True)
class RunSpec:
    """A run that may begin or resume, as `edge.planning.plan` returns it; vLLM splits the model over `gpus`."""

    questions: QuestionSpec
    world: WorldSpec
    rules: Rules
    engine: EngineSpec
    schedule: ScheduleSpec
    record: RecordSpec
    gpus: int = 1
