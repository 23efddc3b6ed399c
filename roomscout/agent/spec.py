"""`RunSpec`: all that a run needs to know, complete and checked, by part."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roomscout import UpAxis
from roomscout.agent.policies import Policy
from roomscout.agent.policies.prompts import Prompts
from roomscout.agent.state import Rules
from roomscout.data.benchmark import Benchmark
from roomscout.data.questions import Question, Selection
from roomscout.data.scans import Layouts, missing_scans
from roomscout.envs.films import FilmSettings
from roomscout.envs.library import CameraSettings, SceneLibrary
from roomscout.models import ModelOptions, ServerOptions
from roomscout.models.vllm import VllmOptions
from roomscout.rendering.renderers import Renderer
from roomscout.runs.journal import Journal, pending_samples
from roomscout.runs.prices import Price
from roomscout.runs.records import PartRecord, RecordedPrompts


@dataclass(frozen=True)
class QuestionSpec:
    """What is asked."""

    asked: Selection  # all questions of the run, and where they are from
    here: Sequence[Question]  # those of this part
    samples: int  # how many answers each gets
    benchmark: Benchmark  # what scores them
    is_one: bool  # whether it is one question about a scan file

    @property
    def episodes(self) -> int:
        """The number of answers."""
        return len(self.here) * self.samples

    def pending(self, journal: Journal) -> int:
        """The number of answers to come."""
        return sum(len(pending_samples(journal, question.id, self.samples)) for question in self.here)

    @property
    def pictures(self) -> int:
        """The most pictures of a question."""
        return max((len(question.images) for question in self.asked.questions), default=0)


MakeLibrary = Callable[["WorldSpec", Renderer], SceneLibrary]  # makes the library of scenes that are not scan files


@dataclass(frozen=True)
class WorldSpec:
    """Where the scans are, and how views of them are drawn; or the films of which frames are shown."""

    scan_root: Path  # the folder of the scans
    ply: Path | None  # the scan file of all questions, if they are about one
    layouts: Layouts  # the paths of the scans of each dataset, below `scan_root`
    up_axis: UpAxis  # the axis that points up in scan files
    scale: float  # metres per unit of scan files
    camera: CameraSettings  # the camera, and the images of a turn
    renderer: str  # the name of the renderer; empty with films, which need none
    cuda_device: int | None  # the CUDA ordinal of the GPU that draws, if one does
    films: FilmSettings | None  # the frames of videos that are shown in place of views
    makes_scans: bool  # whether the benchmark makes its scans when the run begins
    make_library: MakeLibrary | None = None  # makes the library of scenes that are no files, such as endless rooms

    def missing(self, questions: Sequence[Question]) -> dict[tuple[str, str], str]:
        """Why scenes of these questions have no scan, or no video, by dataset and name."""
        if self.films is not None:
            return self.films.missing(questions)
        return {} if self.ply is not None else missing_scans(questions, self.scan_root, self.layouts)


@dataclass(frozen=True)
class EngineSpec:
    """What decides."""

    name: str  # the name of the model or of the policy
    policy: Policy | None = None
    """A policy; else the model with the options of its engine, or without options whoever replies to the messages."""
    options: ModelOptions | None = None  # how the model is loaded and replies
    server: ServerOptions | None = None  # the servers that have it
    vllm: VllmOptions | None = None  # the vLLM server to start for it
    device: str = "auto"  # the device of the model, whose memory and load are sampled


@dataclass(frozen=True)
class ScheduleSpec:
    """Turns per question, and which questions take theirs together, as `Scheduler` takes them."""

    steps: int  # the most moves of a question
    batch_size: int  # the most questions at a time
    max_batched_turns: int  # the number of turns in lockstep batches
    refill: bool  # whether a waiting question replaces each finished one
    concurrency: int | None  # questions at a time after the batched turns; None for a whole batch
    anytime: bool  # whether each turn is also asked for an answer as if it were the last


@dataclass(frozen=True)
class RecordSpec:
    """What run.json says of the run, where its folder goes, and the words that resume it."""

    folder: Path | None  # the folder of a run to resume
    log_root: Path  # where the folder of a new run goes
    name: str | None  # its name, if it has one
    asked: dict[str, Any]  # all settings as they were asked for, as JSON values
    renderer: str  # the renderer that draws; empty with films, which need none
    flags: Sequence[str]  # what was asked for that is not a default, as flags
    resume_words: Sequence[str]  # the command that resumes a run, before the folder
    resume_flags: Sequence[str]  # the flags that give what `changed`
    more_budget: Sequence[str]  # the same with twice the budget
    conditions: Mapping[str, Any]  # under what conditions answers are given
    answerer: Mapping[str, Any]  # what gives them
    scoring: Mapping[str, Any]  # how they are scored
    changed: Mapping[str, Any]  # the settings that are others than when the run began
    part: PartRecord | None  # which part of a divided run this is
    prompts: Prompts | None  # what a model reads
    probe: RecordedPrompts | None  # what asks a model for maps, outside the conversation
    revision: str | None  # the revision of a hub checkpoint
    price: Price | None  # what tokens cost
    budget: float | None  # what the run may cost
    retry_failed: bool  # whether failed questions are pending again

    @property
    def settings(self) -> dict[str, Any]:
        """All settings, as JSON values, with the renderer that draws."""
        return with_renderer(self.asked, self.renderer)


def with_renderer(settings: Mapping[str, Any], renderer: str) -> dict[str, Any]:
    """Settings as JSON values, with the name of the renderer that draws, if one does."""
    return {**settings, "renderer": renderer or settings["renderer"]}


@dataclass(frozen=True)
class RunSpec:
    """A run that may begin or resume, as `edge.plan.plan` returns it."""

    questions: QuestionSpec  # what is asked
    world: WorldSpec  # where
    rules: Rules  # what is read, and what counts
    engine: EngineSpec  # what decides
    schedule: ScheduleSpec  # in which order
    record: RecordSpec  # what is written
    gpus: int = 1  # over how many GPUs vLLM splits the model
