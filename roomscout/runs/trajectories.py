"""Trajectories: what the questions of a finished run saw, did and answered, also as HTML for notebooks."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from PIL import Image

from roomscout.base.pictures import data_url
from roomscout.base.shots import VIEW, Shot
from roomscout.data.questions import Question
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader, load_code_of
from roomscout.runs.records import EpisodeId, RecordedMessage, ResultRow, SavedShot, Turn, image_files, image_name

WIDTH_PX = 240
QUALITY = 85
WORDS = "white-space:pre-wrap;word-break:normal;overflow-wrap:anywhere;font-size:smaller;line-height:1.3"  # of a reply


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
            {"role": entry["role"], "text": entry["text"], "images": [shots[name].image for name in image_files(entry)]}
            for entry in self.recorded()
        ]

    def __repr__(self) -> str:
        return (
            f"Trajectory({self.question.question!r}, {len(self.turns)} turns, answer={self.answer!r}, "
            f"score={self.score}, status={self.status!r}{f', error={self.error!r}' if self.error else ''})"
        )

    def _repr_html_(self) -> str:
        """The question with its outcome and a filmstrip of its turns, all text escaped; errors for damaged views."""
        question = self.question
        outcome = self.error or question.in_words(self.answer) or "no answer"
        if self.score is not None:
            outcome += f", score {self.score:g}, truth {question.in_words(question.ground_truth, is_truth=True)}"
        lines = [question.question, *question.options, f"{self.status}: {outcome}"]
        first, *others = map(escape, lines)
        heading = "<br>".join([f"<b>{first}</b>", *others])
        return f"<p>{heading}</p><div style='display:flex;overflow-x:auto'>{''.join(map(_figure, self.turns))}</div>"


def load_trajectories(folder: str | Path, allow_code: bool = False) -> list[Trajectory]:
    """The trajectories of a run folder's finished questions, one for each sample, without views; raises RunError.
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


def _figure(turn: Turn) -> str:
    said = f"<pre style='{WORDS}'>{escape(turn.reply.text)}</pre>" if turn.reply.text else ""
    noted = f"<br>{escape(turn.parse_error)}" if turn.parse_error else ""
    images = "".join(_image(turn, shot) for shot in turn.shots)
    about = f"turn {turn.turn}: {escape(turn.action.in_words)}{noted}"
    style = f"margin:4px;flex:0 0 {WIDTH_PX}px;min-width:0;overflow-wrap:anywhere"
    return f"<figure style='{style}'>{images}<figcaption>{about}{said}</figcaption></figure>"


def _image(turn: Turn, shot: Shot | SavedShot) -> str:
    try:
        view = Image.fromarray(shot.image)
    except RunError as error:
        return f"<p>{escape(str(error))}</p>"
    view.thumbnail((WIDTH_PX, WIDTH_PX))
    url = data_url(view, "JPEG", QUALITY)  # a notebook stores every filmstrip; a PNG would be five times as large
    words = "view" if shot.name == VIEW else shot.name
    return f"<img alt='{words} of turn {turn.turn}' width='{WIDTH_PX}' src='{url}'>"
