"""What the formats have in common: the finished answers of a run, and what a file holds of them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roomscout.analysis.report.contents import AnswerContents, RunContents
from roomscout.runs import RunError
from roomscout.runs.records import RecordedMessage, image_files


@dataclass(frozen=True)
class Exported:
    """How many answers a file holds, and a sentence for each thing that a reader of it should know."""

    answers: int
    remarks: tuple[str, ...] = ()


def finished(run: RunContents) -> Iterator[AnswerContents]:
    """The answers that have a result, in their order; reads one at a time."""
    return (run.answer(episode) for episode in sorted(run.rows))


def images_of(run: RunContents, answer: AnswerContents, message: RecordedMessage) -> list[Path]:
    """The files of a message's images, in their order; of frames of a video, the one that has them all. Raises RunError
    for a link out of the run."""
    names = image_files(message) or ([message["frames"]] if "frames" in message else [])
    paths = [run.folder_of(answer.episode) / name for name in names]
    for path in paths:
        if not path.resolve().is_relative_to(run.reader_of(answer.episode).folder.resolve()):
            raise RunError(f"{path} is a link out of the run folder: replace it by a file")
    return paths
