"""What the answers after each turn (--anytime) say: the score by turn, and which answers came too early or too late."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from roomscout.data.benchmarks import Benchmark, mean
from roomscout.runs.records import EpisodeId, ResultRow, RunFacts, Turn
from roomscout.scoring.intervals import estimates


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


def anytime(
    rows: Iterable[ResultRow], forced: Mapping[EpisodeId, ForcedByTurn], benchmark: Benchmark, facts: RunFacts
) -> dict[str, Any] | None:
    """What the answers after each turn of a run say, for summary.json; None if nothing is scored. The keys are

    - "answers": how many answers have a score.
    - "by_turn": for each "turn", the overall in "percent" with its "interval" (None if there are too few scenes), the
      percent per task in "tasks", and "forced", the number of forced answers; all others are final. The last turn has
      the scores of the run.
    - "too_early", unless somebody else moved: "with_moves_left" counts the answers before the last turn, "below_full"
      those of them with a score below 1. Whether another turn would have helped is not known.
    - "too_late": of the answers that score "above_zero", how many were "as_good_earlier", and the mean number of turns
      since an answer first scored as much ("turns_since_first"), and since all did ("turns_since_stable").
    - "better_earlier": how many answers score less than a forced one before.
    """
    known = scores_by_turn(rows, forced)
    if not known:
        return None
    above = [each for each in known if each.final > 0]
    found: dict[str, Any] = {
        "answers": len(known),
        "by_turn": [_at(turn, known, benchmark) for turn in range(max(len(each.scores) for each in known))],
    }
    if facts.model_moves:
        most = facts.setting("steps")
        early = [each for each in known if each.row.status == "answered" and len(each.scores) <= most]
        found["too_early"] = {"with_moves_left": len(early), "below_full": sum(each.final < 1 for each in early)}
    found["too_late"] = {
        "above_zero": len(above),
        "as_good_earlier": sum(each.turns_since_first > 0 for each in above),
        "turns_since_first": _mean(each.turns_since_first for each in above),
        "turns_since_stable": _mean(each.turns_since_stable for each in above),
    }
    found["better_earlier"] = sum(max(each.scores) > each.final for each in known)
    return found


def _at(turn: int, known: Sequence[ScoresByTurn], benchmark: Benchmark) -> dict[str, Any]:
    """The scores at a turn."""
    rows = [each.row.to_json() | {"score": each.at(turn)} for each in known]
    of_all = {each.name: each for each in estimates(rows, benchmark)}
    overall = of_all.pop("overall", None)
    return {
        "turn": turn,
        "forced": sum(turn < len(each.scores) - 1 for each in known),
        "percent": overall.percent if overall else None,
        "interval": [round(edge, 4) for edge in overall.interval] if overall and overall.interval else None,
        "tasks": {name: each.percent for name, each in of_all.items()},
    }


def _mean(values: Iterable[int]) -> float | None:
    listed = list(values)
    return round(mean(listed), 4) if listed else None


def anytime_lines(summary: Mapping[str, Any]) -> list[str]:
    """What a summary says of the answers after each turn, as lines of text; none without --anytime."""
    if not (found := summary.get("anytime")):
        return []
    by_turn, late = found["by_turn"], found["too_late"]
    lines = []
    if all(each["percent"] is not None for each in by_turn):
        percents = [f"{each['percent']:.1f} % (turn {each['turn']})" for each in by_turn]
        lines.append(f"overall if each turn were the last: {', '.join(percents)}")
    if early := found.get("too_early"):
        lines.append(
            f"perhaps too early: {early['below_full']} of {early['with_moves_left']} answers with moves left are below "
            "full score"
        )
    if late["above_zero"]:
        lines.append(
            f"too late: {late['as_good_earlier']} of {late['above_zero']} answers above 0 were as good at an earlier "
            f"turn; on average, they first were {late['turns_since_first']:.1f} turns before the end"
        )
    return [*lines, f"{found['better_earlier']} of {found['answers']} answers were better at an earlier turn"]
