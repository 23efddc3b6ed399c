"""The command `python -m training.diagnose RUN`: whether an explorer's run lost its answers in seeing or in reading."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent.evaluation import questions_of
from agent.run_folder import saved_config
from data.questions import QUESTION_TYPES, Question, QuestionError
from data.scoring import score_answer
from runs import RunError
from runs.reader import RunReader
from training.notes import notes_in
from training.reading import think


@dataclass(frozen=True)
class Answered:
    """How one question ended: its score, and what that were if the notes were read without a slip; whether the answer
    is the one that they give, None where they do not settle it; and whether something asked about stayed unseen."""

    question: Question
    answer: str | None
    score: float
    read_perfectly: float
    follows_notes: bool | None
    unseen: bool


def answered(run: Path) -> Iterator[Answered]:
    """The scored questions of a run folder that did not fail; raises RunError or QuestionError where the folder or
    its questions cannot be read."""
    questions = {question.id: question for question in questions_of(saved_config(run))}
    reader = RunReader(run)
    for row in reader.rows:
        if row.score is None or row.failed:
            continue
        replies = [turn.reply.text for turn in reader.turns(row.number)]
        if not replies:
            raise RunError(f"{run}: question {row.number} has a result but no turns, so nothing can be said about it")
        question = questions[row.id]
        notes = [note for reply in replies for note in notes_in(reply)]
        given = think(question, notes, (0.0, 0.0)).answer
        yield Answered(
            question,
            row.answer,
            row.score,
            row.score if given is None else score_answer(question.question_type, given, question.ground_truth or ""),
            None if given is None else given == row.answer,
            "unseen" in replies[-1],
        )


def table(of_run: Sequence[Answered]) -> list[str]:
    """A line for each question type, in percent, one about the counts and one about what stayed unseen."""
    columns = ("score", "read_perfectly", "follows_notes", "unseen")
    heads = [name.replace("_", " ") for name in columns]
    lines = [f"| type | questions | {' | '.join(heads)} |", "|---" * (len(columns) + 2) + "|"]
    for name in QUESTION_TYPES:
        these = [each for each in of_run if each.question.question_type == name]
        if these:
            cells = [_mean([getattr(each, key) for each in these]) for key in columns]
            lines.append(f"| {name} | {len(these)} | {' | '.join(cells)} |")
    off = [
        round(float(each.answer or 0)) - round(float(each.question.ground_truth or 0))
        for each in of_run
        if each.question.question_type == "object_counting"
    ]
    parts = [("exact", 0), ("one too low", -1), ("one too high", 1)]
    looking = [each.unseen for each in of_run if each.question.kind.family not in ("counting", "room_size")]
    return [
        *lines,
        "",
        f"Counts: {', '.join(f'{off.count(by)} {name}' for name, by in parts)}, of {len(off)}.",
        f"Something unseen at the end: {sum(looking)} of {len(looking)} questions about things that are not counted.",
    ]


def _mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * np.mean(known):.0f}" if known else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m training.diagnose", description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a run, such as OUT/runs/... of training.evaluate")
    options = parser.parse_args(arguments)
    try:
        lines = table(list(answered(options.run)))
    except (RunError, QuestionError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
