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
        found = re.fullmatch(r"q([0-9]{1,9})(?:_s([0-9]{1,9}))?", folder)
        return cls(int(found[1]), int(found[2] or 1)) if found else None


@dataclass(frozen=True)
class ResultRow(Record):
    """A line of results.jsonl: the outcome of an answer; docs/run-folder.md describes each key. `seconds` has the whole
    of each batched call, `seconds_share` its share, which adds up over a run. Benchmarks count `score` alone. With
    `options`, the texts are those of the chosen and the right one."""

    number: int
    id: str
    sample: int = field(default=1, kw_only=True)
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
    seconds_share: OmittedIfEmpty[float] = field(default=0.0, kw_only=True)
    scores: OmittedIfEmpty[dict[str, float]] = field(default_factory=dict)
    options: OmittedIfEmpty[tuple[str, ...]] = ()
    answer_text: OmittedIfEmpty[str] = ""
    ground_truth_text: OmittedIfEmpty[str] = ""
    folder: OmittedIfEmpty[str] = ""
    measurements: OmittedIfEmpty[int] = 0

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
