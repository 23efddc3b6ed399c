"""Trajectories: what the questions of a finished run saw, did and answered."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from roomscout.data.questions import Question
from roomscout.runs.allow_code import load_code_of
from roomscout.runs.notebook import trajectory_html
from roomscout.runs.reader import RunReader
from roomscout.runs.records import EpisodeId, RecordedMessage, ResultRow, Turn, image_files, image_name


@dataclass(frozen=True, eq=False)
class Trajectory:
    """The turns of one question, and its outcome."""

    question: Question  # that was asked
    turns: tuple[Turn, ...]  # in order
    answer: str | None  # None if there is none
    score: float | None  # 0 to 1; None without a ground truth
    status: str  # "answered", "exhausted" (no turns left, no answer) or "failed"
    error: str | None  # why it failed
    sample: int = 1  # which answer to the question, from 1
    recorded: Callable[[], Sequence[RecordedMessage]] = tuple  # returns the messages, whose images are files

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What the model read and wrote, in order: dicts of `role`, `text` and `images`, empty without a model.
        `images` are arrays (H, W, 3) uint8 RGB, in user messages alone. With a run folder, reads them from there."""
        shots = {image_name(turn.turn, shot.name): shot for turn in self.turns for shot in turn.shots}
        return [
            {
                "role": message["role"],
                "text": message["text"],
                "images": [shots[name].image for name in image_files(message)],
            }
            for message in self.recorded()
        ]

    def __repr__(self) -> str:
        return (
            f"Trajectory({self.question.question!r}, {len(self.turns)} turns, answer={self.answer!r}, "
            f"score={self.score}, status={self.status!r}{f', error={self.error!r}' if self.error else ''})"
        )

    def _repr_html_(self) -> str:
        return trajectory_html(self)


def load_trajectories(folder: str | Path, allow_code: bool = False) -> list[Trajectory]:
    """The trajectories of the finished questions in a run folder, one for each sample; raises RunError. Reads no view.
    `allow_code` executes the file or module that the run names as its benchmark."""
    reader = RunReader(Path(folder).expanduser().absolute())
    if allow_code:
        load_code_of([reader.folder])
    return trajectories(reader.questions, reader.rows, reader.turns, reader.messages)


def trajectories(
    questions: Sequence[Question],
    rows: Iterable[ResultRow],
    turns_of: Callable[[EpisodeId], Sequence[Turn]],
    messages_of: Callable[[EpisodeId], Sequence[RecordedMessage]],
) -> list[Trajectory]:
    """The trajectory of each result row; the functions return the turns and the recorded messages of an episode."""
    by_id = {question.id: question for question in questions}
    return [
        Trajectory(
            by_id[row.id],
            tuple(turns_of(row.episode)),
            row.answer,
            row.score,
            row.status,
            row.error,
            row.sample,
            partial(messages_of, row.episode),
        )
        for row in rows
    ]
