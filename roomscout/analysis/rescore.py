"""The verb `roomscout rescore`: applies today's parser and scorer to the replies of a run, without a model."""

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from roomscout.agent.policies import Decision, replies
from roomscout.analysis.compare.conditions import value_in_words
from roomscout.analysis.judging import judge_run, price_of_judge
from roomscout.analysis.verbs import add_run, chosen_run, require_free, writing
from roomscout.base import verbs
from roomscout.base.tables import Table, decimal
from roomscout.base.text import log_to_stream
from roomscout.data.benchmark import Benchmark
from roomscout.data.judged import JUDGE_URL, Ask
from roomscout.data.questions import Question
from roomscout.runs import RunError
from roomscout.runs.export import as_csv, money_lines
from roomscout.runs.prices import read_price
from roomscout.runs.reader import RunReader
from roomscout.runs.records import ResultRow, Turn, as_scored
from roomscout.runs.writer import RunWriter
from roomscout.scoring.headline import headline_of
from roomscout.scoring.summary import summarize

log = logging.getLogger(__name__)

MOST_LISTED = 50  # the most answers that are listed; --out has all
COMPARED = ("answer", "score", "status")
"""The columns in which a rescored row may differ. The table of --out also has them as recorded."""

Parser = Callable[[Turn, Turn, Question, bool], Decision]
"""Parses the reply of a turn, whose first turn it also gets; the flag says that the reply must answer."""


@dataclass(frozen=True)
class Rescored:
    """A result as recorded and as today's parser and scorer have it. `note` says where a new run would differ."""

    recorded: ResultRow
    row: ResultRow
    note: str = ""

    @property
    def changed(self) -> bool:
        """Whether the answer, the score or the outcome differs."""
        return any(getattr(self.recorded, name) != getattr(self.row, name) for name in COMPARED)

    def to_csv(self) -> dict[str, Any]:
        """The row, with what was recorded in the columns that may differ, and the note."""
        recorded = {f"recorded_{name}": getattr(self.recorded, name) for name in COMPARED}
        return self.row.to_json() | recorded | {"note": self.note}


def main(
    arguments: Sequence[str], open_judge: Callable[[str, str, str], Ask], when_judged: Callable[[Path], None]
) -> int:
    """Run the verb; returns 0. `open_judge` opens the judge of --judge, from its model, the URL of its server and the
    environment variable with the API key; `when_judged` is called for it. The marks and the price are kept in the run
    folder. Raises RunError, BenchmarkError and what the judge raises."""
    parser = _arguments()
    options = parser.parse_intermixed_args(arguments)
    if options.judge is None:
        about_judge = ("judge_url", "judge_key_env", "replace_marks")
        if unused := [name for name in about_judge if getattr(options, name) != parser.get_default(name)]:
            parser.error(f"--{unused[0].replace('_', '-')} is about a judge: add --judge MODEL, or leave it out")
    log_to_stream(sys.stdout)
    reader = RunReader(chosen_run(options).absolute())
    out = options.out and options.out.expanduser().absolute()
    if out is not None:
        require_free(out, options.force)
    parsed = reparsed(reader, replies.parser_of(reader, options.allow_code))
    if options.prices is not None and (reader.facts.asks_model or options.judge is None):
        log.info("%s", price_run(reader, options.prices))
        when_judged(reader.folder)
    if options.judge is not None:
        ask = open_judge(options.judge, options.judge_url, options.judge_key_env)
        rows = [answer.row for answer in parsed]
        log.info("%s", judge_run(reader.folder, options.judge, ask, rows, options.replace_marks, options.prices))
        when_judged(reader.folder)
    answers = rescored(reader, parsed)
    lines = [*changes(answers), "", *totals(answers, reader.benchmark, reader.facts.episodes - len(answers))]
    if out is not None:
        more = (*(f"recorded_{name}" for name in COMPARED), "note")
        with writing(out) as draft:
            table = as_csv([answer.to_csv() for answer in answers], more)
            draft.write_text(table, encoding="utf-8", errors="backslashreplace", newline="")
    for line in lines:
        log.info("%s", line)
    if out is not None:
        log.info("Rescored rows: %s", out)
    return 0


def price_run(reader: RunReader, prices: Path) -> str:
    """Give a run the price of its model in a file, renew its summary and return the cost in words; raises RunError."""
    if not reader.facts.asks_model:
        raise RunError(f"--prices are of a model's tokens, and no model answered in {reader.folder}: leave it out")
    try:
        price = read_price(prices.expanduser(), reader.facts.config["model"])
    except ValueError as error:
        raise RunError(str(error)) from None
    with closing(RunWriter(reader.folder)) as run:
        marks = reader.marks
        of_judge = price_of_judge(prices, marks.judge) if marks else None
        run.describe(replace(reader.facts, price=price, judge_price=of_judge))
        return "\n".join(money_lines(run.export(None), len(run.rows), price))


def reparsed(reader: RunReader, parse: Parser) -> list[Rescored]:
    """The finished answers of a run, in their order, parsed again; their scores are those recorded. Raises RunError."""
    facts = reader.facts
    questions = {question.id: question for question in reader.questions}
    rows = reader.rows
    own_moves = facts.model_moves and facts.frames is None
    counted_from = facts.setting("min_turns") if own_moves else None
    if not rows:
        raise RunError(f"{reader.folder} has no finished question to rescore: resume it")
    return [
        _parsed(row, questions[row.id], reader.turns(row.episode), facts.setting("steps"), counted_from, parse)
        for row in rows
    ]


