"""The records in a run folder's JSON files. Fields have the names and the order of the keys.

experiment_logs/README.md documents each key.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Self

SCHEMA = 1
"""The version of these records, saved in run.json."""


@dataclass(frozen=True)
class ResultRow:
    """A line of results.jsonl: the outcome of a question."""

    number: int
    id: str
    dataset: str
    scene_name: str
    question_type: str
    question: str
    ground_truth: str | None
    answer: str | None
    score: float | None
    status: str
    failed_part: str | None
    error: str | None
    turns: int
    parse_errors: int
    seconds: float

    def __post_init__(self) -> None:
        if self.score is not None and not (isinstance(self.score, int | float) and 0 <= self.score <= 1):
            raise ValueError(f"its score is {self.score!r}, not between 0 and 1")

    @property
    def failed(self) -> bool:
        """Whether an error of the scan, the renderer or the model ended the question."""
        return self.status == "failed"

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """The row of a parsed line; raises ValueError with the reason if it is malformed."""
        _require(line, field_names(cls))
        return cls(**{name: line[name] for name in field_names(cls)})


@dataclass(frozen=True)
class PoseRecord:
    """The camera's pose: metres in the scan's coordinates, degrees."""

    x_m: float
    y_m: float
    z_m: float
    heading_deg: float
    pitch_deg: float


@dataclass(frozen=True)
class ActionRecord:
    """An action as carried out."""

    rotation_angle_degrees: float
    forward_meters: float
    left_meters: float
    z_delta_meters: float
    answer: str | None
    done: bool


@dataclass(frozen=True)
class MoveRecord:
    """The result of a move, and whether a surface (`blocked`) or the scene's bounds (`clipped`) stopped it."""

    pose: PoseRecord
    requested_m: float
    moved_m: float
    blocked: bool
    clipped: bool


@dataclass(frozen=True)
class ReplyRecord:
    """The model's reply and its costs.

    `seconds` is the time of the whole batch's call. `retries` and `dropped` are not written when they are 0 and empty.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_tokens: int
    reused_tokens: int
    generated_tokens: int
    finish_reason: str
    seconds: float
    images_encoded: int
    retries: int = 0
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True)
class TurnSeconds:
    """Seconds by part. The first three are of the whole batch's call, the others of the question alone.

    RunWriter sets `write`.
    """

    preprocess: float
    prefill: float
    decode: float
    render: float
    write: float = 0.0


@dataclass(frozen=True)
class ScanRecord:
    """The file of a question's scan, and the SHA-256 of its bytes."""

    file: str
    sha256: str


@dataclass(frozen=True)
class TurnRecord:
    """A line of turns.jsonl: a finished turn.

    `move` is None if the turn ended the question. Only turn 0 has `scan`.
    """

    turn: int
    pose: PoseRecord
    action: ActionRecord
    clamped: tuple[str, ...]
    parse_error: str | None
    move: MoveRecord | None
    reply: ReplyRecord
    batch: tuple[str, ...]
    seconds: TurnSeconds
    scan: ScanRecord | None = None

    def to_json(self) -> dict[str, Any]:
        """The line as an object; omits `scan`, `retries` and `dropped` if they are empty."""
        line = asdict(self)
        if self.scan is None:
            del line["scan"]
        for name in ("retries", "dropped"):
            if not line["reply"][name]:
                del line["reply"][name]
        return line

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> Self:
        """The turn of a parsed line; raises KeyError, TypeError or ValueError if it is malformed."""
        _require(line, [name for name in field_names(cls) if name != "scan"])
        move, reply = line["move"], line["reply"]
        return cls(
            turn=line["turn"],
            pose=PoseRecord(**line["pose"]),
            action=ActionRecord(**line["action"]),
            clamped=tuple(line["clamped"]),
            parse_error=line["parse_error"],
            move=MoveRecord(**{**move, "pose": PoseRecord(**move["pose"])}) if move else None,
            reply=ReplyRecord(**reply | {key: tuple(reply.get(key, ())) for key in ("tokens", "dropped")}),
            batch=tuple(line["batch"]),
            seconds=TurnSeconds(**line["seconds"]),
            scan=ScanRecord(**line["scan"]) if "scan" in line else None,
        )


@dataclass(frozen=True)
class PartRecord:
    """Which part of a sharded run this folder holds.

    It is part `number`, from 1, of `of`. `questions` and `questions_sha256` describe the whole run; `settings` names
    the keys of `config` that must be equal in all parts.
    """

    number: int
    of: int
    questions: int
    questions_sha256: str
    settings: tuple[str, ...]

    def __str__(self) -> str:
        return f"part {self.number} of {self.of}"


@dataclass(frozen=True)
class RunFacts:
    """run.json: the questions, settings and versions of a run.

    `config` is the configuration as JSON values. `resumed` has an entry per resumption: time, host, changed settings
    and versions. The run of a part has `part`; a merged run has `merged`, with an entry per part. `prompts` has the
    templates that a model reads and their hash; None without a model, and for runs of earlier versions.
    """

    schema: int
    started: str
    config: dict[str, Any]
    questions: int
    questions_sha256: str
    protocol: str
    git_revision: str | None
    packages: dict[str, str | None]
    python: str
    host: str
    resumed: tuple[dict[str, Any], ...] = ()
    part: PartRecord | None = None
    merged: tuple[dict[str, Any], ...] = ()
    prompts: dict[str, Any] | None = None

    @property
    def last_versions(self) -> dict[str, Any]:
        """The versions that last ran, as far as recorded, with the keys of run.json."""
        first = {"git_revision": self.git_revision, "packages": self.packages, "python": self.python}
        last = self.resumed[-1] if self.resumed else {}
        return {key: last.get(key, value) for key, value in first.items()}

    @property
    def last_host(self) -> str:
        """The machine that last ran."""
        return self.resumed[-1]["host"] if self.resumed else self.host

    def with_resumption(self, resumption: dict[str, Any]) -> Self:
        """The facts after one more resumption."""
        return replace(self, resumed=(*self.resumed, resumption))

    def to_json(self) -> dict[str, Any]:
        """run.json as an object; omits optional keys that are empty."""
        return {name: value for name, value in asdict(self).items() if value or name not in OPTIONAL_FACTS}

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Self:
        """The facts of a parsed run.json; raises ValueError or TypeError if it is malformed."""
        _require(facts, [name for name in field_names(cls) if name not in OPTIONAL_FACTS])
        known = {name: facts[name] for name in field_names(cls) if name in facts}
        part = facts.get("part")
        known["part"] = PartRecord(**{**part, "settings": tuple(part["settings"])}) if part else None
        return cls(**{**known, "resumed": tuple(facts.get("resumed", ())), "merged": tuple(facts.get("merged", ()))})


OPTIONAL_FACTS = ("resumed", "part", "merged", "prompts")


def field_names(record: type[ResultRow] | type[TurnRecord] | type[RunFacts]) -> list[str]:
    """A record's keys, in order."""
    return [field.name for field in fields(record)]


def _require(record: Mapping[str, Any], keys: list[str]) -> None:
    if lacking := [key for key in keys if key not in record]:
        raise ValueError(f"missing keys: {', '.join(lacking)}")
