"""The command `python -m roomscout.training.diagnose RUN`: split an explorer's errors into perception and reasoning."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roomscout.base.text import escaped_lines
from roomscout.data.questions import Question, QuestionError
from roomscout.runs import RunError
from roomscout.runs.reader import RunReader
from roomscout.training.notes import notes_in
from roomscout.training.reading import FAMILIES, family_of, still_missing, think


@dataclass(frozen=True)
class Answered:
    """The outcome of one question.

    `read_perfectly` is the score with flawless reasoning over the same notes. `follows_notes`: whether the answer is
    what the notes imply, None if they imply none. `unseen`: whether an object in the question was never found.
    """

    question: Question
    answer: str | None
    score: float
    read_perfectly: float
    follows_notes: bool | None
    unseen: bool


def answered(run: Path) -> Iterator[Answered]:
    """The scored questions of a run, without failed ones. Raises RunError or QuestionError if the run or its questions
    cannot be read."""
    reader = RunReader(run)
    questions = {question.id: question for question in reader.questions}
    for row in reader.rows:
        if row.score is None or row.failed:
            continue
        replies = [turn.reply.text for turn in reader.turns(row.episode)]
        if not replies:
            raise RunError(f"{run}: question {row.number} has a result but no turns and cannot be analysed")
        question = questions[row.id]
        notes = [note for reply in replies for note in notes_in(reply)]
        implied = think(question, notes, (0.0, 0.0)).answer
        yield Answered(
            question,
            row.answer,
            row.score,
            (row.score if implied is None else question.score(implied)) or 0.0,
            None if implied is None else implied == row.answer,
            still_missing(question, notes),
        )


def table(results: Sequence[Answered]) -> list[str]:
    """A Markdown table with percentages per question type, then a line on counting errors and one on unseen objects."""
    columns = ("score", "read_perfectly", "follows_notes", "unseen")
    headers = [name.replace("_", " ") for name in columns]
    lines = [f"| type | questions | {' | '.join(headers)} |", "|---" * (len(columns) + 2) + "|"]
    for name in FAMILIES:
        of_type = [each for each in results if each.question.question_type == name]
        if of_type:
            cells = [_percent([getattr(each, key) for each in of_type]) for key in columns]
            lines.append(f"| {name} | {len(of_type)} | {' | '.join(cells)} |")
    count_errors = [
        round(float(each.answer or 0)) - round(float(each.question.ground_truth or 0))
        for each in results
        if each.question.question_type == "object_counting"
    ]
    parts = [("exact", 0), ("one too low", -1), ("one too high", 1)]
    unseen = [each.unseen for each in results if family_of(each.question) not in ("counting", "room_size")]
    return [
        *lines,
        "",
        f"Counts: {', '.join(f'{count_errors.count(by)} {name}' for name, by in parts)}, of {len(count_errors)}.",
        f"Objects still unseen at the end: {sum(unseen)} of {len(unseen)} questions that name objects to find.",
    ]


def _percent(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{100 * np.mean(known):.0f}" if known else "-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m roomscout.training.diagnose", description=__doc__)
    parser.add_argument("run", type=Path, help="run folder, such as OUT/runs/... of roomscout.training.evaluate")
    options = parser.parse_args(arguments)
    try:
        lines = table(list(answered(options.run)))
    except (RunError, QuestionError, OSError) as error:
        sys.stderr.write(escaped_lines(str(error)) + "\n")
        return 2
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
