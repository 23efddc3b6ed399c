"""The records in a run folder's JSON files: fields are keys, in their order, which docs/run-folder.md documents."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any, Required

import numpy as np
from pydantic import Field, SerializerFunctionWrapHandler, WrapSerializer
from typing_extensions import TypedDict

from roomscout.base.pictures import PictureError, opened
from roomscout.base.record import NotRecorded, OmittedIfEmpty, OmittedIfNone, Record
from roomscout.base.shots import VIEW
from roomscout.data.benchmark import Reference
from roomscout.data.question import Question
from roomscout.data.scans import ScanRecord as ScanRecord
from roomscout.data.sources import Source
from roomscout.data.video_frames import FramesRecord
from roomscout.envs.actions import CameraAction
from roomscout.models import Reply
from roomscout.rendering.camera import CameraPose, Intrinsics
from roomscout.rendering.motion import MoveOutcome
from roomscout.runs import RunError
from roomscout.runs.beliefs import Belief
from roomscout.runs.conditions import protocol_of
from roomscout.runs.movers import who_moves
from roomscout.runs.prices import Price
from roomscout.scoring.baselines import Guesses
from roomscout.scoring.scores import EpisodeId as EpisodeId
from roomscout.scoring.scores import ResultRow as ResultRow

SCHEMA = 2  # the version of these records, saved in run.json

ImageName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$", max_length=40)]  # beside the view; names its file
ImageFile = Annotated[str, Field(pattern=r"^render_\d+(_[a-z][a-z0-9]*)?\.png$")]


class RecordedMessage(TypedDict, total=False):
    """A message of messages.json. Its images are files in its folder."""

    role: Required[str]  # "system", "user" or "assistant"
    text: Required[str]  # what it says, in the last conversation that has it
    image: ImageFile  # the only one
    images: list[ImageFile]  # several, in their order
    frames: ImageFile  # those of a video, small, in one image
    text_in_its_turn: str  # what a message said that is replaced by a note in later turns


def _as_decided(value: Any, serialized: SerializerFunctionWrapHandler) -> dict[str, Any]:
    """An action as JSON, without the pitch and the further moves that it does not have."""
    record: dict[str, Any] = serialized(value)
    then = [{name: number for name, number in move.items() if number} for move in record.pop("then")]
    pitch = record.pop("pitch_angle_degrees")
    if pitch:
        record["pitch_angle_degrees"] = pitch
    if then:
        record["then"] = then
    return record


Decided = Annotated[CameraAction, WrapSerializer(_as_decided)]


@dataclass(frozen=True)
class TurnSeconds:
    """Seconds by part: those of the model and the waits are of the whole batch's call, the others of the question."""

    preprocess: float  # making the model's inputs
    prefill: float  # up to the first token
    decode: float  # of further tokens
    render: float  # the move and the next view
    write: float = 0.0  # encoding and writing the images
    wait_views: OmittedIfEmpty[float] = 0.0  # of an engine that takes batches, for views or scans
    wait_other: OmittedIfEmpty[float] = 0.0  # of such an engine, for other reasons


def image_name(turn: int, name: str = VIEW) -> str:
    """The file name of a turn's image, in its episode's folder: that of the view has no name of its own."""
    return f"render_{turn:02d}.png" if name == VIEW else f"render_{turn:02d}_{name}.png"


def as_scored(question: Question, answer: str | None, pose: CameraPose, turns: Sequence["Turn"]) -> str | None:
    """What is scored of a valid answer that is given at a pose, to which the moves of `turns` have led."""
    if answer is None or not question.kind.judges_camera:
        return answer
    path_m = sum(turn.move.moved_m for turn in turns if turn.move is not None)
    with question.kind_code("of_camera"):
        return question.kind.of_camera((*pose.position, pose.heading_deg, pose.pitch_deg), path_m)


def image_files(message: RecordedMessage) -> list[str]:
    """The names of a recorded message's image files, in their order."""
    return list(message.get("images") or ([message["image"]] if "image" in message else []))