def rescored(reader: RunReader, parsed: Sequence[Rescored]) -> list[Rescored]:
    """Parsed answers with their scores, those in free text by the marks of the run's judge; raises RunError."""
    questions = {question.id: question for question in reader.questions}
    marks = reader.marks
    answers = []
    for answer in parsed:
        question = questions[answer.row.id]
        text = answer.row.answer
        row = replace(answer.row, score=question.score(text), scores=question.more_scores(text))
        answers.append(replace(answer, row=row if marks is None else marks.scored(row)))
    return answers


def _parsed(
    row: ResultRow, question: Question, turns: Sequence[Turn], steps: int, counted_from: int | None, parse: Parser
) -> Rescored:
    """Parse the replies of an answer up to the first that ends the question, of those that count: from turn
    `counted_from` on, or the last of `steps` moves alone. The recorded outcome stays if the question failed, or without
    replies. If today's parser takes another action, later views would be others: a note says so."""
    if row.failed or not any(turn.reply.text or turn.reply.prompt_tokens for turn in turns):
        return Rescored(row, row)
    note = ""
    errors = 0
    for turn in turns:
        asked_nothing = not turn.reply.text and not turn.reply.prompt_tokens and turn.parse_error is None
        if not turn.is_final and asked_nothing:
            continue  # with --present once, the model saw this view in the last turn
        must_answer = turn.turn == steps or (turn.is_final and (counted_from is None or not turn.action.done))
        counts = counted_from is not None and turn.turn >= counted_from
        parsed = parse(turn, turns[0], question, must_answer)
        errors += parsed.error is not None
        if must_answer or (parsed.action.done and counts):
            answer = parsed.action.answer if parsed.error is None else None
            answer = as_scored(question, answer, turn.pose, turns[: turn.turn])
            if not turn.is_final:
                note = f"ends at turn {turn.turn} instead of {turns[-1].turn}"
            return Rescored(row, _with_answer(row, question, answer, turn, errors), note)
        recorded = turn.requested or turn.action
        same = parsed.action.unanswered == recorded.unanswered
        if not note and not turn.is_final and counted_from is not None and not same:
            note = f"acts differently at turn {turn.turn}, so a new run would see other views"
    note = f"does not end at turn {turns[-1].turn}, so a new run would take more turns"
    return Rescored(row, _with_answer(row, question, None, turns[-1], errors), note)


def _with_answer(row: ResultRow, question: Question, answer: str | None, last: Turn, errors: int) -> ResultRow:
    return replace(
        row,
        answer=answer,
        answer_text=question.text_beside(answer),
        status="exhausted" if answer is None else "answered",
        turns=last.turn + 1,
        parse_errors=errors,
    )


def changes(answers: Sequence[Rescored]) -> list[str]:
    """How many answers change, then a line for each of them, and one for each note on an answer that does not."""
    changed = [answer for answer in answers if answer.changed]
    noted = [answer for answer in answers if answer.note and not answer.changed]
    gains = [(answer.row.score or 0.0) - (answer.recorded.score or 0.0) for answer in changed]
    better = sum(gain > 0 for gain in gains)
    worse = sum(gain < 0 for gain in gains)
    lines = [f"{len(changed)} of {len(answers)} answers change: {better} score more, {worse} less"]
    for answer in [*changed, *noted][:MOST_LISTED]:
        row = answer.row
        pairs = [(name, getattr(answer.recorded, name), getattr(row, name)) for name in COMPARED]
        words = ", ".join(
            f"{name} {value_in_words(then)} -> {value_in_words(now)}" for name, then, now in pairs if then != now
        )
        note = answer.note and f"; {answer.note}"
        lines.append(f"  {row.episode}, {row.question_type}: {words or 'unchanged'}{note}")
    if (more := len(changed) + len(noted) - MOST_LISTED) > 0:
        lines.append(f"  and {more} more: --out FILE has all")
    return lines


def totals(answers: Sequence[Rescored], benchmark: Benchmark, pending: int) -> list[str]:
    """A table of percent per type and task and overall, as recorded and rescored; raises BenchmarkError."""
    then = summarize([answer.recorded for answer in answers], benchmark, pending)
    now = summarize([answer.row for answer in answers], benchmark, pending)
    before, after = (
        {name: counts.percent for name, counts in scores.types.items() if name != "all"}
        | scores.asked.tasks
        | {"overall": scores.asked.overall}
        for scores in (then, now)
    )
    rows = [[name, decimal(before.get(name)), decimal(after.get(name))] for name in {**before, **after}]
    headline = headline_of(now, benchmark) or headline_of(then, benchmark)
    covered = [f"overall: {headline.label}{headline.without}"] if headline else []
    return [*Table(["percent", "recorded", "rescored"], rows).lines(), *covered]


def _arguments() -> argparse.ArgumentParser:
    parser = verbs.Parser(prog="roomscout rescore")
    add_run(parser)
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the rescored rows as CSV, beside what was recorded"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it exists")
    parser.add_argument(
        "--prices", type=Path, metavar="FILE.yaml", help="price the tokens of the run, in its summary and its report"
    )
    parser.add_argument(
        "--judge", metavar="MODEL", help="the model that marks the answers in free text that have no mark yet"
    )
    parser.add_argument(
        "--judge-url", metavar="URL", default=JUDGE_URL,
        help="the OpenAI-compatible server of the judge (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument(
        "--judge-key-env", metavar="NAME", default="OPENAI_API_KEY",
        help="the environment variable with its API key (default: %(default)s)",
    )  # fmt: skip
    parser.add_argument("--replace-marks", action="store_true", help="with --judge, drop the marks of another judge")
    return parser
