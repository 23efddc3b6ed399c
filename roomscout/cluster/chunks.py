"""The queue from which the workers of a run take its questions, a few about one scan at a time."""

import errno
import math
import shutil
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from roomscout.data.questions import Question
from roomscout.data.scans import scene_order
from roomscout.runs import RunError

MOST_QUESTIONS = 8
QUEUE_FOLDER = "queue"  # the folder of the queue, beside the folders of the parts


def chunks_of(questions: Sequence[Question]) -> list[list[Question]]:
    """The next MOST_QUESTIONS of each scene, scene by scene."""
    scenes = [list(scene) for _, scene in groupby(scene_order(questions), lambda question: question.scene)]
    return [scene[at : at + MOST_QUESTIONS] for scene in scenes for at in range(0, len(scene), MOST_QUESTIONS)]


class ChunkQueue:
    """The chunks of a run's questions, shared by its `workers` through a `folder`, perhaps of a network file system.

    A worker takes a chunk by renaming a folder of its own to the chunk's number, which succeeds for one alone. It holds
    a file with the number of the worker's part: whoever resumes the part goes on with what it has taken."""

    def __init__(self, folder: Path, questions: Sequence[Question], workers: int) -> None:
        self._folder = folder
        self._chunks = chunks_of(questions)
        self._workers = workers

    def taken_by(self, part: int) -> list[Question]:
        """The questions that this part has taken before."""
        return [question for number in self._taken(part) for question in self._chunks[number]]

    def take(self, part: int, most: int) -> list[Question]:
        """Take the next chunks for this part: `most` questions or a few more, but no more than its share of what is
        left. Empty once nothing is; raises RunError if the folder cannot be written."""
        taken = set(self._taken("*"))
        questions = list[Question]()
        free = [number for number in range(len(self._chunks)) if number not in taken]
        share = math.ceil(len(free) / self._workers)
        for number in free:
            if len(questions) >= most or share == 0:
                break
            if self.claim(number, part):
                questions += self._chunks[number]
                share -= 1
        return questions

    def claim(self, number: int, part: int) -> bool:
        """Take one chunk; False if another part has."""
        draft = self._folder / f".{number}.{part}"
        try:
            draft.mkdir(parents=True, exist_ok=True)
            (draft / str(part)).touch()
            draft.rename(self._folder / str(number))
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise RunError(f"{self._folder} cannot be written ({error.strerror})") from None
            shutil.rmtree(draft, ignore_errors=True)
        return (self._folder / str(number) / str(part)).exists()

    def give_back(self, part: int) -> None:
        """Let others take what this part has taken."""
        for number in self._taken(part):
            shutil.rmtree(self._folder / str(number))

    def _taken(self, part: int | str) -> list[int]:
        return sorted(int(path.parent.name) for path in self._folder.glob(f"[0-9]*/{part}"))