@dataclass(frozen=True)
class SavedShot:
    """An image in a file of a run folder, with the name of its modality."""

    name: str
    path: Path

    @property
    def file(self) -> Path | None:
        """The file; None if there is none, or if links lead from it out of the run folder."""
        run = self.path.parent.parent
        return self.path if self.path.is_file() and self.path.resolve().is_relative_to(run.resolve()) else None

    def load(self) -> np.ndarray | None:
        """The image, (H, W, 3) uint8 RGB; None without a `file`, or if it is truncated or a bomb."""
        if self.file is None:
            return None
        try:
            return np.array(opened(self.path.read_bytes()).convert("RGB"))
        except (OSError, PictureError):
            return None

    @property
    def image(self) -> np.ndarray:
        """The image, read at each access, so that no pixels are kept; raises RunError if it is missing or damaged."""
        if (image := self.load()) is None:
            raise RunError(f"{self.path} is missing or damaged: restore it, or run the question again")
        return image


@dataclass(frozen=True)
class SeenPoint:
    """A pixel of a turn's view that the reading of its reply looked up."""

    pixel: tuple[float, float]  # x, y
    surface: tuple[float, float, float] | None  # the point of the scan there, world metres; None in a hole
    mark: OmittedIfEmpty[int | None] = None  # the number by which it was named, if any


@dataclass(frozen=True)
class ToolUse:
    """A tool that a reply used, its `result` as the next message tells it, and what it measured; None if nothing."""

    tool: str
    result: str
    metres: float | None


@dataclass(frozen=True)
class ForcedAnswer:
    """What a model answered when asked as if a turn were the last, outside the conversation."""

    answer: str | None  # None if it is not valid
    score: float | None  # None without a truth
    reply: Reply
    batch: Annotated[tuple[str, ...], Field(min_length=1)]  # the questions of the generate() call


@dataclass(frozen=True, repr=False)
class Turn(Record):
    """A finished turn, and a line of turns.jsonl, which leaves out the images."""

    turn: int  # from 0
    pose: CameraPose  # the camera's before the action
    action: Decided  # a small rotation after a parse_error
    clamped: tuple[str, ...]  # values outside their range, as "name value -> limit"
    parse_error: str | None  # why the reply could not be read; None if it could
    move: MoveOutcome | None  # the action's outcome; None if the turn ended the question
    reply: Reply  # empty for policies without a model
    batch: Annotated[tuple[str, ...], Field(min_length=1)]  # the episodes that share the call of generate()
    seconds: TurnSeconds  # by part
    requested: OmittedIfEmpty[Decided | None] = None  # what the model asked for, if a control decided otherwise
    fields: OmittedIfEmpty[dict[str, Any]] = field(default_factory=dict)  # others of the reply's JSON object
    points: OmittedIfEmpty[tuple[SeenPoint, ...]] = ()  # that the reading of the reply looked up
    uses: OmittedIfEmpty[tuple[ToolUse, ...]] = ()  # the tools that the reply used
    scan: OmittedIfEmpty[ScanRecord | None] = None  # of a recorded turn 0 alone
    forced: OmittedIfEmpty[ForcedAnswer | None] = None  # the answer as if this turn were the last
    belief: OmittedIfNone[Belief | None] = None  # where objects are believed to be
    see: OmittedIfEmpty[tuple[ImageName, ...]] = ()  # the images beside the view
    frames: OmittedIfEmpty[FramesRecord | None] = None  # of a video; the one image shows all of them
    not_shown: OmittedIfEmpty[str] = ""  # of turn 0: what the question needs that a given path cannot show well
    shots: NotRecorded[tuple[Any, ...]] = field(default=(), compare=False)  # the view first: Shot, or SavedShot

    @property
    def replies(self) -> list[Reply]:
        """All that was replied in the turn: in the conversation, then outside it."""
        return [self.reply, *(beside.reply for beside in (self.forced, self.belief) if beside is not None)]

    @property
    def elapsed_s(self) -> float:
        """Wall seconds of the turn, with the whole of a batched call."""
        return self.reply.seconds + self.seconds.render

    @property
    def is_final(self) -> bool:
        """Whether this turn ended the question."""
        return self.move is None

    @property
    def stopped(self) -> bool:
        """Whether a surface or the edge of the scan stopped its move."""
        return self.move is not None and (self.move.blocked or self.move.clipped)

    @property
    def camera_in_words(self) -> str:
        """What the camera did, such as "moved 0.42 of 1.50 m, then blocked by a surface"; empty for the final turn."""
        move = self.move
        if move is None:
            return ""
        if self.stopped:
            why = "then blocked by a surface" if move.blocked else "to the edge of the scan"
            return f"moved {move.moved_m:.2f} of {move.requested_m:.2f} m, {why}"
        if move.moved_m:
            return f"moved {move.moved_m:.2f} m"
        return "turned" if self.turned_deg or move.pose.pitch_deg != self.pose.pitch_deg else "stayed"

    @property
    def uses_in_words(self) -> str:
        """What was measured, such as "measured 0.42 m between [1, 2] and mark 3"; empty if nothing was."""
        return "; ".join(f"measured {use.result}" for use in self.uses)

    @property
    def turned_deg(self) -> float:
        """How far its action turns left, degrees; after several moves, from -180 to 180 between the two poses."""
        if self.move is None or not self.action.then:
            return self.action.rotation_angle_degrees
        return round(self.pose.turn_to(self.move.pose), 6)

    @property
    def view(self) -> np.ndarray:
        """The view, (H, W, 3) uint8 RGB; raises RunError if its file is missing or damaged."""
        return self.images[VIEW]

    @property
    def images(self) -> dict[str, np.ndarray]:
        """All images by name, (H, W, 3) uint8 RGB. Raises RunError if a file is missing or damaged."""
        return {shot.name: shot.image for shot in self.shots}

    def __repr__(self) -> str:
        place = f"{self.pose.place}, heading {self.pose.heading_deg:.0f}°"
        texts = {"action": self.action.in_words, "reply": self.reply.text, "parse_error": self.parse_error}
        said = "".join(f", {name}={shorten(text, 80)!r}" for name, text in texts.items() if text)
        return f"Turn({self.turn}, {place}{said})"


