"""The verb rescore: applies today's parser and scorer to the replies that a run recorded, without a model."""

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from roomscout.analysis.episodes import Episode, finished_episodes, open_run, require_outside
from roomscout.data.benchmarks import Benchmark
from roomscout.data.questions import Question
from roomscout.data.scoring import summarize
from roomscout.data.text import escaped, log_to_stream
from roomscout.envs.actions import CameraAction
from roomscout.runs import RunError
from roomscout.runs.records import ResultRow, Turn
from roomscout.runs.writer import as_csv

MOST_LISTED = 50
"""The most changed answers that are printed; --out has all."""


class Parsed(Protocol):
    """The action of a reply; `error` says why the reply could not be parsed."""

    @property
    def action(self) -> CameraAction:
        """The action, a small rotation for a reply that could not be parsed."""

    @property
    def error(self) -> str | None:
        """Why the reply could not be parsed; None if it could."""


Parser = Callable[[str, Question, bool], Parsed]
"""Parses a reply to a question; the flag says that no move is left, so that it must answer."""


@dataclass(frozen=True)
class Rescored:
    """A result as recorded and as today's parser and scorer have it. `notes` says what a new run might do otherwise."""

    recorded: ResultRow
    row: ResultRow
    notes: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the answer, the score or the outcome differs."""
        return any(getattr(self.recorded, name) != getattr(self.row, name) for name in ("answer", "score", "status"))


def main(arguments: Sequence[str], parse: Parser, prog: str = "roomscout rescore") -> int:
    """Run the command with the parser of replies; returns 0, or 2 after printing why it cannot."""
    options = _parser(prog).parse_args(arguments)
    log_to_stream(sys.stdout)
    try:
        reader = open_run(options.run)
        if options.out is not None:
            require_outside(reader.folder, options.out)
        facts, benchmark = reader.facts, reader.benchmark
        episodes = list(finished_episodes(reader))
        if not episodes:
            raise RunError(f"{reader.folder} has no finished question to rescore: resume it")
        found = [rescored(episode, facts.config["steps"], parse) for episode in episodes]
        if options.out is not None:
            options.out.write_text(as_csv([each.row.to_json() for each in found]), encoding="utf-8")
    except RunError as error:
        sys.stderr.write(escaped(f"error: {error}") + "\n")
        return 2
    except OSError as error:
        reason = error.strerror or error
        sys.stderr.write(escaped(f"error: {options.out} cannot be written ({reason}): choose another --out") + "\n")
        return 2
    silent = sum(not _has_replies(episode) for episode in episodes)
    if silent:
        logging.info("%d of %d answers have no replies: their recorded actions are kept", silent, len(episodes))
    for line in changes(found):
        logging.info("%s", line)
    for line in totals(found, benchmark, facts.episodes - len(found)):
        logging.info("%s", line)
    if options.out is not None:
        logging.info("New rows: %s", options.out.absolute())
    return 0


def rescored(episode: Episode, steps: int, parse: Parser) -> Rescored:
    """Parse the recorded replies again up to the first that ends the question, and score its answer.

    `steps` is how many moves the run allowed. An answer without replies, as of a policy without a model, and that of a
    failed question stay and are only scored again. If today's parser takes an action that the run did not take, the
    later views would have been others: a note says so, and the recorded replies are used all the same.
    """
    row, question = episode.row, episode.question
    assert row is not None, "a finished episode has a result"
    if row.failed or not _has_replies(episode):
        return Rescored(row, _scored(row, question))
    notes: list[str] = []
    errors = 0
    for turn in episode.turns:
        last = turn.turn == steps or (turn.is_final and not turn.action.done)
        parsed = parse(turn.reply.text, question, last)
        errors += parsed.error is not None
        if last or parsed.action.done:
            answer = parsed.action.answer if parsed.error is None else None
            if not turn.is_final:
                notes.append(f"today's parser ends at turn {turn.turn}")
            return Rescored(row, _scored(_with_answer(row, question, answer, turn, errors), question), tuple(notes))
        if not notes and _moves(parsed.action) != _moves(turn.action):
            notes.append(f"turn {turn.turn} would act differently, so later views would be others")
    final = episode.turns[-1]
    notes.append(f"today's parser would go on after turn {final.turn}")
    return Rescored(row, _scored(_with_answer(row, question, None, final, errors), question), tuple(notes))


def _has_replies(episode: Episode) -> bool:
    return any(turn.reply.text or turn.reply.prompt_tokens for turn in episode.turns)


def _moves(action: CameraAction) -> CameraAction:
    """The action without what it says of the answer."""
    return replace(action, answer=None, done=False)


def _with_answer(row: ResultRow, question: Question, answer: str | None, turn: Turn, errors: int) -> ResultRow:
    return replace(
        row,
        answer=answer,
        answer_text=question.text_of(answer),
        status="exhausted" if answer is None else "answered",
        turns=turn.turn + 1,
        parse_errors=errors,
    )


def _scored(row: ResultRow, question: Question) -> ResultRow:
    return replace(row, score=question.score(row.answer), scores=question.more_scores(row.answer))


def changes(found: Sequence[Rescored]) -> list[str]:
    """A line for each answer that differs, and one for each note on an answer that does not."""
    changed, noted = (
        [each for each in found if each.changed],
        [each for each in found if each.notes and not each.changed],
    )
    lines = [f"{len(changed)} of {len(found)} answers change"]
    for each in [*changed, *noted][:MOST_LISTED]:
        then, now = each.recorded, each.row
        words = (
            f"answer {_shown(then.answer)} -> {_shown(now.answer)}, score {_shown(then.score)} -> {_shown(now.score)}"
        )
        about = [words] if each.changed else ["unchanged"]
        lines.append(f"  {then.episode}, {then.question_type}: {'; '.join([*about, *each.notes])}")
    if (more := len(changed) + len(noted) - MOST_LISTED) > 0:
        lines.append(f"  and {more} more: --out FILE writes all")
    return lines


def totals(found: Sequence[Rescored], benchmark: Benchmark, pending: int) -> list[str]:
    """Percent per task and overall, as recorded and rescored."""
    then, now = (
        _percents([asdict(row) for row in rows], benchmark, pending)
        for rows in ([each.recorded for each in found], [each.row for each in found])
    )
    lines = [f"{'percent':<44}{'recorded':>10}{'rescored':>10}"]
    return lines + [f"{name:<44}{_decimal(then.get(name))}{_decimal(now.get(name))}" for name in {**then, **now}]


def _percents(rows: Sequence[Mapping[str, Any]], benchmark: Benchmark, pending: int) -> dict[str, float | None]:
    """Percent per task, per type of the questions' own, and the overall by its label."""
    summary = summarize(rows, benchmark, pending)
    asked, label = summary["asked"], summary["asked"]["overall_label"]
    own = {
        name: counts["percent"]
        for name, counts in summary["types"].items()
        if name not in benchmark.by_name and name != "all"
    }
    return {**asked["tasks"], **own, **({label: asked[label]} if label else {})}


def _shown(value: str | float | None) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else value


def _decimal(value: float | None) -> str:
    return f"{'-' if value is None else f'{value:.1f}':>10}"


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=prog,
        description="Apply today's parser and scorer to the replies of a run, without a model, and show what changes. "
        "The run is not changed.",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="the run folder; the run may be in progress")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the new rows, with the columns of results.csv")
    return parser
