"""What the formats have in common: the finished answers of a run, and what a file holds of them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roomscout.analysis.report.contents import QuestionContents, RunContents
from roomscout.data.answers import NUMBER
from roomscout.data.benchmarks import DEFAULT, find_benchmark
from roomscout.runs import RunError
from roomscout.runs.records import image_files


@dataclass(frozen=True)
class Exported:
    """How many answers a file holds, and a sentence for each thing that a reader of it should know."""

    answers: int
    remarks: tuple[str, ...] = ()


def finished(run: RunContents) -> Iterator[QuestionContents]:
    """The answers that have a result, in their order; reads one at a time."""
    return (run.question(episode) for episode in sorted(run.rows))


def vsi_bench_answers(run: RunContents) -> list[QuestionContents]:
    """The finished answers that the task VSI-Bench of other tools can score.

    These have one of its question types and a ground truth. Raises RunError if there are none.
    """
    types = find_benchmark(DEFAULT).by_name
    found = [each for each in finished(run) if each.question_type in types and each.truth is not None]
    if not found:
        raise RunError(
            f"{run.folder} has no finished question of a type of VSI-Bench with a ground truth, and this format holds "
            "no others: use --to inspect or --to messages"
        )
    return found


def without_others(run: RunContents, found: list[QuestionContents]) -> tuple[str, ...]:
    """A remark on the answers that `vsi_bench_answers` leaves out, if any."""
    others = len(run.rows) - len(found)
    return (f"{others} answers are left out: not of a type of VSI-Bench, or no ground truth",) if others else ()


def id_of(answer: QuestionContents) -> int | str:
    """The id as VSI-Bench has it, where ids are whole numbers."""
    return int(answer.id) if re.fullmatch("0|[1-9][0-9]{0,17}", answer.id) else answer.id


def indices_of(run: RunContents, found: Sequence[QuestionContents]) -> list[int]:
    """The indices of answers in VSI-Bench, which are the ids, or else their places in the run; both count from 0.

    Ids are indices only if each is a whole number, and each question has one answer.
    """
    ids = [id_of(each) for each in found]
    numbers = [id for id in ids if isinstance(id, int)]
    if len(set(numbers)) == len(found):
        return numbers
    return [(each.episode.number - 1) * run.facts.samples + each.episode.sample - 1 for each in found]


def plain_answer(answer: QuestionContents) -> str:
    """The final answer, empty if there is none; a number in digits alone, since other tools read "1e3" as 1."""
    text = answer.row.answer if answer.row is not None else None
    if text is None:
        return ""
    is_number = not answer.options and NUMBER.fullmatch(text)
    return np.format_float_positional(float(text), trim="-") if is_number else text


def camera_path_of(answer: QuestionContents) -> list[dict[str, Any]]:
    """Where the camera was in each turn, and what it did, as JSON values."""
    kept = ("turn", "pose", "action", "clamped", "parse_error", "move")
    return [{key: value for key, value in turn.to_json().items() if key in kept} for turn in answer.turns]


def images_of(run: RunContents, answer: QuestionContents, message: Mapping[str, Any]) -> list[Path]:
    """The files of a message's images, in their order; of frames of a video, the one that has them all. Raises RunError
    for a link out of the run."""
    names = image_files(message) or ([message["frames"]] if "frames" in message else [])
    paths = [run.folder_of(answer.episode) / name for name in names]
    for path in paths:
        if not path.resolve().is_relative_to(run.reader_of(answer.episode).folder.resolve()):
            raise RunError(f"{path} is a link out of the run folder: replace it by a file")
    return paths
