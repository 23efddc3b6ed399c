"""What the answers after each turn say: the score by turn, and which answers came too early or too late."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from roomscout.base.record import OmittedIfNone, Record
from roomscout.data.benchmark import Benchmark, mean
from roomscout.runs.records import EpisodeId, ResultRow, RunFacts, Turn
from roomscout.scoring.intervals import estimates, in_percent
from roomscout.scoring.scores import Edges

Forced = Mapping[EpisodeId, Sequence[tuple[str | None, float | None]]]
"""The forced answers of episodes with their scores, by turn."""


def forced_in(turns: Iterable[Turn]) -> list[tuple[str | None, float | None]]:
    """The forced answers of an episode with their scores, by turn."""
    return [(turn.forced.answer, turn.forced.score) for turn in turns if turn.forced is not None]


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
        stable = worse[-1] + 1 if worse else 0
        return len(self.scores) - 1 - stable


@dataclass(frozen=True, kw_only=True)
class AtTurn(Record):
    """The scores if the answers after this turn were the last; the last turn has the scores of the run."""

    turn: int  # from 0
    forced: int  # how many answers are forced; all others are final
    percent: float | None  # the overall
    interval: Edges | None  # of the overall
    tasks: dict[str, float]  # percent by task


@dataclass(frozen=True, kw_only=True)
class TooEarly(Record):
    """How many answers came before the last turn, and how many of them score below 1: perhaps too early."""

    with_moves_left: int
    below_full: int


@dataclass(frozen=True, kw_only=True)
class TooLate(Record):
    """Answers that may have come too late."""

    above_zero: int  # answers that score above 0
    as_good_earlier: int  # how many of them were as good at an earlier turn
    turns_since_first: float | None  # their mean number of turns since an answer first scored as much
    turns_since_stable: float | None  # and since all did


@dataclass(frozen=True, kw_only=True)
class Anytime(Record):
    """What the answers after each turn say."""

    answers: int  # those with a score
    by_turn: tuple[AtTurn, ...]  # from turn 0
    too_early: OmittedIfNone[TooEarly | None] = None  # None if the model does not move the camera
    too_late: TooLate  # those that score above 0, by when they began to score as much
    better_earlier: int  # how many answers score less than a forced one before


def anytime(rows: Iterable[ResultRow], forced: Forced, benchmark: Benchmark, facts: RunFacts) -> Anytime | None:
    """What the answers after each turn of a run say; None if nothing is scored."""
    answers = []
    for row in rows:
        all_scores = [*(score for _, score in forced[row.episode]), row.score]
        scores = tuple(score for score in all_scores if score is not None)
        if len(scores) == len(all_scores):  # else forced answers await a judge
            answers.append(ScoresByTurn(row, scores))
    if not answers:
        return None
    above = [answer for answer in answers if answer.final > 0]
    steps = facts.setting("steps")
    early = [answer for answer in answers if answer.row.status == "answered" and len(answer.scores) <= steps]
    too_early = None
    if facts.model_moves:
        too_early = TooEarly(with_moves_left=len(early), below_full=sum(answer.final < 1 for answer in early))
    turns = max(len(answer.scores) for answer in answers)
    return Anytime(
        answers=len(answers),
        by_turn=tuple(_at(turn, answers, benchmark) for turn in range(turns)),
        too_early=too_early,
        too_late=TooLate(
            above_zero=len(above),
            as_good_earlier=sum(answer.turns_since_first > 0 for answer in above),
            turns_since_first=_mean(answer.turns_since_first for answer in above),
            turns_since_stable=_mean(answer.turns_since_stable for answer in above),
        ),
        better_earlier=sum(max(answer.scores) > answer.final for answer in answers),
    )


def _at(turn: int, answers: Sequence[ScoresByTurn], benchmark: Benchmark) -> AtTurn:
    rows = [replace(answer.row, score=answer.at(turn)) for answer in answers]
    scores = {score.name: score for score in estimates(rows, benchmark)}
    overall = scores.pop("overall", None)
    edges = overall.interval if overall else None
    return AtTurn(
        turn=turn,
        forced=sum(turn < len(answer.scores) - 1 for answer in answers),
        percent=overall.percent if overall else None,
        interval=in_percent(edges) if edges else None,
        tasks={name: score.percent for name, score in scores.items()},
    )


def _mean(values: Iterable[int]) -> float | None:
    listed = list(values)
    return round(mean(listed), 4) if listed else None


def anytime_lines(record: Anytime | None) -> list[str]:
    """What the answers after each turn say, as lines of text; none if a run did not ask for them."""
    if record is None:
        return []
    early = record.too_early
    late = record.too_late
    lines = []
    if all(scores.percent is not None for scores in record.by_turn):
        percents = [f"{scores.percent:.1f} % (turn {scores.turn})" for scores in record.by_turn]
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
    return [*lines, f"{record.better_earlier} of {record.answers} answers were better at an earlier turn"]
