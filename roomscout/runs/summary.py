"""summary.json as a record, which `RunWriter` writes, `RunReader` reads and all pages show."""

from dataclasses import dataclass

from roomscout.base.record import OmittedIfEmpty, OmittedIfNone, Record
from roomscout.runs.anytime import Anytime
from roomscout.runs.beliefs import Beliefs
from roomscout.runs.costs import Cost
from roomscout.runs.hardware import Hardware, Session
from roomscout.runs.prices import Price
from roomscout.runs.provenance import Provenance
from roomscout.runs.sights import SightSplit
from roomscout.scoring.scores import Marks, Scores


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
    """The model that marked answers in free text, and what its marks cost."""

    model: str  # its name
    prompts_sha256: str  # the beginning of the hash of what it was asked, and how
    prompt_tokens: OmittedIfEmpty[int] = 0  # that it read
    cached_tokens: OmittedIfEmpty[int] = 0  # those of them that were cached
    generated_tokens: OmittedIfEmpty[int] = 0  # that it wrote
    money: OmittedIfNone[float | None] = None  # None if their price is not known

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
    """What a run says at its end; before its first export, its scores alone."""

    protocol: str = ""  # the conditions in a sentence for people
    model: str = ""  # the setting of that name
    questions: OmittedIfNone[QuestionCount | None] = None  # of the run, or of this part
    part: OmittedIfNone[PartCount | None] = None  # None for a whole run
    judge: OmittedIfNone[Judge | None] = None  # None without marks
    sight: OmittedIfNone[SightSplit | None] = None  # None if it is not known what was in view
    anytime: OmittedIfNone[Anytime | None] = None  # None without forced answers
    beliefs: OmittedIfNone[Beliefs | None] = None  # None without maps
    warnings: OmittedIfEmpty[tuple[str, ...]] = ()  # what makes a score look better than it is, and the errors
    errors: OmittedIfEmpty[tuple[str, ...]] = ()  # of the benchmark's own code
    cost: OmittedIfNone[Cost | None] = None  # of all turns
    sessions: tuple[Session, ...] = ()  # the processes that worked on the run, in order of time
    hardware: OmittedIfNone[Hardware | None] = None  # None without turns
    provenance: OmittedIfNone[Provenance | None] = None  # what identifies the run
