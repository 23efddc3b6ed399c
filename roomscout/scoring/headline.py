"""The one number by which a run is named, and what it covers: every page, table and line of text takes it from here."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from roomscout.base.text import counted, listed
from roomscout.data.benchmark import Benchmark
from roomscout.scoring.scores import Percentages, Scores, TypeScores

UNIT_ENDINGS = {"_m": "m", "_cm": "cm", "_deg": "degrees", "_s": "s", "_percent": "%"}  # of keys of further scores
SCORE_NAMES = {"success_wide": "score within the wider limits", "spl": "SPL"}  # of those whose keys say too little


@dataclass(frozen=True)
class Headline:
    """The overall of a run, or of a part of it, with what it covers and what it leaves out."""

    percent: float  # the overall
    answers: int  # that it covers
    label: str  # what it is the mean of, in words
    left_out: Mapping[str, TypeScores]  # the scored types beside it, by name

    @property
    def without(self) -> str:
        """See `leaving_out`."""
        return leaving_out(self.left_out)


def leaving_out(types: Collection[str]) -> str:
    """The types that an overall leaves out, to follow it: " without view_finding"; empty if it has all."""
    return f" without {listed(types)}" if types else ""


def headline_of(scores: Scores, benchmark: Benchmark, of: Percentages | None = None) -> Headline | None:
    """The headline of a run's scores, by default `of` all questions; None if nothing is scored."""
    part = of or scores.asked
    if part.label is None or part.overall is None:
        return None
    scored = [name for name, counts in scores.types.items() if name != "all" and counts.percent is not None]
    covered = benchmark.in_overall(scored)
    shown = f" ({part.shown})" if part.shown else ""
    return Headline(
        percent=part.overall,
        answers=part.counted,
        label=part.label.in_words([*part.tasks], benchmark) + shown,
        left_out={name: scores.types[name] for name in scored if name not in covered},
    )


def left_out_lines(headline: Headline) -> list[str]:
    """A line with the scores of each type that a headline leaves out."""
    lines = []
    for name, counts in headline.left_out.items():
        means = in_one_line(counts.scores)
        on_average = f"; on average {means}" if means else ""
        over = counted(counts.scored or counts.questions, "answer")  # older summaries do not count the former
        lines.append(f"{name}, beside the overall: {counts.percent:.1f} % over {over}{on_average}")
    return lines


def in_one_line(scores: Mapping[str, float]) -> str:
    """Further scores as one phrase: "distance 3.25 m, angle 18 degrees"."""
    return ", ".join(f"{name} {value}" for name, value in scores_in_words(scores).items())


def scores_in_words(scores: Mapping[str, float]) -> dict[str, str]:
    """Further scores as people read them: `distance_m` of 3.2476 as "distance" of "3.25 m", see UNIT_ENDINGS."""
    words = {}
    for key, value in scores.items():
        ending = next((ending for ending in UNIT_ENDINGS if key.endswith(ending)), "")
        name = SCORE_NAMES.get(key, key.removesuffix(ending).replace("_", " "))
        if name in words:  # of another unit
            name = key.replace("_", " ")
        words[name] = f"{value:.3g} {UNIT_ENDINGS.get(ending, '')}".rstrip()
    return words
