"""Has a judge mark the answers of a run in free text, and scores the run by its marks."""

import logging
from collections.abc import Iterable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from roomscout.data.judged import Ask, mark_of, prompt_of, prompts_sha256
from roomscout.runs import RunError
from roomscout.runs.prices import Price, read_price
from roomscout.runs.reader import MARKS_FILE, RunReader
from roomscout.runs.writer import RunWriter
from roomscout.scoring.scores import Mark, ResultRow

log = logging.getLogger(__name__)

REPORTED_EVERY = 100  # marks between two lines of progress


def judge_run(
    folder: Path,
    judge: str,
    ask: Ask,
    rows: Iterable[ResultRow] = (),
    replace_marks: bool = False,
    prices: Path | None = None,
) -> str:
    """Have a judge mark the answers of a run that have no mark yet, then renew the scores in its summary. Returns how
    many answers were marked, how many had a mark already, and how many still lack one, in words.

    Saves each mark as it arrives in marks.jsonl, so that another call asks only for those that are missing. Also marks
    the answers of `rows`, which are those of the run parsed in another way. `replace_marks` drops the marks of another
    judge once this one has given its first. The judge's tokens are priced by a file of `prices`, if that has the judge.

    Raises RunInUse while the run is being written, RunError if no answer needs a judge, if the marks are another
    judge's, or if the folder cannot be written, and what `ask` raises.
    """
    reader = RunReader(folder)
    with closing(RunWriter(folder)) as run:
        free = {
            question.id: question
            for question in reader.questions
            if question.kind.needs_judge and question.ground_truth is not None
        }
        judged = {(row.id, row.answer): free[row.id] for row in [*reader.recorded_rows, *rows] if row.id in free}
        if not judged:
            raise RunError("--judge: no answer of this run needs a judge; leave it out")
        marks = reader.marks
        prompts = prompts_sha256()
        of_others = marks is not None and (marks.judge, marks.prompts_sha256) != (judge, prompts)
        if marks is not None and of_others and not replace_marks:
            how = " with other prompts" if marks.judge == judge else ""
            raise RunError(
                f"{folder / MARKS_FILE} has the marks of {marks.judge}{how}, and a run has those of one judge: add "
                "--replace-marks to drop them, or judge a copy of the folder"
            )
        kept = {} if marks is None or of_others else marks.by_answer
        answers = {key: question for key, question in judged.items() if key[1] is not None}
        missing = {key: question for key, question in answers.items() if key not in kept}
        new_marks = ask([prompt_of(question, str(answer)) for (_, answer), question in missing.items()], mark_of)
        marked = 0
        for done, ((id, answer), (mark, tokens)) in enumerate(zip(missing, new_marks, strict=True), start=1):
            if mark is not None:
                line = Mark(id, str(answer), mark, judge, prompts, tokens)
                run.save(MARKS_FILE, [line]) if of_others and not marked else run.mark(line)
                marked += 1
            if done % REPORTED_EVERY == 0:
                log.info("%d of %d answers judged", done, len(missing))
        if prices is not None:
            run.describe(replace(run.reader.facts, judge_price=price_of_judge(prices, judge)))
        run.export(None)
        words = f"{marked} answer{'' if marked == 1 else 's'} marked, {len(answers) - len(missing)} had a mark"
        if marked == len(missing):
            return words
        unmarked = len(missing) - marked
        return f"{words}; {unmarked} without one, since no reply had a mark: the same command asks again"


def price_of_judge(prices: Path, judge: str) -> Price | None:
    """The price of a judge in a file; None, with a warning, if the file has none or cannot be read."""
    try:
        return read_price(prices.expanduser(), judge)
    except ValueError as error:
        log.warning("The tokens of the judge are not priced: %s", error)
        return None
