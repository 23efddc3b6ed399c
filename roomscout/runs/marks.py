"""The marks of a judge: marks.jsonl lies beside the records of a run, which stay as they are."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from roomscout.base.record import OmittedIfEmpty, Record
from roomscout.data.judged import score_of_mark
from roomscout.runs.records import ResultRow


@dataclass(frozen=True)
class Mark(Record):
    """A line of marks.jsonl: the mark of an answer."""

    id: str  # of the question
    answer: str  # its text
    mark: int  # 1 to 5
    judge: str  # the model that gave it
    prompts_sha256: str  # the beginning of the hash of how the judge was asked
    tokens: OmittedIfEmpty[tuple[int, int, int]] = (0, 0, 0)  # that the judge read, of these the cached, and wrote


@dataclass(frozen=True)
class Marks:
    """All marks of a run, which are those of one judge, by question id and answer."""

    judge: str
    prompts_sha256: str
    by_answer: Mapping[tuple[str, str], int]
    tokens: tuple[int, int, int] = (0, 0, 0)

    def scored(self, row: ResultRow) -> ResultRow:
        """The row with the score of its mark; 0 without an answer. A row without a mark stays as it is."""
        if row.score is not None or row.ground_truth is None:
            return row
        if row.answer is None:
            return replace(row, score=0.0)
        mark = self.by_answer.get((row.id, row.answer))
        return row if mark is None else replace(row, score=score_of_mark(mark), scores=row.scores | {"mark": mark})
