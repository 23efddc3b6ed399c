"""How often the 95 % intervals of `roomscout.scoring.intervals` contain a known truth.

Scores are simulated as in VSI-Bench: nine types in seven tasks, letters scored 0 or 1 and numbers in tenths, each type
asked in some scenes only. Scenes differ in how hard they are, in all types and in each, so that scores within a scene
are correlated; the mean of each type is known exactly. For comparison, intervals that treat questions as independent.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr
from scipy.stats import beta, norm

from roomscout.data.benchmarks.vsi_bench import BENCHMARK
from roomscout.scoring.intervals import LEVEL, differences, estimates

TYPES: dict[str, tuple[float, float, int]] = {
    "object_counting": (0.62, 0.9, 3),
    "object_abs_distance": (0.45, 1.0, 3),
    "object_size_estimation": (0.70, 1.0, 4),
    "room_size_estimation": (0.55, 1.0, 1),
    "object_rel_distance": (0.52, 0.9, 3),
    "object_rel_direction_easy": (0.60, 0.5, 2),
    "object_rel_direction_medium": (0.48, 0.6, 2),
    "object_rel_direction_hard": (0.33, 0.6, 2),
    "route_planning": (0.30, 0.5, 2),
}
"""Of each type: the true mean score, the share of scenes that are asked it, and the most questions of a scene."""
SPREAD = 4.0
"""The sum of the parameters of the beta distribution of scenes' mean scores of a type: their deviation is 0.2."""
SHARED = 0.5
"""How much of a scene's hardness is common to all types, as a correlation; and to two models, in one type."""


@dataclass(frozen=True)
class Coverage:
    """Percent of simulated studies whose interval contains the truth, and the mean widths, in percentage points.

    `studies` counts those with an interval: with few scenes, some lack a type in too many of them.
    """

    scenes: int
    what: str
    studies: int
    by_scene: float
    width: float
    by_question: float
    question_width: float


def truth() -> float:
    """The true macro mean over tasks, in percent."""
    tasks: dict[str, list[float]] = {}
    for name, (mean, _, _) in TYPES.items():
        tasks.setdefault(BENCHMARK.by_name[name].task, []).append(mean)
    return 100 * float(np.mean([np.mean(means) for means in tasks.values()]))


def study(scenes: int, models: int, rng: np.random.Generator) -> list[list[dict[str, Any]]]:
    """The result rows of models with the same true scores, which answer the same questions."""
    rows: list[list[dict[str, Any]]] = [[] for _ in range(models)]
    hardness = rng.standard_normal(scenes)
    for name, (mean, share, most) in TYPES.items():
        of_type = np.sqrt(SHARED) * hardness + np.sqrt(1 - SHARED) * rng.standard_normal(scenes)
        numbers = rng.integers(1, most + 1, scenes) * (rng.random(scenes) < share)
        for of_model in rows:
            own = np.sqrt(SHARED) * of_type + np.sqrt(1 - SHARED) * rng.standard_normal(scenes)
            chances = beta.ppf(ndtr(own), mean * SPREAD, (1 - mean) * SPREAD)
            is_number = BENCHMARK.by_name[name].kind.name == "number"
            for scene, (chance, number) in enumerate(zip(chances, numbers, strict=True)):
                scores = rng.binomial(10, chance, number) / 10 if is_number else rng.binomial(1, chance, number)
                of_model += [
                    {"question_type": name, "dataset": "simulated", "scene_name": str(scene), "ground_truth": "A",
                     "score": float(score)}
                    for score in scores
                ]  # fmt: skip
    return rows


def by_question(rows: Sequence[dict[str, Any]], others: Sequence[dict[str, Any]] = ()) -> float:
    """The standard error of the macro mean, or of its difference, as if questions were independent, in percent."""
    tasks: dict[str, dict[str, list[float]]] = {}
    for place, row in enumerate(rows):
        name = row["question_type"]
        gain = row["score"] - (others[place]["score"] if others else 0)
        tasks.setdefault(BENCHMARK.by_name[name].task, {}).setdefault(name, []).append(gain)
    variance = 0.0
    for types in tasks.values():
        weight = 1 / len(tasks) / len(types)
        variance += sum(weight**2 * float(np.var(scores, ddof=1)) / len(scores) for scores in types.values())
    return 100 * variance**0.5


def coverages(scenes: int, repeats: int, resamples: int, seed: int, drawn_again: float = 1.0) -> Iterator[Coverage]:
    """The coverage for the overall of one model, then for the difference of two that are equally good.

    Of the second model, this share of the answers is `drawn_again`; the others are those of the first.
    """
    rng, z = np.random.default_rng(seed), float(norm.ppf(0.5 + LEVEL / 2))
    hits: dict[str, list[tuple[bool, float, bool, float]]] = {"overall": [], "difference": []}
    for _ in range(repeats):
        first, second = study(scenes, 2, rng)
        if drawn_again < 1:
            kept = rng.random(len(first)) >= drawn_again
            second = [one if keep else other for one, other, keep in zip(first, second, kept, strict=True)]
        cases = [
            ("overall", estimates(first, BENCHMARK, resamples)[-1], truth(), by_question(first)),
            ("difference", differences(first, second, BENCHMARK, resamples)[-1], 0.0, by_question(second, first)),
        ]
        for what, found, true, error in cases:
            if found.interval is None:
                continue
            low, high = found.interval
            near = abs(found.percent - true) <= z * error
            hits[what].append((low <= true <= high, high - low, near, 2 * z * error))
    for what, each in hits.items():
        covered, width, near, question_width = np.mean(np.array(each, float), axis=0)
        yield Coverage(scenes, what, len(each), 100 * covered, width, 100 * near, question_width)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m roomscout.speed.intervals", description=__doc__)
    parser.add_argument("--scenes", type=int, nargs="+", default=[30, 88, 288], help="numbers of scenes (%(default)s)")
    parser.add_argument("--repeats", type=int, default=2000, help="simulated studies of each size (%(default)s)")
    parser.add_argument("--resamples", type=int, default=999, help="resamples of each interval (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")
    parser.add_argument(
        "--drawn-again", type=float, default=1.0, metavar="SHARE",
        help="share of the second model's answers that are not those of the first (%(default)s)",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    print(f"{'scenes':>6}  {'what':<10}{'studies':>9}{'by scene':>10}{'width':>8}{'by question':>14}{'width':>8}")
    for scenes in given.scenes:
        for each in coverages(scenes, given.repeats, given.resamples, given.seed, given.drawn_again):
            print(
                f"{each.scenes:>6}  {each.what:<10}{each.studies:>9}{each.by_scene:>10.1f}{each.width:>8.2f}"
                f"{each.by_question:>14.1f}{each.question_width:>8.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
