"""summary.json as a record, which `RunWriter` writes, `RunReader` reads and all pages show."""

from dataclasses import dataclass

from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record
from roomscout.runs.anytime import Anytime
from roomscout.runs.costs import Cost
from roomscout.runs.hardware import Hardware, Session
from roomscout.runs.hashes import Provenance
from roomscout.runs.marks import Marks
from roomscout.runs.prices import Price
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
    """The model that marked answers in free text, the beginning of the hash of what it was asked, and how, the tokens
    of its marks, and their price if it is known."""

    model: str
    prompts_sha256: str
    prompt_tokens: OmittedIfEmpty[int] = 0
    cached_tokens: OmittedIfEmpty[int] = 0
    generated_tokens: OmittedIfEmpty[int] = 0
    money: OmittedIfNone[float | None] = None

    @classmethod
    def of(cls, marks: Marks, price: Price | None) -> "Judge":
        """The judge of a run's marks."""
        read, cached, written = marks.tokens
        return cls(
            model=marks.judge,
            prompts_sha256=marks.prompts_sha256,
            prompt_tokens=read,
            cached_tokens=cached,
            generated_tokens=written,
            money=None if price is None else price.of(read - cached, cached, written),
        )


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
