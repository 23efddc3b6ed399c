"""The results of a run: the outcome of each answer to each question."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from roomscout.base.record import OmittedIfEmpty, Record


class EpisodeId(NamedTuple):
    """Which answer (`sample`) to which question (its place in the run, `number`); both count from 1."""

    number: int
    sample: int = 1

    def __str__(self) -> str:
        """The name of its folder: "q001", and "q001_s2" for the second answer."""
        return f"q{self.number:03d}" + (f"_s{self.sample}" if self.sample > 1 else "")

    @property
    def label(self) -> str:
        """Its name in the log: "Q001", and "Q001 sample 2" for the second answer."""
        return f"Q{self.number:03d}" + (f" sample {self.sample}" if self.sample > 1 else "")

    @classmethod
    def parse(cls, folder: str) -> Self | None:
        """The episode of a folder's name; None for any other name."""
        match = re.fullmatch(r"q([0-9]{1,9})(?:_s([0-9]{1,9}))?", folder)
        return cls(int(match[1]), int(match[2] or 1)) if match else None


@dataclass(frozen=True)
class ResultRow(Record):
    """A line of results.jsonl: the outcome of an answer; docs/run-folder.md describes each key."""

    number: int  # of the question in the run, from 1
    id: str  # of the question
    sample: int = field(default=1, kw_only=True)  # of the answer, from 1
    dataset: str  # of the question's scan
    scene_name: str  # of the question's scan
    question_type: str  # of the benchmark, or of the user's own
    question: str  # its text
    ground_truth: str | None  # None if unknown
    answer: str | None  # None if there is none
    score: float | None  # 0 to 1, which benchmarks count alone; None without a truth, or before a judge's mark
    status: str  # "answered", "exhausted" (no turns left, no answer) or "failed"
    failed_part: str | None  # whose error it was, such as "scan"; None unless it failed
    error: str | None  # in a sentence; None unless it failed
    turns: int  # how many were recorded
    parse_errors: int  # how many replies could not be read
    seconds: float  # with the whole of each batched call
    seconds_share: OmittedIfEmpty[float] = field(default=0.0, kw_only=True)  # with its share: these add up over a run
    scores: OmittedIfEmpty[dict[str, float]] = field(default_factory=dict)  # further ones by name
    options: OmittedIfEmpty[tuple[str, ...]] = ()  # of the question
    answer_text: OmittedIfEmpty[str] = ""  # of the chosen option
    ground_truth_text: OmittedIfEmpty[str] = ""  # of the right option
    folder: OmittedIfEmpty[str] = ""  # of the episode, in the run folder
    measurements: OmittedIfEmpty[int] = 0  # distances that the model measured in the scan

    def __post_init__(self) -> None:
        if self.score is not None and not 0 <= self.score <= 1:
            raise ValueError(f"its score is {self.score!r}, not between 0 and 1")

    @property
    def episode(self) -> EpisodeId:
        """Which answer to which question this is."""
        return EpisodeId(self.number, self.sample)

    @property
    def failed(self) -> bool:
        """Whether an error of the scan, the renderer or the model ended the question."""
        return self.status == "failed"


def scores_of(rows: Iterable[ResultRow]) -> list[float]:
    """The scores of the rows that have one."""
    return [row.score for row in rows if row.score is not None]
