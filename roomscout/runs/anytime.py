"""What the answers after each turn (--anytime) say: the score by turn, and which answers came too early or too late."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from roomscout.base.record import OmittedIfNone, Record
from roomscout.data.benchmark import Benchmark, mean
from roomscout.runs.records import EpisodeId, ResultRow, RunFacts, Turn
from roomscout.scoring.intervals import estimates, in_percent
from roomscout.scoring.scores import Edges


@dataclass(frozen=True)
class ForcedByTurn:
    """The forced answers of an episode with their scores, by turn."""

    answers: tuple[str | None, ...]
    scores: tuple[float | None, ...]

    @classmethod
    def of(cls, turns: Iterable[Turn]) -> Self:
        """Those of an episode's turns."""
        found = [turn.forced for turn in turns if turn.forced is not None]
        return cls(tuple(each.answer for each in found), tuple(each.score for each in found))

    @property
    def columns(self) -> dict[str, str]:
        """Their values of FORCED_COLUMNS."""
        values = (self.answers, self.scores)
        return {name: json.dumps(value, ensure_ascii=False) for name, value in zip(FORCED_COLUMNS, values, strict=True)}


FORCED_COLUMNS = ("forced_answers", "forced_scores")
"""The columns of results.csv with the forced answers of each turn and their scores, as JSON lists."""


@dataclass(frozen=True)
class ScoresByTurn:
    """The scores of one answer by turn: of each forced answer, then of the final one. `row` is its result."""

    row: ResultRow
    scores: tuple[float, ...]

    @property
    def final(self) -> float:
        """The final score."""
        return self.scores[-1]

    def at(self, turn: int) -> float:
        """The score at a turn. A question that has ended keeps its final one."""
        return self.scores[min(turn, len(self.scores) - 1)]

    @property
    def turns_since_first(self) -> int:
        """How many turns before the end an answer first scored as much as the final one."""
        return len(self.scores) - 1 - next(turn for turn, score in enumerate(self.scores) if score >= self.final)

    @property
    def turns_since_stable(self) -> int:
        """How many turns before the end all answers began to score as much as the final one."""
        worse = [turn for turn, score in enumerate(self.scores) if score < self.final]
        return len(self.scores) - 1 - (worse[-1] + 1 if worse else 0)


def scores_by_turn(rows: Iterable[ResultRow], forced: Mapping[EpisodeId, ForcedByTurn]) -> list[ScoresByTurn]:
    """The scores of all answers that have one, turn by turn; without answers whose forced ones await a judge."""
    found = []
    for row in rows:
        scores = [*forced[row.episode].scores, row.score]
        known = tuple(score for score in scores if score is not None)
        if len(known) == len(scores):
            found.append(ScoresByTurn(row, known))
    return found


@dataclass(frozen=True, kw_only=True)
class AtTurn(Record):
    """The overall, its interval and the tasks in percent, if the answers after this turn were the last. `forced` is the
    number of forced answers; all others are final. The last turn has the scores of the run."""

    turn: int
    forced: int
    percent: float | None
    interval: Edges | None
    tasks: dict[str, float]


@dataclass(frozen=True, kw_only=True)
class TooEarly(Record):
    """How many answers came before the last turn, and how many of them score below 1. Whether another turn would have
    helped is not known."""

    with_moves_left: int
    below_full: int


@dataclass(frozen=True, kw_only=True)
class TooLate(Record):
    """Of the answers that score `above_zero`: how many were as good at an earlier turn, and the mean number of turns
    since an answer first scored as much, and since all did."""

    above_zero: int
    as_good_earlier: int
    turns_since_first: float | None
    turns_since_stable: float | None


@dataclass(frozen=True, kw_only=True)
class Anytime(Record):
    """What the answers after each turn say, of the `answers` with a score. `too_early` is None if the model does not
    move the camera. `better_earlier` counts the answers that score less than a forced one before."""

    answers: int
    by_turn: tuple[AtTurn, ...]
    too_early: OmittedIfNone[TooEarly | None] = None
    too_late: TooLate
    better_earlier: int


def anytime(
    rows: Iterable[ResultRow], forced: Mapping[EpisodeId, ForcedByTurn], benchmark: Benchmark, facts: RunFacts
) -> Anytime | None:
    """What the answers after each turn of a run say; None if nothing is scored."""
    known = scores_by_turn(rows, forced)
    if not known:
        return None
    above = [each for each in known if each.final > 0]
    early = [each for each in known if each.row.status == "answered" and len(each.scores) <= facts.setting("steps")]
    return Anytime(
        answers=len(known),
        by_turn=tuple(_at(turn, known, benchmark) for turn in range(max(len(each.scores) for each in known))),
        too_early=TooEarly(with_moves_left=len(early), below_full=sum(each.final < 1 for each in early))
        if facts.model_moves
        else None,
        too_late=TooLate(
            above_zero=len(above),
            as_good_earlier=sum(each.turns_since_first > 0 for each in above),
            turns_since_first=_mean(each.turns_since_first for each in above),
            turns_since_stable=_mean(each.turns_since_stable for each in above),
        ),
        better_earlier=sum(max(each.scores) > each.final for each in known),
    )


def _at(turn: int, known: Sequence[ScoresByTurn], benchmark: Benchmark) -> AtTurn:
    rows = [replace(each.row, score=each.at(turn)) for each in known]
    of_all = {each.name: each for each in estimates(rows, benchmark)}
    overall = of_all.pop("overall", None)
    edges = overall.interval if overall else None
    return AtTurn(
        turn=turn,
        forced=sum(turn < len(each.scores) - 1 for each in known),
        percent=overall.percent if overall else None,
        interval=in_percent(edges) if edges else None,
        tasks={name: each.percent for name, each in of_all.items()},
    )


def _mean(values: Iterable[int]) -> float | None:
    listed = list(values)
    return round(mean(listed), 4) if listed else None


def anytime_lines(found: Anytime | None) -> list[str]:
    """What the answers after each turn say, as lines of text; none without --anytime."""
    if found is None:
        return []
    early = found.too_early
    late = found.too_late
    lines = []
    if all(each.percent is not None for each in found.by_turn):
        percents = [f"{each.percent:.1f} % (turn {each.turn})" for each in found.by_turn]
        lines.append(f"overall if each turn were the last: {', '.join(percents)}")
    if early is not None:
        lines.append(
            f"perhaps too early: {early.below_full} of {early.with_moves_left} answers with moves left are below "
            "full score"
        )
    if late.above_zero:
        lines.append(
            f"too late: {late.as_good_earlier} of {late.above_zero} answers above 0 were as good at an earlier "
            f"turn; on average, they first were {late.turns_since_first:.1f} turns before the end"
        )
    return [*lines, f"{found.better_earlier} of {found.answers} answers were better at an earlier turn"]
