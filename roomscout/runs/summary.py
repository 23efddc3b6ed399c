"""summary.json as a record, which `RunWriter` writes, `RunReader` reads and all pages show."""

from dataclasses import dataclass

from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record
from roomscout.runs.anytime import Anytime
from roomscout.runs.costs import Cost
from roomscout.runs.hardware import Hardware, Session
from roomscout.runs.hashes import Provenance
from roomscout.runs.sights import SightSplit
from roomscout.scoring.scores import Scores


@dataclass(frozen=True, kw_only=True)
class QuestionCount(Record):
    """How many questions a run has, and their fingerprint."""

    count: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class PartCount(Record):
    """Which part of a run a folder holds, and how many questions the whole run has."""

    number: int
    of: int
    of_questions: int


@dataclass(frozen=True, kw_only=True)
class Judge(Record):
    """The model that marked answers in free text, and the beginning of the hash of what it was asked, and how."""

    model: str
    prompts_sha256: str


@dataclass(frozen=True, kw_only=True)
class Summary(Scores):
    """What a run says at its end; before its first export, its scores alone. `errors` are those of the benchmark's own
    code, `warnings` say what makes a score look better than it is."""

    protocol: str = ""
    model: str = ""
    questions: OmittedIfNone[QuestionCount | None] = None
    part: OmittedIfNone[PartCount | None] = None
    judge: OmittedIfNone[Judge | None] = None
    sight: OmittedIfNone[SightSplit | None] = None
    anytime: OmittedIfNone[Anytime | None] = None
    warnings: OmittedIfEmpty[tuple[str, ...]] = ()
    errors: OmittedIfEmpty[tuple[str, ...]] = ()
    cost: OmittedIfNone[Cost | None] = None
    sessions: tuple[Session, ...] = ()
    hardware: OmittedIfNone[Hardware | None] = None
    provenance: OmittedIfNone[Provenance | None] = None