@dataclass(frozen=True)
class Baselines(Record):
    """baselines.json: what a baseline would answer, decided when the run began."""

    most_frequent: Guesses


@dataclass(frozen=True)
class PartRecord:
    """Which part of a divided run a folder holds."""

    number: int  # from 1
    of: int  # how many parts there are
    questions: int  # of the whole run
    questions_sha256: str  # the fingerprint of these
    settings: tuple[str, ...]  # the keys of `config` that must be equal in all parts

    def __str__(self) -> str:
        return f"part {self.number} of {self.of}"


@dataclass(frozen=True)
class TypeRecord(Record):
    """A question type of a benchmark, and its kind of answer."""

    name: str  # as in the column `question_type`
    task: str  # that it belongs to
    kind: str  # the name of its kind of answer
    unit: str  # of a number
    takes_options: bool  # whether its questions have options
    needs_judge: bool  # whether a judge scores its answers
    shipped: bool  # whether the kind is one of this package
    told_by_extent: bool = False  # whether the room's extent nearly answers it
    in_scan_coordinates: bool = False  # whether its answers are places
    judges_camera: bool = False  # whether the camera's pose is scored


@dataclass(frozen=True)
class BenchmarkRecord(Record):
    """A benchmark that is not of this package, as far as it shows, labels and compares scores; see `Benchmark`."""

    name: str  # of the benchmark, not what names its code
    title: str  # what messages call it
    types: tuple[TypeRecord, ...]  # in the order of its tables
    overall: str  # what it is a mean over, "tasks" or "questions"; empty for a function of its own
    label: str  # of the overall
    excluded: dict[str, str]  # types that are left out by default, and why
    summed_last: tuple[str, ...]  # the tasks whose means are added last
    datasets: tuple[str, ...]  # of a fixed set of questions
    scan_layouts: dict[str, tuple[str, ...]]  # where scans are, by dataset
    rescans: dict[str, str]  # how scans of one room are named, by dataset
    references: tuple[Reference, ...]  # published scores
    sizes: dict[str, int]  # the numbers of questions of its overalls, by label
    brings_questions: bool  # whether questions need no file
    pairs: OmittedIfEmpty[str] = ""  # how ids of one pair are named


@dataclass(frozen=True, kw_only=True)
class Versions(Record):
    """The versions of this code (a commit), packages, Python and a checkpoint of the hub; None for those not known."""

    git_revision: str | None
    packages: dict[str, str | None]
    python: str
    model_revision: OmittedIfEmpty[str | None] = None


VERSIONS = tuple(version.name for version in fields(Versions))


