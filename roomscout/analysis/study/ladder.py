"""Which step of a ladder loses the points: what each cell lacks to the next one, and the last one to 100 percent."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from roomscout.analysis.compare.answers import Answers
from roomscout.analysis.compare.comparison import compare
from roomscout.analysis.compare.conditions import PROTOCOL
from roomscout.scoring.intervals import Estimate, estimates

Losses = Mapping[str, tuple[Estimate, ...]]
"""For each score, the percentage points that each step loses; together with the first cell's percent they are 100."""


def losses_of(steps: Sequence[str], runs: Sequence[Answers]) -> Losses:
    """The losses of a ladder's runs, which must have the same questions; intervals are paired by scene."""
    pairs = [compare(neighbours, (PROTOCOL,)).pairs[0] for neighbours in pairwise(runs)]
    last = {each.name: each for each in estimates(runs[-1].rows, runs[-1].benchmark)}
    found: dict[str, tuple[Estimate, ...]] = {}
    for place, score in enumerate(pairs[0].differences):
        rest = last[score.name]
        interval = (100 - rest.interval[1], 100 - rest.interval[0]) if rest.interval else None
        gained = [pair.differences[place] for pair in pairs]
        all_steps = [*gained, Estimate("", 100 - rest.percent, rest.scenes, interval)]
        found[score.name] = tuple(replace(each, name=step) for each, step in zip(all_steps, steps, strict=True))
    return found


def largest(of_score: Sequence[Estimate]) -> Estimate:
    """The step that loses most."""
    return max(of_score, key=lambda each: each.percent)