@dataclass(frozen=True, kw_only=True)
class Resumption(Versions):
    """When, where and with which versions a run was resumed, and the settings that changed."""

    at: str
    host: str
    changed: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class MergedPart(Versions):
    """Where a part of a merged run came from."""

    part: int  # its number, from 1
    of: int  # how many parts there are
    folder: str  # the name of its run folder
    started: str  # when it was begun
    host: str  # the machine that began it


@dataclass(frozen=True)
class RecordedPrompts:
    """The templates that a model reads, by name, and their hash."""

    sha256: str
    templates: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class RunFacts(Record):
    """run.json: the questions, settings and versions of a run; docs/run-folder.md describes each key."""

    schema: int  # of these records
    started: str  # when it was begun
    config: dict[str, Any]  # all settings, as JSON values
    questions: int  # how many the run asks, or this part of it
    questions_sha256: str  # their fingerprint
    conditions: dict[str, Any]  # only runs with equal ones are comparable
    answerer: dict[str, Any]  # what answers
    scoring: dict[str, Any]  # how answers are scored
    flags: tuple[str, ...]  # of a command that gives the settings, without those that have their defaults
    git_revision: str | None  # the commit of this code; None if unknown
    packages: dict[str, str | None]  # versions by name; None for those that are not installed
    python: str  # the version of Python
    host: str  # the machine that began the run
    resumed: OmittedIfEmpty[tuple[Resumption, ...]] = ()  # in order of time
    part: OmittedIfEmpty[PartRecord | None] = None  # None for a whole run
    merged: OmittedIfEmpty[tuple[MergedPart, ...]] = ()  # the parts that it was merged from
    prompts: OmittedIfEmpty[RecordedPrompts | None] = None  # None without a model
    probe: OmittedIfEmpty[RecordedPrompts | None] = None  # what asks for maps, outside the conversation
    benchmark: OmittedIfEmpty[BenchmarkRecord | None] = None  # None for one of this package
    source: OmittedIfEmpty[Source | None] = None  # where the questions come from
    model_revision: OmittedIfEmpty[str | None] = None  # the commit of a checkpoint of the hub
    price: OmittedIfEmpty[Price | None] = None  # of the model's tokens
    judge_price: OmittedIfEmpty[Price | None] = None  # of the tokens of a judge

    def setting(self, name: str) -> Any:
        """A setting of `config` by name."""
        return self.config[name]

    @property
    def protocol(self) -> str:
        """The conditions in a sentence for people."""
        return protocol_of(self)

    @property
    def of_one_scan(self) -> bool:
        """Whether the run is about one question to one scan rather than about a batch."""
        return self.config["ply"] is not None

    @property
    def is_blind(self) -> bool:
        """Whether every view is grey."""
        return bool(self.config["renderer"] == "blind")

    @property
    def frames(self) -> int | None:
        """How many frames of videos the model saw instead of scans; None for a run in scans."""
        return self.config["frames"] if self.config["present"] == "video" else None

    @property
    def model_moves(self) -> bool:
        """Whether the model moves the camera."""
        config = self.config
        return who_moves(config["moves"], config["moves_of"], config["given"]) == "model"

    @property
    def asks_model(self) -> bool:
        """Whether a model decides, rather than a policy of code."""
        return self.setting("policy") is None

    @property
    def by_people(self) -> bool:
        """Whether people decide."""
        return bool(self.config["policy"] == "human")

    @property
    def name(self) -> str | None:
        """The name that its user gave the run, if any."""
        return self.config["name"]

    @property
    def samples(self) -> int:
        """How many times each question is answered."""
        return int(self.config["samples"])

    @property
    def episodes(self) -> int:
        """How many answers the run asks for."""
        return self.questions * self.samples

    @property
    def intrinsics(self) -> Intrinsics:
        """The camera of the views."""
        width, height = self.config["image_size"]
        return Intrinsics(width, height, float(self.config["focal"]))

    @property
    def first_versions(self) -> Versions:
        """The versions that began the run."""
        return Versions(**{name: getattr(self, name) for name in VERSIONS})

    @property
    def last_versions(self) -> Versions:
        """The versions that last ran."""
        return self.resumed[-1] if self.resumed else self.first_versions

    @property
    def last_host(self) -> str:
        """The machine that last ran."""
        return self.resumed[-1].host if self.resumed else self.host
